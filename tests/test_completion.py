"""Shell completion: scripts that are printed, and the words that they ask the command for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Run

ASK = "import driftscore.cli.app as a, sys; sys.argv[0] = 'driftscore'; a.main()"


def words(line: str, home: Path) -> list[str]:
    """Return what completes the last word of a line, as the script of bash asks for it."""
    given = line.split(" ")
    asked = {"_DRIFTSCORE_COMPLETE": "complete_bash", "HOME": str(home),
             "COMP_WORDS": "\n".join(given), "COMP_CWORD": str(len(given) - 1)}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_a_script_is_printed_and_nothing_is_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    status, out, err = run("completion", shell)
    assert (status, err) == (0, "")
    assert "_DRIFTSCORE_COMPLETE" in out
    assert not list((tmp_path / "home").iterdir())


def test_an_unknown_shell_is_wrong_usage(run: Run) -> None:
    status, out, err = run("completion", "tcsh")
    assert (status, out) == (2, "")
    assert "bash" in err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("driftscore cl", ["classify"]),
        ("driftscore lab run --sto", ["--store"]),
        ("driftscore listen --pc", ["--pcm"]),
        ("driftscore cache cl", ["clear"]),
        ("driftscore completion z", ["zsh"]),
    ],
)
def test_commands_options_and_groups_are_completed(
    tmp_path: Path, line: str, expected: list[str]
) -> None:
    assert words(line, tmp_path) == expected
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    program = Path(sys.executable).with_name("driftscore")
    if bash is None or os.name == "nt" or not program.is_file():
        pytest.skip("BASH OR THE INSTALLED COMMAND IS NOT HERE")
    script = (
        "source <(driftscore completion bash); COMP_WORDS=(driftscore lab ru); COMP_CWORD=2; "
        '_driftscore_completion driftscore; echo "${COMPREPLY[@]}"'
    )
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [bash, "--norc", "-c", script], env=os.environ | {"PATH": path, "HOME": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["run"]
