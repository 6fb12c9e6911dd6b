"""`classify --audit`: labels and events are recorded, and decided again in the same way."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from driftscore import Backbone, Classifier, Detection, Embedder, Event, Head
from driftscore.audit import AuditLog, EventAudit, Replay, Replayer, ScoreTrace, read_entries
from driftscore.audit.entries import written
from driftscore.audit.trace import decided_again, event_fields
from driftscore.backbones.fake import Fake
from driftscore.events import Criteria
from driftscore.eventstream import Search, WindowSearch

from .conftest import Run, WriteWav, changing_noise
from .live.scenes import scene, write

SCENE = [(4.0, "siren"), (13.0, "alarm_clock")]
WORDS = "siren, alarm clock"
Entry = dict[str, Any]


def recorded(folder: Path) -> list[Entry]:
    return [entry for _, entry in read_entries(folder)]


def replayed(folder: Path, **options: Any) -> list[Replay]:
    replayer = Replayer(folder, **options)
    return [replayer.replay(entry) for entry in recorded(folder)]


def rewrite(folder: Path, change: Callable[[Entry], object]) -> None:
    """Change entries and their digests, as a forger would."""
    (file,) = folder.glob("*.jsonl")
    lines = []
    for entry in map(json.loads, file.read_text("utf-8").splitlines()):
        change(entry)
        del entry["sha256"]
        lines.append(written(entry))
    file.write_bytes(b"".join(lines))


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("night") / "night.wav", scene(22, SCENE))


@pytest.fixture
def noises(tmp_path: Path) -> str:
    audio = changing_noise(1, 2, 3, 4, 1, 2)
    soundfile.write(tmp_path / "noises.wav", audio.samples, audio.rate, subtype="FLOAT")
    return str(tmp_path / "noises.wav")


FAKE = ("-b", "fake", "-l", "dog bark, siren, rain")
EVENTS = (*FAKE, "--timeline", "--threshold", "0.02", "--window", "0.5", "--hop", "0.5")


@pytest.mark.parametrize("options", [(), ("--threshold", "0.05"), ("--multi",), ("--cache",)])
def test_labels_are_recorded_as_they_are_printed(
    tmp_path: Path, run: Run, wav: WriteWav, options: tuple[str, ...]
) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_bytes(b"no sound")
    files = [wav("a.wav", 2.0, 1), str(bad), wav("b.wav", 2.0, 2)]
    status, out, _ = run("classify", *files, *FAKE, *options, "--audit", tmp_path / "log",
                         "--format", "json")  # fmt: skip
    assert status == 1  # of the bad file, which has no decision
    entries, rows = recorded(tmp_path / "log"), json.loads(out)
    assert [entry["source"] for entry in entries] == [files[0], files[2]]
    for entry, row in zip(entries, (rows[0], rows[2]), strict=True):
        if "label" in row:
            assert entry["outcome"]["labels"] == [row["label"]]
        if "labels" in row:
            assert entry["outcome"]["labels"] == row["labels"]
            assert entry["evidence"]["threshold"] == 0.05
        if "scores" in row:
            scores = {name: round(s, 6) for name, s in entry["evidence"]["scores"].items()}
            assert scores == {name: row["scores"][name] for name in scores}
    assert all(found.same and found.from_audio for found in replayed(tmp_path / "log"))


def test_events_are_recorded_as_they_are_printed(tmp_path: Path, run: Run, noises: str) -> None:
    status, out, _ = run(
        "classify", noises, *EVENTS, "--audit", tmp_path / "log", "--format", "csv"
    )
    assert status == 0
    rows = [(row["label"], float(row["start_s"])) for row in csv.DictReader(io.StringIO(out))]
    entries = recorded(tmp_path / "log")
    decided = [entry["outcome"]["decided"] for entry in entries if entry["outcome"]["reported"]]
    assert [(one["label"], one["start_s"]) for one in decided] == rows
    assert len(rows) >= 3
    found = replayed(tmp_path / "log")
    assert [(one.same, one.from_audio) for one in found] == [(True, True)] * len(entries)
    Path(noises).unlink()
    found = replayed(tmp_path / "log")
    assert [(one.same, one.from_audio) for one in found] == [(True, False)] * len(entries)


def test_a_run_that_is_resumed_records_each_event_once(
    tmp_path: Path, run: Run, noises: str, wav: WriteWav
) -> None:
    command = ("classify", noises, wav("b.wav", 3.0, 9), *EVENTS, "--audit", tmp_path / "log")
    detector = Classifier(
        ("dog bark", "siren", "rain"), backbone=Embedder("fake", text_cache=False), threshold=0.02
    ).detector(settings=Detection(window_s=0.5, hop_s=0.5))
    with AuditLog(tmp_path / "log") as log:  # interrupted after the second event
        events = EventAudit(log, detector).events(noises)
        assert [next(events), next(events)]
    before = recorded(tmp_path / "log")
    assert len(before) == 2
    for _ in range(2):
        status, _, err = run(*command, "--resume")
        assert status == 0, err
    keys = [json.dumps(entry["outcome"]) + entry["source"] for entry in recorded(tmp_path / "log")]
    assert len(set(keys)) == len(keys) > 2
    assert recorded(tmp_path / "log")[:2] == before
    run(*command)  # another run, whose decisions are new ones
    assert len(recorded(tmp_path / "log")) == 2 * len(keys)


def test_whether_anything_fits_is_recorded_and_replayed(
    tmp_path: Path, run: Run, night: str, wav: WriteWav, mini: Backbone
) -> None:
    files = [night, wav("noise.wav", 3.0, 1)]
    status, out, _ = run("classify", *files, "-l", WORDS, "--or-none", "--format", "json",
                         "--audit", tmp_path / "log")  # fmt: skip
    assert status == 0
    labels = [row["label"] for row in json.loads(out)]
    assert labels == ["alarm clock", ""]
    entries = recorded(tmp_path / "log")
    assert [entry["outcome"]["labels"] for entry in entries] == [["alarm clock"], []]
    assert entries[0]["labels"][:2] == ["siren", "alarm clock"]
    assert "traffic" in entries[0]["evidence"]["scores"]
    assert all(found.same and found.from_audio for found in replayed(tmp_path / "log"))
    rewrite(
        tmp_path / "log", lambda entry: entry["evidence"]["scores"].update({"alarm clock": 0.1})
    )
    found = replayed(tmp_path / "log")
    assert found[0].same is False
    assert "do not give the recorded labels" in found[0].note


@pytest.mark.parametrize("source", ["calibration", "recording"])
def test_events_of_the_default_model_are_decided_again_from_the_audio(
    tmp_path: Path, run: Run, night: str, source: str, mini: Backbone
) -> None:
    copy = tmp_path / "night.wav"
    copy.write_bytes(Path(night).read_bytes())
    status, _, err = run("classify", copy, "-l", WORDS, "--timeline", "--thresholds-from", source,
                         "--audit", tmp_path / "log", "--audit-audio")  # fmt: skip
    assert status == 0, err
    copy.unlink()
    found = replayed(tmp_path / "log")
    assert len(found) >= 2
    assert all(one.same and one.from_audio for one in found), found


TAMPERED: dict[str, tuple[Callable[[Entry], object], str]] = {
    "multiple": (lambda e: e["evidence"].update(multiple=2 * e["evidence"]["multiple"]),
                 "the scores of its windows give"),
    "threshold": (lambda e: e["outcome"]["decided"].update(threshold=0.001),
                  "the scores of its windows give"),
    "scores": (lambda e: e["evidence"].update(above=[[2 * v for v in row]
                                                     for row in e["evidence"]["above"]]),
               "the scores of its windows give"),
    "label": (lambda e: e["outcome"]["decided"].update(label="fog"),
              "the scores of its windows give"),
    "model": (lambda e: e.update(fingerprint="fake/of/another/day"),
              "its fingerprint is fake/64/16000/2.0/0, not fake/of/another/day"),
    "both": (lambda e: (e["evidence"].update(multiple=0.01, windows=None, above=None, spreads=None),
                        e["outcome"]["decided"].update(score=9.0)), "the audio gives"),
}  # fmt: skip


@pytest.mark.parametrize("what", TAMPERED)
def test_a_changed_event_is_found_even_with_a_new_digest(
    tmp_path: Path, run: Run, noises: str, what: str
) -> None:
    run("classify", noises, *EVENTS, "--audit", tmp_path / "log")
    change, words = TAMPERED[what]
    rewrite(tmp_path / "log", lambda e: change(e) if e["outcome"]["reported"] else None)
    status, out, err = run("audit", "replay", tmp_path / "log")
    assert status == 1
    reported = sum(entry["outcome"]["reported"] for entry in recorded(tmp_path / "log"))
    changed = [line for line in out.splitlines() if line.startswith("DIFFERENT")]
    assert len(changed) == reported
    assert all(words in line for line in changed)
    assert f"{reported} different" in err


def test_a_line_that_was_edited_is_found_by_its_digest(
    tmp_path: Path, run: Run, wav: WriteWav
) -> None:
    path = wav("a.wav", 2.0, 1)
    run("classify", path, *FAKE, "--threshold", "-1", "--audit", tmp_path / "log")
    Path(path).unlink()
    (file,) = (tmp_path / "log").glob("*.jsonl")
    file.write_text(file.read_text("utf-8").replace('"threshold": -1.0', '"threshold": -0.9'))
    status, out, _ = run("audit", "replay", tmp_path / "log")
    assert status == 1
    assert "its line was changed after it was written" in out


def test_another_model_of_the_same_name_is_found(tmp_path: Path, noises: str) -> None:
    def embedder(seed: int) -> Embedder:
        return Embedder(Fake(seed=seed), text_cache=False)

    classifier = Classifier(("siren", "rain"), backbone=embedder(1), threshold=0.02)
    detector = classifier.detector(settings=Detection(window_s=0.5, hop_s=0.5))
    with AuditLog(tmp_path / "log") as log:
        assert len(list(EventAudit(log, detector).events(noises))) > 1
    assert all(one.same for one in replayed(tmp_path / "log", backbone=embedder(1)))
    for other in (replayed(tmp_path / "log"), replayed(tmp_path / "log", backbone=embedder(2))):
        assert all(one.same is False and "another one now" in one.note for one in other)


def test_decisions_are_shown_by_label_and_time(tmp_path: Path, run: Run, noises: str) -> None:
    log = tmp_path / "log"
    run("classify", noises, *EVENTS, "--audit", log)
    run("classify", noises, *FAKE, "--audit", log)
    entries = recorded(log)
    status, out, _ = run("audit", "show", log)
    lines = [line.split("\t") for line in out.splitlines()]
    assert (status, len(lines)) == (0, len(entries))
    first, last = entries[0]["outcome"]["decided"], entries[-1]
    assert lines[0][4].startswith(
        f"{first['label']} {first['start_s']:.1f} s to {first['end_s']:.1f} s score "
        f"{first['score']:.2f} of 0.02"
    )
    (label,) = last["outcome"]["labels"]
    assert lines[-1][2:5] == ["label", noises, f"{label} {last['evidence']['scores'][label]:.2f}"]
    assert lines[-1][5:7] == ["rule das", "fake fake/64/1600"]
    chosen = [e for e in entries if e["kind"] == "event" and e["evidence"]["label"] == "rain"]
    chosen += [last] if label == "rain" else []
    _, out, _ = run("audit", "show", log, "--label", "rain", "--json")
    assert [json.loads(line) for line in out.splitlines()] == chosen
    assert chosen
    _, out, _ = run("audit", "show", log, "--since", last["time"], "--json")
    assert json.loads(out) == last
    _, out, _ = run("audit", "show", log, "--until", last["time"], "--json")
    assert [json.loads(line) for line in out.splitlines()] == entries[:-1]
    assert run("audit", "show", log, "--until", "2020-01-01")[1] == ""
    status, _, err = run("audit", "show", log, "--since", "yesterday")
    assert status == 2
    assert "--since must be a time" in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--audit-audio",), "give --audit DIR"),
        (("--audit", "log", "--compare", "cosine"), "decide nothing"),
        (("--audit", "log", "--windows"), "decide nothing"),
        (("--audit", "s3://bucket/log"), "folder of this machine"),
    ],
)
def test_what_has_no_audit_is_refused_before_any_work(
    tmp_path: Path, run: Run, wav: WriteWav, monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...], words: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    status, out, err = run("classify", wav("a.wav", 1.0, 1), *FAKE, *options)
    assert (status, out) == (2, "")
    assert words in err
    assert not (tmp_path / "log").exists()


def test_audio_behind_a_url_is_not_copied(tmp_path: Path, run: Run) -> None:
    status, _, err = run("classify", "s3://bucket/a.wav", *FAKE, "--audit", tmp_path / "log",
                         "--audit-audio")  # fmt: skip
    assert status == 2
    assert "s3://bucket/a.wav is none" in err


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_every_event_follows_from_the_scores_that_were_kept(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 10_000))
    batch = data.draw(st.sampled_from([1, 7, 80]))
    rng = np.random.default_rng(seed)
    labels, negatives = ("a", "b"), ("n",)
    head = Head((*labels, *negatives), np.eye(3, dtype=np.float32), np.zeros(3, np.float32))
    criteria = Criteria(labels, np.array([2.0, 3.0]), np.array([0.0, 1.5]), negatives)
    prior = np.zeros(3) if data.draw(st.booleans()) else None
    spreads = np.array([1.0, 0.5, 2.0]) if prior is not None else None
    search = Search(head, criteria, Detection(), 3.0, 0.5, prior, spreads)
    windows, trace = WindowSearch(search), ScoreTrace()
    trace.begin(search)
    windows.follower = trace
    steps = rng.standard_normal((200, 3)) * rng.choice([0.3, 2.0], (200, 1))
    scores = np.abs(steps).cumsum(axis=0) % 7 * (rng.random((200, 1)) < 0.6)
    waiting: list[Event] = []
    count = 0
    for number, row in enumerate(scores):
        waiting += windows.feed(number / 2, number / 2 + 3, row)
        if number % batch == 0:
            trace.decided(waiting, None)
            count += _check(trace, waiting)
            waiting = []
    waiting += windows.finish(102.5)
    trace.decided(waiting, 102.5)
    assert count + _check(trace, waiting) > 0 or prior is None


def _check(trace: ScoreTrace, events: list[Event]) -> int:
    """Check that each event is decided again, by the last of the windows that are kept."""
    for event in events:
        evidence = trace.take(event)
        again = [(n, one) for n, one in decided_again(evidence) if one.label == event.label]
        assert event_fields(event) in [event_fields(one) for _, one in again]
        assert evidence["windows"] is not None
        ended = len(evidence["windows"]) + (evidence["finished_s"] is not None)
        assert next(n for n, one in again if event_fields(one) == event_fields(event)) == ended
    return len(events)
