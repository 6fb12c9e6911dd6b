"""The listener: events of streams and files, gaps, confirmation, clips, privacy, words, the end."""

import array
import fcntl
import json
import signal
import subprocess
import sys
import termios
import threading
import time
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from driftscore import Audio, Classifier, Detection, Event
from driftscore.audio import read
from driftscore.cli.listen import app
from driftscore.errors import UsageError
from driftscore.live.clips import ClipSettings, EventClips
from driftscore.live.confirming import Confirmation
from driftscore.live.listener import Listener, ListenSettings, changed_watch
from driftscore.live.sources import PlayedFile
from driftscore.live.speech import SpeechGuard
from driftscore.live.store import SqliteEvents
from driftscore.watchlist import WatchedLabel, WatchList
from tests.conftest import PROJECT

from .scenes import LABELS, RATE, Kept, ScriptedSource, eventually, scene, write

WATCH = WatchList.of(LABELS)
SOUNDS = [(12.0, "siren"), (24.0, "alarm_clock"), (36.0, "siren")]
COMMAND = [sys.executable, "-m", "driftscore", "listen"]


def plain(event: Event) -> tuple[str, float, float]:
    return event.label, round(event.end_s - event.start_s, 6), round(event.score, 9)


def listened(
    classifier: Classifier, *runs: Audio, watch: WatchList = WATCH, **settings: object
) -> Kept:
    kept = Kept()
    source = ScriptedSource(*[audio.samples for audio in runs], endless=False)
    chosen = ListenSettings(**settings)  # type: ignore[arg-type]
    with Listener(classifier, watch, {"yard": source}, [kept], chosen) as listener:
        assert listener.wait(120)
        assert not listener.failure
    return kept


def test_a_file_at_20_times_speed_gives_the_events_of_the_file(
    tmp_path: Path, classifier: Classifier
) -> None:
    path = write(tmp_path / "scene.wav", scene(60, [*SOUNDS, (50, "alarm_clock")]))
    kept = Kept()
    source = PlayedFile(path, speed=20)
    with Listener(classifier, WATCH, {"file": source}, [kept]) as listener:
        assert listener.wait(120)
    expected = list(classifier.events(path, WATCH))
    found = sorted(kept.reported, key=lambda r: (r.event.start_s, r.event.end_s, r.event.label))
    assert [record.event for record in found] == expected
    assert len(expected) >= 3
    begun = found[0].start - timedelta(seconds=found[0].event.start_s)
    for record in found:  # times of day follow the audio
        position = (record.start - begun).total_seconds()
        assert position == pytest.approx(record.event.start_s, abs=0.05)
        assert record.start.tzinfo is not None


def test_events_do_not_depend_on_the_blocks_of_the_source(classifier: Classifier) -> None:
    audio = scene(30, [(12.0, "siren")])
    found = []
    for block_s in (0.033, 0.7, 5.0):
        kept, source = Kept(), ScriptedSource(audio.samples, endless=False, block_s=block_s)
        with Listener(classifier, WATCH, {"yard": source}, [kept]) as listener:
            assert listener.wait(60)
        found.append([record.event for record in kept.events])
    assert found[0] == found[1] == found[2]
    assert any(not event.rejected for event in found[0])


def test_no_event_spans_a_gap(classifier: Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftscore.live.reader.FIRST_WAIT_S", 1.2)
    audio = scene(18, [(12.0, "siren"), (16.0, "siren")]).samples
    kept, source = Kept(), ScriptedSource(audio, audio)
    with Listener(classifier, WATCH, {"yard": source}, [kept]) as listener:
        eventually(lambda: source.opened == 3 and listener.views()[0].seconds >= 35.9, 60)
    sirens = [record for record in kept.reported if record.event.label == "siren"]
    assert [round(record.event.start_s) for record in sirens] == [12, 12]
    assert [status.online for status in kept.statuses][:3] == [True, False, True]
    assert kept.closed


def test_two_sources_are_searched_at_the_same_time(classifier: Classifier) -> None:
    kept = Kept()
    sources = {
        "yard": ScriptedSource(scene(25, [(12.0, "siren")]).samples, endless=False),
        "roof": ScriptedSource(scene(25, [(12.0, "alarm_clock")]).samples, endless=False),
    }
    with Listener(classifier, WATCH, sources, [kept]) as listener:
        assert listener.wait(60)
    assert {(r.source, r.event.label) for r in kept.reported} == {
        ("yard", "siren"), ("roof", "alarm clock")
    }  # fmt: skip
    assert len({r.id for r in kept.events}) == len(kept.events)


def test_an_event_is_reported_when_it_is_confirmed(classifier: Classifier) -> None:
    watch = WatchList((WatchedLabel("siren", confirm=2), WatchedLabel("alarm clock")))
    kept = listened(classifier, scene(60, [(12, "siren"), (30, "siren")]), watch=watch)
    sirens = [record.event for record in kept.events if record.event.label == "siren"]
    assert [event.rejected for event in sirens if "below" not in event.rejected] == [
        "unconfirmed: 1 of 2 within a minute", ""
    ]  # fmt: skip
    # The binary sensor is on for the second one only.
    assert sum("siren" in labels for labels in kept.present) == 1


def test_confirmation_counts_within_a_minute() -> None:
    counted = Confirmation(WatchList((WatchedLabel("a", confirm=3),)))
    assert counted.missing("a", 0)
    assert counted.missing("a", 50)
    assert counted.missing("a", 70)  # the first is too old
    assert not counted.missing("a", 100)


def test_levels_come_every_interval(classifier: Classifier) -> None:
    kept = listened(classifier, scene(25, []), spl_offset=94.0, level_s=10.0)
    assert [level.seconds for level in kept.levels] == pytest.approx([10, 10, 5], abs=0.2)
    assert all(level.unit == "dBA" for level in kept.levels)
    ends = [level.end for level in kept.levels]  # by the audio, although it comes much faster
    apart = [(later - end).total_seconds() for end, later in pairwise(ends)]
    assert apart == pytest.approx([10, 5], abs=0.5)
    assert 40 < kept.levels[0].laeq < 60  # white noise of -40 dBFS, 94 dB higher, A-weighted


def test_a_clip_holds_the_event_and_what_was_before(tmp_path: Path, classifier: Classifier) -> None:
    folder = EventClips(str(tmp_path / "clips"), ClipSettings(pre_roll_s=2))
    audio = scene(30, [(12, "siren")])
    kept = listened(classifier, audio, clips=folder)
    (record,) = [one for one in kept.reported if one.event.label == "siren"]
    samples, rate = soundfile.read(tmp_path / "clips" / record.clip, dtype="float32")
    assert rate == RATE
    first = round((record.event.start_s - 2) * RATE)
    expected = audio.samples[first : first + len(samples)]
    np.testing.assert_allclose(samples, expected, atol=1e-4)
    assert len(samples) / RATE == pytest.approx(record.duration_s + 3, abs=0.1)


def test_a_label_may_have_no_clips(tmp_path: Path, classifier: Classifier) -> None:
    watch = WatchList((WatchedLabel("siren", clips=False), WatchedLabel("alarm clock")))
    folder = EventClips(str(tmp_path / "clips"))
    kept = listened(classifier, scene(30, [(12, "siren")]), watch=watch, clips=folder)
    assert kept.reported
    assert all(record.withheld == "no clips of this label" for record in kept.reported)
    assert not list((tmp_path / "clips").rglob("*.flac"))


def test_with_privacy_speech_is_never_written_while_the_event_is_kept(
    tmp_path: Path, classifier: Classifier
) -> None:
    # Someone speaks in the pre-roll only: the event itself is a siren.
    audio = scene(34, [(9.0, "speech"), (14.5, "siren")])
    open_, closed = (EventClips(str(tmp_path / name)) for name in ("open", "closed"))
    without = listened(classifier, audio, clips=open_)
    kept = listened(classifier, audio, clips=closed, privacy=True)
    assert [record.event for record in kept.reported] == [r.event for r in without.reported]
    assert any(record.clip for record in without.reported)
    assert kept.reported
    assert all(record.clip == "" and "speech" in record.withheld for record in kept.reported)
    assert not [path for path in (tmp_path / "closed").rglob("*") if path.is_file()]


def test_speech_at_the_very_end_of_a_clip_is_found(classifier: Classifier) -> None:
    guard = SpeechGuard(classifier)
    clip = scene(7.25, [(6.3, "speech")])
    quiet = scene(7.25, [])
    assert guard.highest(clip) > guard.highest(quiet) + 1


def test_without_a_calibration_no_clip_is_written(classifier: Classifier) -> None:
    bare = Classifier(LABELS, backbone=classifier.backbone, calibration=False)
    assert "no calibration" in SpeechGuard(bare).speech(scene(3, []))


def test_words_change_while_it_runs(classifier: Classifier) -> None:
    kept, source = Kept(), ScriptedSource(scene(20, [(12, "siren")]).samples, endless=True)
    messages: list[str] = []
    with Listener(classifier, WATCH, {"yard": source}, [kept], notify=messages.append) as listener:
        eventually(lambda: listener.views()[0].seconds >= 19.9, 60)
        listener.change_words("yard", "siren, dog bark")
        eventually(lambda: len(kept.watched) == 2)
        listener.change_words("yard", "siren, siren")
        eventually(lambda: len(kept.watched) == 3)
    assert [names for _, names in kept.watched] == [
        LABELS, ("siren", "dog bark"), ("siren", "dog bark")
    ]  # fmt: skip
    assert any("cannot be used" in text for text in messages)
    assert [record.event.label for record in kept.reported] == ["siren"]  # ended by the change


def test_a_label_that_stays_keeps_its_settings() -> None:
    watch = WatchList((WatchedLabel("Siren", confirm=3), WatchedLabel("rain")), ("wind", "Fox"))
    changed = changed_watch(watch, "siren, fox")
    assert changed.labels == (WatchedLabel("Siren", confirm=3), WatchedLabel("fox"))
    assert changed.negatives == ("wind",)


def test_an_output_that_fails_does_not_stop_the_others(classifier: Classifier) -> None:
    class Broken(Kept):
        def event(self, record: object) -> None:
            raise OSError("disk full")

    kept, messages = Kept(), []  # type: tuple[Kept, list[str]]
    source = ScriptedSource(scene(25, [(12, "siren")]).samples, endless=False)
    with Listener(
        classifier, WATCH, {"yard": source}, [Broken(), kept], notify=messages.append
    ) as listener:
        assert listener.wait(60)
    assert kept.reported
    assert any("disk full" in text for text in messages)


def test_no_thread_is_left_behind(classifier: Classifier) -> None:
    before = threading.active_count()
    for _ in range(3):
        listened(classifier, scene(3, []))
    assert threading.active_count() == before


def test_sigterm_writes_the_last_event_and_ends_with_status_0(tmp_path: Path) -> None:
    audio = scene(14, [(11.0, "siren")])  # the siren is not over when the audio stops
    data = (audio.samples * 32767).astype("<i2").tobytes()
    child = subprocess.Popen(
        [*COMMAND, "yard=-", "--pcm", "s16le", "--rate", str(RATE), "-l", ", ".join(LABELS),
         "--store", str(tmp_path / "events.db")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin is not None
    child.stdin.write(data)
    child.stdin.flush()
    lines: list[str] = []
    reading = threading.Thread(target=lambda: lines.extend(_lines(child)))
    reading.start()
    eventually(lambda: _size_of_pipe(child) == 0, 60)  # all of it is read
    time.sleep(0.5)
    child.send_signal(signal.SIGTERM)
    reading.join(60)
    assert child.wait(60) == 0
    events = [json.loads(line) for line in lines if '"kind": "event"' in line]
    assert [event["label"] for event in events] == ["siren"]
    stored = SqliteEvents(tmp_path / "events.db").events()
    assert [event.label for event in stored] == ["siren"]


def _lines(child: "subprocess.Popen[bytes]") -> list[str]:
    assert child.stdout is not None
    return [line.decode() for line in child.stdout]


def _size_of_pipe(child: "subprocess.Popen[bytes]") -> int:
    """Return the bytes that the child has not read yet."""
    assert child.stdin is not None
    waiting = array.array("i", [0])
    fcntl.ioctl(child.stdin.fileno(), termios.FIONREAD, waiting)
    return int(waiting[0])


def test_settings_reach_the_detector(classifier: Classifier) -> None:
    strict = replace(Detection(), threshold=1000.0)
    assert not listened(classifier, scene(25, [(12, "siren")]), detection=strict).reported


def test_a_clip_without_speech_may_be_written(classifier: Classifier) -> None:
    bell = read(PROJECT / "demo" / "sounds" / "church_bell.flac", rate=RATE, seconds=5)
    assert SpeechGuard(classifier).speech(bell) == ""


@pytest.mark.parametrize(("arguments", "message"), [
    (["mic"], "No labels given"),
    (["mic", "-l", "a, b", "--watch", "w.toml"], "give --watch only"),
    (["mic", "-l", "a, b", "--audit-audio"], "give --audit DIR"),
    (["mic", "-l", "a, b", "--speed", "fast"], "--speed must be a number"),
    (["-", "-l", "a, b", "--pcm", "s24"], "No sample format called 's24'"),
    (["mic", "-l", "a, b", "--level-seconds", "0"], "--level-seconds must be from 1"),
    (["mic", "-l", "a, b", "--mqtt", "http://x"], "mqtt://host:1883"),
])  # fmt: skip
def test_wrong_usage_is_one_sentence(arguments: list[str], message: str) -> None:
    found = CliRunner().invoke(app, arguments)
    assert isinstance(found.exception, UsageError)
    assert message in str(found.exception)


def test_a_file_that_cannot_be_read_gives_status_1(tmp_path: Path) -> None:
    (tmp_path / "broken.wav").write_bytes(b"no sound at all")
    done = subprocess.run(
        [*COMMAND, str(tmp_path / "broken.wav"), "-l", "siren, alarm clock"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "broken.wav" in done.stderr
    assert "Traceback" not in done.stderr
