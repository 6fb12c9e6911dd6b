"""Shell completion: scripts that are printed, and the words that they ask the command for."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Run


@pytest.fixture
def words(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Return a function: what completes the last word of a line, as the script of bash asks."""

    def complete(line: str) -> list[str]:
        parts = line.split(" ")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("_DRIFTSCORE_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", "\n".join(parts))
        monkeypatch.setenv("COMP_CWORD", str(len(parts) - 1))
        status, out, err = run()
        assert (status, err) == (0, "")
        return [line.partition(",")[2] for line in out.splitlines()]

    return complete


def test_a_script_is_printed_and_nothing_is_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    for shell in ("bash", "zsh", "fish", "powershell"):
        status, out, err = run("completion", shell)
        assert (status, err) == (0, "")
        assert "_DRIFTSCORE_COMPLETE" in out
    assert not list((tmp_path / "home").iterdir())


def test_an_unknown_shell_is_wrong_usage(run: Run) -> None:
    status, out, err = run("completion", "tcsh")
    assert (status, out) == (2, "")
    assert "did you mean 'zsh'" in err


def test_commands_options_and_groups_are_completed(
    words: Callable[[str], list[str]], tmp_path: Path
) -> None:
    for line, expected in {
        "driftscore cl": "classify",
        "driftscore lab run --sto": "--store",
        "driftscore listen --pc": "--pcm",
        "driftscore cache cl": "clear",
        "driftscore completion z": "zsh",
        "driftscore classify --format aud": "audacity",
        "driftscore classify --rule cosi": "cosine",
        "driftscore classify --runtime to": "torch",
    }.items():
        assert words(line) == [expected], line
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_powershell_is_answered_with_one_word_per_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_DRIFTSCORE_COMPLETE", "powershell_complete")
    monkeypatch.setenv("COMP_WORDS", "driftscore lab r")
    monkeypatch.setenv("COMP_WORD", "r")
    assert run()[1].split() == ["rebuild", "report", "run"]


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
