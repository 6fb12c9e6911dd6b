"""Events of a listener in the store: recorded as they were decided and as they were reported."""

import json
from pathlib import Path
from typing import Any

import pytest

from driftscore import Classifier
from driftscore.decisions import DecisionStore, Replayer, open_store
from driftscore.events.watchlist import WatchList
from driftscore.live.listener import Listener, ListenSettings
from tests.conftest import Run

from .scenes import LABELS, Kept, ScriptedSource, scene

SOUNDS = [(12.0, "siren"), (24.0, "alarm_clock"), (36.0, "speech"), (43.0, "siren")]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, classifier: Classifier) -> Path:
    file = tmp_path_factory.mktemp("audit") / "decisions.db"
    store = DecisionStore(file, keep_audio=True)
    settings = ListenSettings(audit=store, privacy=True)
    source = ScriptedSource(scene(46, SOUNDS).samples, endless=False)
    kept = Kept()
    watch = WatchList.of(LABELS)
    with Listener(classifier, watch, {"yard": source}, [kept, store], settings) as listener:
        assert listener.wait(120)
    with open_store(file) as again:  # the same file has the events and the decisions
        assert [event.id for event in again.after(0, 99)] == [event.id for event in kept.reported]
    lines = recorded(file)
    assert [line["outcome"]["id"] for line in lines] == [str(event.id) for event in kept.events]
    assert [line["outcome"]["rejected"] for line in lines] == [e.rejected for e in kept.events]
    assert len(kept.reported) >= 3
    return file


def recorded(path: Path) -> list[dict[str, Any]]:
    with open_store(path) as store:
        return [json.loads(one.line) for one in store.decisions()]


def test_a_decision_has_the_fields_of_the_contract(path: Path) -> None:
    for line in recorded(path):
        assert list(line["outcome"]) == [
            "decided", "reported", "rejected", "id", "start", "end", "clip", "withheld"
        ]  # fmt: skip
        assert list(line["evidence"]) == [
            "label", "multiple", "min_duration_s", "negatives", "settings", "hop_s"
        ]  # fmt: skip
        assert line["source"] == "yard"


def test_the_sound_before_an_event_is_part_of_its_decision(path: Path) -> None:
    with open_store(path) as store:
        replayer = Replayer(store)
        for decision in store.decisions():
            assert decision.intact
            assert replayer.replay(decision).same is None


def test_the_command_shows_and_replays(path: Path, run: Run) -> None:
    status, out, _ = run("audit", "show", path, "--label", "siren")
    assert status == 0
    assert "\tsiren " in out
    assert "calibration" in out
    status, out, err = run("audit", "replay", path)
    assert status == 0
    assert "DIFFERENT" not in out
    assert "0 the same, 0 different" in err


def test_audio_with_speech_is_not_kept_in_the_store(path: Path) -> None:
    copies = [
        line["recording"]["audio"]
        for line in recorded(path)
        if line["outcome"]["decided"]["start_s"] > 38  # the pre-roll holds the speech
    ]
    assert copies
    assert not any(copies)
