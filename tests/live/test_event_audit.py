"""Events in the audit log: recorded with their scores, decided again from them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from driftscore import Classifier
from driftscore.audit import AuditLog, Replayer, read_entries
from driftscore.cli.audit import app
from driftscore.live.listener import Listener, ListenSettings
from driftscore.watchlist import WatchList

from .scenes import LABELS, Kept, ScriptedSource, scene

SOUNDS = [(12.0, "siren"), (24.0, "alarm_clock"), (36.0, "speech"), (43.0, "siren")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, classifier: Classifier) -> Path:
    home = tmp_path_factory.mktemp("audit")
    log = AuditLog(home, keep_audio=True)
    settings = ListenSettings(audit=log, privacy=True)
    source = ScriptedSource(scene(46, SOUNDS).samples, endless=False)
    kept = Kept()
    watch = WatchList.of(LABELS)
    with Listener(classifier, watch, {"yard": source}, [kept], settings) as listener:
        assert listener.wait(120)
    log.close()
    assert len(list(read_entries(home))) == len(kept.events)
    assert len(kept.reported) >= 3
    return home


def test_every_event_is_decided_again_in_the_same_way(folder: Path) -> None:
    replayer = Replayer(folder)
    found = [replayer.replay(entry) for _, entry in read_entries(folder)]
    assert all(replay.same is True for replay in found), found


def test_the_command_shows_and_replays(folder: Path) -> None:
    shown = CliRunner().invoke(app, ["show", str(folder)])
    assert shown.exit_code == 0
    assert "\tsiren " in shown.stdout
    assert "calibration" in shown.stdout
    replayed = CliRunner().invoke(app, ["replay", str(folder)])
    assert replayed.exit_code == 0, replayed.output
    assert "DIFFERENT" not in replayed.stdout


def test_a_changed_score_gives_status_1_and_a_clear_line(folder: Path, tmp_path: Path) -> None:
    (file,) = folder.glob("*.jsonl")
    (tmp_path / "heads").symlink_to(folder / "heads")
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    evidence = next(e for e in lines if e["outcome"]["reported"])["evidence"]
    evidence["above"] = [[0.5 * value for value in row] for row in evidence["above"]]
    (tmp_path / file.name).write_text("".join(json.dumps(e) + "\n" for e in lines), "utf-8")
    done = CliRunner().invoke(app, ["replay", str(tmp_path)])
    assert done.exit_code == 1
    assert sum(line.startswith("DIFFERENT") for line in done.stdout.splitlines()) == 1


def test_audio_with_speech_is_not_kept_in_the_audit(folder: Path) -> None:
    for _, entry in read_entries(folder):
        outcome, recording = entry["outcome"], entry["recording"]
        assert isinstance(outcome, dict)
        assert isinstance(recording, dict)
        if outcome["decided"]["start_s"] > 38:  # the pre-roll holds the speech
            assert recording["audio"] is None
