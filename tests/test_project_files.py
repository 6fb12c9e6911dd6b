"""Files around the code agree with it: citation, workflows, hooks, the Makefile and .ci/run."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from driftscore.version import __version__

from .conftest import PROJECT

PROGRAMS = {"chromium", "curl", "ffmpeg", "mosquitto", "strace", "systemd-analyze", "zip"}
"""Programs that tests run, and are skipped without; npm gets axe-core."""


def read_yaml(name: str) -> dict[Any, Any]:
    yaml: Any = pytest.importorskip("yaml", reason="PYYAML IS NOT INSTALLED: make setup")
    found: dict[Any, Any] = yaml.safe_load((PROJECT / name).read_text(encoding="utf-8"))
    return found


def test_the_citation_has_what_its_format_asks_for_and_names_this_version() -> None:
    citation = read_yaml("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert str(citation["version"]) == __version__
    assert citation["license"] == "Apache-2.0"
    for cited in (citation, *citation["references"]):
        assert all("name" in one or "family-names" in one for one in cited["authors"])


def test_the_workflow_runs_ci_on_three_systems_and_every_python() -> None:
    [job] = read_yaml(".github/workflows/ci.yml")["jobs"].values()
    matrix = job["strategy"]["matrix"]
    text = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    assert matrix["python"] == re.findall(r"Python :: (3\.\d+)", text)
    systems = {*matrix["os"], *(more["os"] for more in matrix["include"])}
    assert systems == {"ubuntu-latest", "macos-latest", "windows-latest"}
    [run] = [step for step in job["steps"] if step.get("run") == ".ci/run"]
    assert run["shell"] == "bash"


def test_a_release_is_published_by_a_job_that_holds_no_token() -> None:
    jobs = read_yaml(".github/workflows/release.yml")["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "build"
    assert "secrets." not in (PROJECT / ".github/workflows/release.yml").read_text(encoding="utf-8")


def test_the_hooks_use_targets_of_the_makefile() -> None:
    [repo] = read_yaml(".pre-commit-config.yaml")["repos"]
    assert repo["repo"] == "local"
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets = [hook["entry"].split()[-1] for hook in repo["hooks"] if "make " in hook["entry"]]
    assert targets == ["format", "lint"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def fake_programs(folder: Path, *, with_apt: bool) -> Path:
    """Write a make that prints its arguments, and an apt-get that installs an empty program."""
    folder.mkdir()
    scripts = {"make": 'echo "make $@"', "npm": "exit 0"}
    if with_apt:
        scripts["apt-get"] = (
            f'echo "apt $@" >&2; [ "$1" = update ] || cp {folder}/npm {folder}/"${{@: -1}}"'
        )
        scripts["systemd"] = "exit 0"
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/bash\n{script}\n")
        (folder / name).chmod(0o755)
    for name in ("bash", "cat", "cp", "dirname", "env", "mktemp", "rm", "uname"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    (folder / "id").write_text("#!/bin/bash\necho 0\n")
    (folder / "id").chmod(0o755)
    return folder


@pytest.mark.skipif(os.name == "nt", reason="THE PROGRAMS OF THIS TEST ARE SHELL SCRIPTS")
@pytest.mark.parametrize("with_apt", [True, False])
def test_ci_installs_the_programs_that_are_missing_or_names_them(
    tmp_path: Path, with_apt: bool
) -> None:
    programs = fake_programs(tmp_path / "bin", with_apt=with_apt)
    home = tmp_path / "project" / ".ci"
    home.mkdir(parents=True)
    script = (PROJECT / ".ci" / "run").read_text(encoding="utf-8").replace(":/usr/sbin", "")
    (home / "run").write_text(script)
    done = subprocess.run(
        [programs / "bash", home / "run"],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    targets = re.findall(r"make (\S+) VENV=\S+/venv PYTHON=python3\n", done.stdout)
    assert targets == ["setup", "test", "lint", "test-slow"]
    named = set(re.findall(r"NOT INSTALLED: (\S+)\. ", done.stderr))
    if with_apt:
        assert set(re.findall(r"apt install .* (\S+)$", done.stderr, re.MULTILINE)) >= {
            name.replace("systemd-analyze", "systemd") for name in PROGRAMS
        }
        assert named == {"systemd-analyze"}, "the package systemd here has no program of that name"
    else:
        assert named >= PROGRAMS
        assert "apt" not in done.stderr


def test_the_makefile_finds_the_programs_of_an_environment_on_windows() -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("MAKE IS NOT INSTALLED")
    for system, folder in (("Windows_NT", "Scripts"), ("", "bin")):
        done = subprocess.run(
            [make, "--dry-run", "lint", "VENV=there"],
            cwd=PROJECT,
            env=os.environ | {"OS": system},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"there/{folder}/ruff check" in done.stdout
