"""The recipes of CONTRIBUTING.md work as they are written.

Each recipe is a section with code blocks, which are followed in order in a copy of the project:

    python, toml   with a first line such as `# src/driftscore/scoring/rules/x.py`: that file
    python         without such a line: run as a program
    console        lines that begin with `$` are run; the lines after one are part of its output
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import soundfile

from .conftest import PROJECT
from .fresh_process import Done, run_steps

TEXT = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = {
    title: [(kind, body) for kind, body in re.findall(r"```(\w+)\n(.*?)```", content, re.DOTALL)]
    for title, content in re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", TEXT, re.DOTALL | re.MULTILINE)
}
ADDED = ("rule", "backbone", "engine", "output format", "dataset", "noise", "mixing method",
         "pack", "preset", "grid", "benchmark")  # fmt: skip


def file_of(body: str) -> str | None:
    """Return the file that the first line of a block names."""
    found = re.match(r"# ([\w./-]+\.\w+)\n", body)
    return found[1] if found else None


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project with the files of all recipes, and some recordings."""
    home = tmp_path_factory.mktemp("project")
    for name in ("src", "bench"):
        shutil.copytree(PROJECT / name, home / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PROJECT / "demo" / "sounds", home / "demo" / "sounds")
    for blocks in RECIPES.values():
        for _, body in blocks:
            if (file := file_of(body)) is not None:
                assert not (home / file).exists(), f"the recipe's file {file} exists already"
                (home / file).parent.mkdir(parents=True, exist_ok=True)
                (home / file).write_text(body.partition("\n")[2], encoding="utf-8")
    write_recordings(home)
    return home


def write_recordings(home: Path) -> None:
    """Write clips of two labels, and noise of two environments."""
    rng = np.random.default_rng(0)
    time = np.arange(16_000) / 16_000
    for number, label in enumerate(("siren", "rain")):
        (home / "clips" / label).mkdir(parents=True)
        for clip in range(3):
            tone = 0.2 * np.sin(2 * np.pi * 300 * 4**number * time + clip)
            noisy = tone + 0.01 * rng.standard_normal(len(time))
            soundfile.write(home / "clips" / label / f"{clip}.wav", noisy, 16_000)
    (home / "noise").mkdir()
    for environment in ("busy_street", "cafe"):
        noise = 0.1 * rng.standard_normal(3 * 16_000)
        soundfile.write(home / "noise" / f"{environment}.wav", noise, 16_000)


def pip_install(folder: Path, site: Path) -> None:
    """Do what pip does for a package of one module: copy it and write its metadata."""
    about = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    site.mkdir(exist_ok=True)
    for module in folder.glob("*.py"):
        shutil.copy(module, site)
    info = site / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in found.items())
        for group, found in about["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points), encoding="utf-8")


def steps_of(blocks: list[tuple[str, str]]) -> list[tuple[str, str, list[str]]]:
    """Return what a recipe runs: the kind, the text, and the lines that must be in its output."""
    steps: list[tuple[str, str, list[str]]] = []
    for kind, body in blocks:
        if kind == "python" and file_of(body) is None:
            steps.append(("python", body, []))
        elif kind == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, output = part.strip().partition("\n")
                steps.append(("command", command, output.splitlines()))
    return steps


@pytest.fixture(scope="module")
def followed(project: Path) -> dict[str, list[tuple[str, list[str], Done]]]:
    """Follow all recipes in one process; return for each its steps with what they gave."""
    site = project / "site-packages"
    steps = [(title, *step) for title, blocks in RECIPES.items() for step in steps_of(blocks)]
    for _, _, text, _ in steps:
        if text.startswith("pip install "):
            pip_install(project / text.removeprefix("pip install "), site)
    steps = [step for step in steps if not step[2].startswith("pip install ")]
    done = run_steps(
        [(kind, text) for _, kind, text, _ in steps],
        cwd=project,
        paths=(project / "src", project, site),
        cache=project / "cache",
    )
    found: dict[str, list[tuple[str, list[str], Done]]] = {title: [] for title in RECIPES}
    for (title, _, text, expected), result in zip(steps, done, strict=True):
        found[title].append((text, expected, result))
    return found


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_works_as_it_is_written(
    title: str, followed: dict[str, list[tuple[str, list[str], Done]]]
) -> None:
    assert followed[title]
    for text, expected, done in followed[title]:
        assert done.status == 0, f"{text}\n{done.status}\n{done.out}{done.err}"
        for line in expected:
            assert line in done.out + done.err, f"{text}\n{done.out}{done.err}"


@pytest.mark.usefixtures("followed")
def test_the_report_has_everything_that_the_recipes_added_to_the_lab(project: Path) -> None:
    report = (project / "report.md").read_text(encoding="utf-8")
    for name in ("Centred", "label_folders", "wav_folder", "full_power"):
        assert name in report


@pytest.mark.parametrize("kind", ADDED)
def test_there_is_a_recipe_for_everything_that_can_be_added(kind: str) -> None:
    article = "an" if kind[0] in "aeiou" else "a"
    assert any(f"{article} {kind}" in title.lower() for title in RECIPES)


def test_the_code_of_the_recipes_has_the_style_of_the_project(project: Path) -> None:
    files = [
        project / name
        for blocks in RECIPES.values()
        for kind, body in blocks
        if kind == "python" and (name := file_of(body)) is not None
    ]
    config = ["--config", str(PROJECT / "pyproject.toml"), "--no-cache"]
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", *config], ["format", "--check", *config]):
        done = subprocess.run(
            [*ruff, *command, *map(str, files)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
