"""The demo: sounds that another tagger recognises, and what `make demo` prints."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from driftscore import Classifier

from .conftest import PROJECT, Run

SOUNDS = sorted((PROJECT / "demo" / "sounds").glob("*.flac"))
NAMES = {
    "siren", "church_bell", "alarm_clock", "ticking_clock", "rain", "thunder", "helicopter",
    "engine", "knocking", "footsteps", "crickets", "birds", "speech",
}  # fmt: skip


def test_the_computed_sounds_are_small_and_most_get_their_label() -> None:
    assert {path.stem for path in SOUNDS} == NAMES
    assert sum(path.stat().st_size for path in SOUNDS) < 2_500_000
    labels = [path.stem.replace("_", " ") for path in SOUNDS]
    answers = Classifier([*labels, "dog bark"]).predict(SOUNDS)
    right = {label for label, answer in zip(labels, answers, strict=True) if label == answer}
    assert right >= {"alarm clock", "helicopter", "siren", "speech"}
    assert len(right) > len(labels) / 2


def test_another_tagger_takes_the_computed_sounds_for_what_they_are(
    shared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRIFTSCORE_MN04", str(shared / "models" / "mn04"))
    script = runpy.run_path(str(PROJECT / "demo" / "check_sounds.py"))
    assert set(script["ACCEPTED"]) == NAMES
    assert script["main"]() == 0
    assert "13 of 13 sounds are recognised" in capsys.readouterr().out
    script["ACCEPTED"]["speech"] = {396: "Siren"}  # a sound that is not what it should be
    assert script["main"]() == 1


def demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> str:
    """Run the demo in this process and return what it prints."""
    monkeypatch.setattr(sys, "argv", ["demo.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(PROJECT / "demo" / "demo.py"), run_name="__main__")
    assert not ended.value.code
    return capsys.readouterr().out


def test_the_demo_says_what_it_shows_draws_events_and_ends_with_commands_that_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], run: Run
) -> None:
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("COLUMNS", "120")
    lines = demo(monkeypatch, capsys).splitlines()
    assert lines[0].startswith("This demo labels short recordings by plain words")
    drawn = {line.split("  ")[1]: line for line in lines if re.search("[█·]{60}", line)}
    assert list(drawn) == ["siren", "church bell", "alarm clock", "speech", "dog bark", "rain"]
    siren = drawn["siren"].index("█") - drawn["siren"].index("·")
    assert 18 <= siren <= 24  # it begins at 21 of 60 s
    assert "█" not in drawn["dog bark"]
    assert (PROJECT / "demo" / "street.png").is_file()
    commands = [shlex.split(line) for line in lines[-3:]]
    for program, *words in commands[:2]:
        assert Path(program).name == "driftscore"
        status, out, _ = run(*words)
        assert status == 0
        assert "siren" in out
    assert commands[2][:2] == ["make", "demo"]


def test_the_demo_takes_a_folder_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.flac").write_bytes((PROJECT / "demo" / "sounds" / "siren.flac").read_bytes())
    out = demo(monkeypatch, capsys, str(tmp_path), "--labels", "siren, a cow mooing")
    row = next(line for line in out.splitlines() if "mine.flac" in line)
    assert "siren" in row
    assert "✓" not in out  # what is right is not known
