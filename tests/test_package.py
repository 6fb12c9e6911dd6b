"""The built package: what is in it, and that it works in a new environment on each Python at hand.

The sdist is built from the project, the wheel from the sdist. Environments are made by uv and get
the dependencies from the package index; without one, those tests are skipped and say so.
"""

import email.message
import email.parser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from driftscore.version import __version__

from .conftest import PROJECT

pytestmark = pytest.mark.slow

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
MOST_MB = 260
"""The size that an installation without extras may have, in units of 1,000,000 bytes."""
LABELS = ["--labels", "dog bark, siren, rain, church bells, clock", "--format", "csv"]
NO_INDEX = re.compile(r"Failed to fetch|dns error|client error \(Connect\)|Network connectivity")
QUICK = ["tests/test_head.py", "tests/test_registry.py"]
"""Tests that are run in an unpacked sdist: quick ones that need no shared material."""
USER = '''
"""A program of a user, as a type checker sees it."""

import driftscore
from driftscore import Audio, Classifier, Event, Head, WatchList

classifier = Classifier(["dog bark", "siren"], rule="das", settings={"beta": 0.1})
head: Head = Head.load("head.safetensors")
name: str = str(classifier.predict([Audio(samples=head.weights[0], rate=16_000)])[0])
events: list[Event] = list(classifier.events("night.flac"))
starts: list[float] = [event.start_s for event in events]
watched: WatchList = WatchList.load("city.toml")
try:
    driftscore.load_backbone("mini").embed_text(["the sound of rain"]).shape
except driftscore.DriftscoreError as error:
    status: int = error.exit_status
'''


def run_program(
    command: Sequence[object], *, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program outside of the project, without the modules of this test run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=kept | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def tracked() -> set[str]:
    """Return the files of the repository; without git, those of an unpacked sdist."""
    listed = run_program(["git", "ls-files", "-z"], cwd=PROJECT) if shutil.which("git") else None
    if listed and listed.returncode == 0 and (PROJECT / ".git").exists():
        return {name for name in listed.stdout.split("\0") if name and (PROJECT / name).is_file()}
    found = (path for path in PROJECT.rglob("*") if path.is_file() and path.suffix != ".pyc")
    names = (path.relative_to(PROJECT).as_posix() for path in found)
    return {name for name in names if not re.match(r"\.venv|\.\w+_cache|PKG-INFO|dist/", name)}


class Built:
    """A built sdist and the wheel that was built from it."""

    def __init__(self, folder: Path) -> None:
        [self.wheel], [self.sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")

    def in_wheel(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())

    def metadata(self) -> email.message.Message:
        with zipfile.ZipFile(self.wheel) as archive:
            [name] = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
            return email.parser.BytesParser().parsebytes(archive.read(name))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the sdist, and the wheel from it, with what is installed: no network is needed."""
    for needed in ("build", "hatchling"):
        if find_spec(needed) is None:
            pytest.skip(f"{needed.upper()} IS NOT INSTALLED: make setup")
    folder = tmp_path_factory.mktemp("dist")
    done = run_program(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, PROJECT], cwd=folder
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Built(folder)


@pytest.fixture(scope="session")
def unpacked(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built.sdist) as archive:
        archive.extractall(folder, filter="data")
    [home] = folder.iterdir()
    return home


def interpreter(version: str) -> str:
    """Return a Python of a version: this one, on the path, of pyenv or in DRIFTSCORE_PYTHONS."""
    if version == HERE:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    given = os.environ.get("DRIFTSCORE_PYTHONS", "").split(os.pathsep)
    found = [*given, shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python")]
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, found):
        if run_program([candidate, "-c", ask]).stdout.strip() == version:
            return str(candidate)
    pytest.skip(f"PYTHON {version} IS NOT HERE: put it on the path or into DRIFTSCORE_PYTHONS")


def install(wheel: Path, home: Path, version: str, *options: str) -> Path:
    """Make an environment with the wheel and its dependencies, and return its programs' folder."""
    if find_spec("uv") is None:
        pytest.skip("UV IS NOT INSTALLED: make setup")
    uv = [sys.executable, "-m", "uv", "--no-config"]
    python = interpreter(version)
    done = run_program([*uv, "venv", "--no-python-downloads", "--python", python, home])
    assert done.returncode == 0, done.stderr
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    done = run_program([*uv, "pip", "install", *options, "--python", programs / "python", wheel])
    if NO_INDEX.search(done.stderr):
        pytest.skip(f"NO PACKAGE INDEX CAN BE REACHED: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return programs


@pytest.fixture(scope="session")
def programs(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs of a new environment with the wheel, on this Python."""
    home = tmp_path_factory.mktemp("venv") / "env"
    return install(built.wheel, home, HERE, "--compile-bytecode")


@pytest.fixture(scope="session")
def expected(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the rows that the wheel gives on this Python."""
    return classified(programs, tmp_path_factory.mktemp("here") / "cache")


def classified(programs: Path, cache: Path) -> str:
    """Return the rows of the demo's sounds, as the installed command writes them."""
    command = [programs / "driftscore", "classify", PROJECT / "demo" / "sounds", *LABELS]
    done = run_program(command, cwd=cache.parent, DRIFTSCORE_CACHE=str(cache))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    expected = {name.removeprefix("src/") for name in tracked() if name.startswith("src/")}
    about = {name for name in built.in_wheel() if name.split("/")[0].endswith(".dist-info")}
    assert built.in_wheel() - about == expected
    for needed in ("py.typed", "text/presets.toml", "text/packs/das52.toml",
                   "models/mini/audio.onnx", "service/static/index.html",
                   "lab/runs/grids/panel.toml"):  # fmt: skip
        assert f"driftscore/{needed}" in built.in_wheel()
    assert {name.split("/", 1)[1] for name in about} == {
        "METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"
    }  # fmt: skip


def test_the_sdist_holds_every_file_of_the_repository(built: Built, unpacked: Path) -> None:
    files = {p.relative_to(unpacked).as_posix() for p in unpacked.rglob("*") if p.is_file()}
    missing = tracked() - files
    assert not missing, f"add them to the sdist's include in pyproject.toml: {sorted(missing)}"
    assert files - tracked() == {"PKG-INFO"}


def test_the_metadata_names_the_versions_the_licence_and_the_extras(built: Built) -> None:
    about = built.metadata()
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (about["Name"], about["Version"]) == ("driftscore", __version__)
    assert about["Requires-Python"] == ">=3.11"
    assert about["License-Expression"] == "Apache-2.0"
    assert set(about.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])
    classifiers = about.get_all("Classifier", [])
    assert [c.split()[-1] for c in classifiers if "Python :: 3." in c] == list(PYTHONS)
    required = [r for r in about.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert not [r for r in required if re.match(r"torch|transformers|matplotlib|scipy", r)]


def test_tests_run_in_an_unpacked_sdist(unpacked: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *QUICK]
    done = run_program(
        command,
        cwd=unpacked,
        PYTHONPATH=str(unpacked / "src"),
        PYTHONDONTWRITEBYTECODE="1",
        DRIFTSCORE_SHARED=str(tmp_path / "absent"),
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d\d+ passed", done.stdout, re.MULTILINE), done.stdout
    where = "import driftscore; print(driftscore.__file__)"
    done = run_program([sys.executable, "-c", where], PYTHONPATH=str(unpacked / "src"))
    assert Path(done.stdout.strip()).is_relative_to(unpacked)


def test_the_installed_command_and_the_module_work(programs: Path, tmp_path: Path) -> None:
    for command in (["driftscore"], ["python", "-m", "driftscore"]):
        done = run_program([programs / command[0], *command[1:], "--version"], cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, f"driftscore {__version__}\n"), done.stderr
    where = run_program(
        [programs / "python", "-c", "import driftscore; print(driftscore.__file__)"], cwd=tmp_path
    )
    assert Path(where.stdout.strip()).is_relative_to(programs.parent)


@pytest.mark.parametrize("version", [python for python in PYTHONS if python != HERE])
def test_every_python_at_hand_gives_the_same_scores(
    built: Built, expected: str, tmp_path: Path, version: str
) -> None:
    assert len(expected.splitlines()) == 1 + len(list((PROJECT / "demo" / "sounds").iterdir()))
    programs = install(built.wheel, tmp_path / "env", version)
    assert classified(programs, tmp_path / "cache") == expected


def test_an_installation_without_extras_is_small(programs: Path) -> None:
    """Files are counted in blocks of 4,096 bytes, bytecode among them, as pip writes it."""
    [packages] = programs.parent.glob("**/site-packages")
    sizes: dict[str, int] = {}
    for path in packages.rglob("*"):
        if path.is_file():
            name = path.relative_to(packages).parts[0]
            sizes[name] = sizes.get(name, 0) + -(-path.stat().st_size // 4096) * 4096
    total = sum(sizes.values()) / 1e6
    largest = sorted(((size / 1e6, name) for name, size in sizes.items()), reverse=True)[:5]
    text = ", ".join(f"{name} {size:.0f}" for size, name in largest)
    print(f"An installation without extras takes {total:.0f} MB: {text}")
    assert "torch" not in sizes
    assert total < MOST_MB, f"{total:.0f} MB: {text}"


def test_types_reach_the_programs_of_users(programs: Path, tmp_path: Path) -> None:
    if find_spec("mypy") is None:
        pytest.skip("MYPY IS NOT INSTALLED: make setup")
    program = tmp_path / "user.py"
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "types",
               "--python-executable", programs / "python", program]  # fmt: skip
    program.write_text(USER, encoding="utf-8")
    done = run_program(command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    program.write_text(f"{USER}wrong: int = classifier.predict(['a.wav'])\n", encoding="utf-8")
    assert "Incompatible types in assignment" in run_program(command, cwd=tmp_path).stdout


def test_uvx_runs_the_command_without_installing_it(built: Built, programs: Path) -> None:
    command = [sys.executable, "-m", "uv", "--no-config", "tool", "run", "--python",
               sys.executable, "--from", built.wheel, "driftscore", "--version"]  # fmt: skip
    done = run_program(command)
    assert (done.returncode, done.stdout) == (0, f"driftscore {__version__}\n"), done.stderr
