"""`classify --audit`: labels and events are recorded, and decided again in the same way."""

import csv
import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import soundfile

from driftscore import Backbone, Classifier, Detection, Embedder
from driftscore.backbones.fake import Fake
from driftscore.decisions import DecisionStore, audited_events
from driftscore.decisions.records import json_line

from .conftest import Run, WriteWav, changing_noise
from .live.scenes import scene, write
from .test_decisions import lines as recorded
from .test_decisions import replayed

SCENE = [(4.0, "siren"), (13.0, "alarm_clock")]
WORDS = "siren, alarm clock"
Entry = dict[str, Any]


def rewrite(path: Path, change: Callable[[Entry], object]) -> None:
    """Change lines and their digests, as a forger would."""
    with closing(sqlite3.connect(path)) as db, db:
        for id, line in db.execute("SELECT id, line FROM decisions").fetchall():
            entry = json.loads(line)
            change(entry)
            del entry["sha256"]
            db.execute("UPDATE decisions SET line = ? WHERE id = ?", (json_line(entry), id))


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("night") / "night.wav", scene(22, SCENE))


@pytest.fixture
def noises(tmp_path: Path) -> str:
    audio = changing_noise(1, 2, 3, 4, 1, 2)
    soundfile.write(tmp_path / "noises.wav", audio.samples, audio.rate, subtype="FLOAT")
    return str(tmp_path / "noises.wav")


FAKE = ("-b", "fake", "-l", "dog bark, siren, rain")
EVENTS = (*FAKE, "--threshold", "0.02", "--window", "0.5", "--hop", "0.5")


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
    assert all(replay.same for replay in replayed(tmp_path / "log"))


def test_events_are_recorded_as_they_are_printed(tmp_path: Path, run: Run, noises: str) -> None:
    status, out, _ = run("detect", noises, *EVENTS, "--audit", tmp_path / "log", "--format", "csv")
    assert status == 0
    rows = [(row["label"], float(row["start_s"])) for row in csv.DictReader(io.StringIO(out))]
    entries = recorded(tmp_path / "log")
    decided = [entry["outcome"]["decided"] for entry in entries if entry["outcome"]["reported"]]
    assert [(one["label"], one["start_s"]) for one in decided] == rows
    assert len(rows) >= 3
    assert [one.same for one in replayed(tmp_path / "log")] == [True] * len(entries)
    Path(noises).unlink()
    assert [one.same for one in replayed(tmp_path / "log")] == [None] * len(entries)


def test_a_run_that_is_resumed_records_each_event_once(
    tmp_path: Path, run: Run, noises: str, wav: WriteWav
) -> None:
    command = ("detect", noises, wav("b.wav", 3.0, 9), *EVENTS, "--audit", tmp_path / "log")
    detector = Classifier(
        ("dog bark", "siren", "rain"), backbone=Embedder("fake", text_cache=False)
    ).detector(settings=Detection(threshold=0.02, window_s=0.5, hop_s=0.5))
    with DecisionStore(tmp_path / "log") as store:  # interrupted after the second event
        events = audited_events(store, detector, noises)
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
    assert all(replay.same for replay in replayed(tmp_path / "log"))
    rewrite(
        tmp_path / "log", lambda entry: entry["evidence"]["scores"].update({"alarm clock": 0.1})
    )
    assert [one.same for one in replayed(tmp_path / "log")] == [False, False]


@pytest.mark.parametrize("source", ["calibration", "recording"])
def test_events_of_the_default_model_are_decided_again_from_the_audio(
    tmp_path: Path, run: Run, night: str, source: str, mini: Backbone
) -> None:
    copy = tmp_path / "night.wav"
    copy.write_bytes(Path(night).read_bytes())
    status, _, err = run("detect", copy, "-l", WORDS, "--set", f"thresholds_from={source}",
                         "--audit", tmp_path / "log", "--audit-audio")  # fmt: skip
    assert status == 0, err
    copy.unlink()
    found = replayed(tmp_path / "log")
    assert len(found) >= 2
    assert all(one.same for one in found), found


TAMPERED: dict[str, tuple[Callable[[Entry], object], str]] = {
    "threshold": (lambda e: e["outcome"]["decided"].update(threshold=0.001), "the audio gives"),
    "label": (lambda e: e["outcome"]["decided"].update(label="fog"), "no event of this label"),
    "model": (lambda e: e.update(fingerprint="fake/of/another/day"),
              "its fingerprint is fake/64/16000/2.0/0, not fake/of/another/day"),
}  # fmt: skip


def test_a_changed_event_is_found_even_with_a_new_digest(
    tmp_path: Path, run: Run, noises: str
) -> None:
    run("detect", noises, *EVENTS, "--audit", tmp_path / "log")
    written = (tmp_path / "log").read_bytes()
    reported = sum(entry["outcome"]["reported"] for entry in recorded(tmp_path / "log"))
    for what, (change, words) in TAMPERED.items():
        (tmp_path / what).write_bytes(written)
        rewrite(tmp_path / what, lambda e: change(e) if e["outcome"]["reported"] else None)  # noqa: B023
        status, out, err = run("audit", "replay", tmp_path / what)
        assert status == 1
        changed = [line for line in out.splitlines() if line.startswith("DIFFERENT")]
        assert len(changed) == reported
        assert all(words in line for line in changed)
        assert f"{reported} different" in err


def test_another_model_of_the_same_name_is_found(tmp_path: Path, noises: str) -> None:
    def embedder(seed: int) -> Embedder:
        return Embedder(Fake(seed=seed), text_cache=False)

    classifier = Classifier(("siren", "rain"), backbone=embedder(1))
    detector = classifier.detector(settings=Detection(threshold=0.02, window_s=0.5, hop_s=0.5))
    with DecisionStore(tmp_path / "log") as store:
        assert len(list(audited_events(store, detector, noises))) > 1
    assert all(one.same for one in replayed(tmp_path / "log", backbone=embedder(1)))
    for other in (replayed(tmp_path / "log"), replayed(tmp_path / "log", backbone=embedder(2))):
        assert all(one.same is False and "has changed" in one.note for one in other)


def test_decisions_are_shown_by_label_and_time(tmp_path: Path, run: Run, noises: str) -> None:
    log = tmp_path / "log"
    run("detect", noises, *EVENTS, "--audit", log)
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
    day = last["time"][:10]
    assert len(run("audit", "show", log, "--day", day)[1].splitlines()) == len(entries)
    assert run("audit", "show", log, "--day", "2020-01-01")[1] == ""
    status, _, err = run("audit", "show", log, "--since", "yesterday")
    assert status == 2
    assert "--since must be a time" in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--audit-audio",), "give --audit FILE"),
        (("--audit", "log", "--compare", "cosine"), "decides nothing"),
        (("--audit", "s3://bucket/log"), "file of this machine"),
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
    assert "s3://bucket/a.wav is not one" in err


def test_a_file_that_is_no_store_is_refused_before_any_work(
    tmp_path: Path, run: Run, wav: WriteWav
) -> None:
    (tmp_path / "file").write_text("mine")
    file = wav("a.wav", 1.0, 1)
    for path in (tmp_path / "file", tmp_path):
        status, out, err = run("classify", file, "-l", "a, b", "-b", "absent", "--audit", path)
        assert status in (1, 2)
        assert out == ""
        assert "not a store of decisions" in err or "is a folder" in err
        assert len(err.splitlines()) == 1
    for command in ("show", "replay"):
        assert run("audit", command, tmp_path / "file")[0] == 2
        status, _, err = run("audit", command, tmp_path / "absent")
        assert (status, err) == (1, f"error: There is no store of decisions at {tmp_path}/absent\n")
    assert (tmp_path / "file").read_text() == "mine"
