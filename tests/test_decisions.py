"""The store of decisions: what is recorded, decided again, deleted, and found to be damaged."""

import json
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftscore import Audio, Backbone, Classifier, Detection, Embedder, Result
from driftscore.audio.recordings import Recording
from driftscore.decisions import (
    Decider,
    Decision,
    DecisionStore,
    RecordedDecision,
    Replay,
    Replayer,
    audited_events,
    audited_results,
    label_decision,
    open_store,
)
from driftscore.decisions.records import json_line, packed
from driftscore.errors import AuditError, FormatError, StoreError, UsageError

from .conftest import LABELS, WriteWav, changing_noise, noise_clip

GOLDEN = Path(__file__).parent / "golden" / "decisions.jsonl"
EVIDENCE: dict[str, object] = {"scores": {"siren": 1.5}, "threshold": None, "fitting": False}
MOVING = ("time", "versions", "sha256", "fingerprint", "head_sha256", "search_sha256", "recording",
          "prompts_sha256", "source")  # fmt: skip
"""What of a line differs between machines, or is long."""


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return Classifier(LABELS, backbone=Embedder("fake", text_cache=False)).fit()


@pytest.fixture(scope="module")
def decider(classifier: Classifier) -> Decider:
    return Decider.of(classifier)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "decisions.db"


def decision(source: str = "a.wav", score: float = 1.5) -> Decision:
    return Decision(
        "label", source, {"labels": ["siren"]}, {**EVIDENCE, "scores": {"siren": score}}
    )


def recorded(
    path: Path, classifier: Classifier, recordings: list[Recording], *, keep_audio: bool = False
) -> list[Result]:
    with DecisionStore(path, keep_audio=keep_audio) as store:
        return list(audited_results(store, classifier, recordings))


def decisions(path: Path, **options: Any) -> list[RecordedDecision]:
    with open_store(path) as store:
        return list(store.decisions(**options))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(one.line) for one in decisions(path)]


def sources(path: Path) -> list[str]:
    return [one.source for one in decisions(path)]


def replayed(path: Path, **options: Any) -> list[Replay]:
    with open_store(path) as store:
        replayer = Replayer(store, **options)
        return [replayer.replay(one) for one in store.decisions()]


def rewrite(path: Path, change: dict[str, object], *, forged: bool = True) -> None:
    """Change the lines of a store; a forger computes their digests again."""
    with closing(sqlite3.connect(path)) as db, db:
        for id, line in db.execute("SELECT id, line FROM decisions").fetchall():
            fields = {**json.loads(line), **change}
            digest = fields.pop("sha256")
            text = json_line(fields) if forged else json.dumps({**fields, "sha256": digest})
            db.execute("UPDATE decisions SET line = ? WHERE id = ?", (text, id))


def test_a_decision_is_recorded_with_everything_it_followed_from(
    path: Path, classifier: Classifier, wav: WriteWav
) -> None:
    (result,) = recorded(path, classifier, [wav("a.wav", 3.0, 1)])
    (line,) = lines(path)
    assert result.scores is not None
    assert line["outcome"] == {"labels": [result.label]}
    assert line["evidence"]["scores"] == dict(zip(LABELS, result.scores.tolist(), strict=True))
    assert line["labels"] == list(LABELS)
    assert line["fingerprint"] == classifier.embedder_.backbone.fingerprint
    assert (line["rule"], line["calibration"]) == ("das", None)
    assert len(line["prompts_sha256"]) == 64
    assert {"driftscore", "python", "numpy", "onnxruntime"} <= line["versions"].keys()
    assert line["recording"]["audio"] is None
    assert not path.with_name("decisions.db.audio").exists()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_lines_of_json_have_the_fields_of_the_contract(
    path: Path, classifier: Classifier
) -> None:
    """Golden file: run with the environment variable `UPDATE_GOLDEN` to write it again."""
    detector = classifier.detector(settings=Detection(threshold=0.02, window_s=0.5, hop_s=0.5))
    with DecisionStore(path) as store:
        assert list(audited_results(store, classifier, [noise_clip(2.0)]))
        assert list(audited_events(store, detector, changing_noise(1, 2, 3, 4)))
    found = []
    for line in lines(path):
        for name in MOVING:
            line[name] = type(line[name]).__name__
        found.append(_rounded(line))
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text("".join(json.dumps(line) + "\n" for line in found))
    assert found == [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


def test_the_hash_of_the_prompts_changes_with_the_prompts(classifier: Classifier) -> None:
    other = Classifier(("rain", "siren"), backbone=classifier.backbone).fit()
    assert len({Decider.of(one).fields["prompts_sha256"] for one in (classifier, other)}) == 2


def test_the_same_inputs_give_the_same_decision(
    path: Path, classifier: Classifier, wav: WriteWav
) -> None:
    files = [wav(f"{n}.wav", 3.0, n) for n in range(3)]
    recorded(path, classifier, list(files))
    assert [one.same for one in replayed(path)] == [True] * 3
    Path(files[0]).unlink()
    Path(files[1]).write_bytes(b"something else")
    gone = replayed(path)
    assert [one.same for one in gone] == [None, None, True]
    assert "its audio was not kept" in gone[0].note


def test_kept_audio_is_decided_again_when_the_recording_is_gone(
    path: Path, classifier: Classifier, wav: WriteWav
) -> None:
    file = wav("a.wav", 3.0, 1)
    recordings: list[Recording] = [file, noise_clip(2.0), Path(file).read_bytes()]
    recorded(path, classifier, recordings, keep_audio=True)
    Path(file).unlink()
    assert [one.same for one in replayed(path)] == [True] * 3
    copies = list(path.with_name("decisions.db.audio").iterdir())
    assert {stat.S_IMODE(copy.stat().st_mode) for copy in copies} == {0o600}
    for number, copy in enumerate(copies):
        content = bytearray(copy.read_bytes())
        content[-3] ^= 1
        copy.write_bytes(content)
        with pytest.raises(FormatError, match="it has changed"):
            replayed(path)
        content[-3] ^= 1
        copy.write_bytes(content)
        assert number < 3


def test_the_events_of_a_recording_are_decided_again(path: Path, classifier: Classifier) -> None:
    detector = classifier.detector(settings=Detection(threshold=0.02, window_s=0.5, hop_s=0.5))
    with DecisionStore(path, keep_audio=True) as store:
        events = list(audited_events(store, detector, changing_noise(1, 2, 3, 4, 1, 2)))
    assert len(events) >= 3
    assert [line["outcome"]["decided"]["label"] for line in lines(path)] == [
        event.label for event in events
    ]
    assert [one.same for one in replayed(path)] == [True] * len(events)
    line = lines(path)[0]
    line["outcome"]["decided"]["start_s"] += 0.5
    rewrite(path, {"outcome": line["outcome"]})
    assert "the audio gives" in replayed(path)[0].note


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"outcome": {"labels": ["something else"]}}, "scores differ by up to 0"),
        ({"evidence": {**EVIDENCE, "scores": dict.fromkeys(LABELS, 9.0)}}, "scores differ by"),
        ({"evidence": EVIDENCE}, "not those of the head's labels"),
        ({"fingerprint": "fake/of/another/day"}, "the model fake has changed"),
    ],
)
def test_a_decision_that_has_changed_is_found(
    path: Path, classifier: Classifier, wav: WriteWav, change: dict[str, object], why: str
) -> None:
    recorded(path, classifier, [wav("a.wav", 3.0, 1)])
    rewrite(path, change)
    (replay,) = replayed(path)
    assert replay.same is False
    assert why in replay.note
    rewrite(path, {"source": "b.wav"}, forged=False)
    assert replayed(path)[0].note == "its line was changed after it was written"


def test_a_head_and_a_search_that_were_changed_are_found(
    path: Path, classifier: Classifier, wav: WriteWav
) -> None:
    recorded(path, classifier, [wav("a.wav", 3.0, 1)])
    other = Classifier(LABELS, rule="cosine", backbone=classifier.backbone).fit().head_
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE deciders SET content = ?", (packed(other),))
    with pytest.raises(FormatError, match="has changed"):
        replayed(path)


def test_a_threshold_is_part_of_the_decision(path: Path, wav: WriteWav) -> None:
    low = Classifier(LABELS, backbone="fake", threshold=-10.0).fit()
    file = wav("a.wav", 3.0, 1)
    (result,) = low.classify([file])
    with DecisionStore(path) as store:
        store.record(label_decision(result, -10.0), Decider.of(low), file)
    assert sorted(lines(path)[0]["outcome"]["labels"]) == sorted(LABELS)
    assert replayed(path)[0].same is True


def test_the_model_of_the_default_is_replayed(mini: Backbone, path: Path) -> None:
    own = Classifier(("siren", "rain"), backbone=Embedder("mini", text_cache=False)).fit()
    noise = 0.1 * np.random.default_rng(0).standard_normal(64_000)
    assert Decider.of(own).fields["calibration"] is not None
    recorded(path, own, [Audio(noise.astype(np.float32), 32_000)], keep_audio=True)
    assert replayed(path)[0].same is True


def test_threads_and_processes_share_a_store(path: Path, decider: Decider) -> None:
    stores = [DecisionStore(path), DecisionStore(path)]

    def write(number: int) -> None:
        for _ in range(25):
            stores[number % 2].record(decision("abcd"[number]), decider)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sources(path)) == 100


def test_a_name_that_is_not_utf8_is_recorded(path: Path, decider: Decider) -> None:
    with DecisionStore(path) as store:
        store.record(decision("bad\udcff.wav"), decider)
    assert sources(path) == ["bad\udcff.wav"]
    assert decisions(path)[0].intact


def test_decisions_are_chosen_by_label_and_time(path: Path, decider: Decider) -> None:
    with DecisionStore(path) as store:
        store.record(decision(), decider)
    now = datetime.now(UTC)
    hour = timedelta(hours=1)
    assert len(decisions(path, label="siren", since=now - hour, until=now + hour)) == 1
    for options in ({"label": "rain"}, {"since": now + hour}, {"until": now - hour}):
        assert decisions(path, **options) == []


def test_a_run_that_is_continued_records_no_decision_twice(path: Path, decider: Decider) -> None:
    with DecisionStore(path) as store:
        store.record(decision("a.wav"), decider)
    with DecisionStore(path, once=True) as store:
        for source, score in (("a.wav", 1.5), ("b.wav", 1.5), ("a.wav", 2.5), ("b.wav", 1.5)):
            store.record(decision(source, score), decider)
    assert sources(path) == ["a.wav", "b.wav", "a.wav"]


# Retention.


def age(path: Path, days: float) -> None:
    then = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="milliseconds")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE decisions SET time_utc = ?", (then,))


def test_what_is_older_than_the_days_that_are_kept_is_deleted(
    path: Path, decider: Decider, classifier: Classifier, wav: WriteWav
) -> None:
    other = Decider.of(Classifier(("rain", "siren"), backbone=classifier.backbone))
    with DecisionStore(path, keep_audio=True) as store:
        store.record(decision("old.wav"), other, wav("a.wav", 1.0, 1))
    folder = path.with_name("decisions.db.audio")
    (folder / "notes.txt").write_text("mine")
    age(path, 9)
    with DecisionStore(path, keep_audio=True, days=7) as store:
        store.record(decision("new.wav"), decider, wav("b.wav", 1.0, 2))
        rows = store._read("SELECT sha256 FROM deciders")
    assert sources(path) == ["new.wav"]
    assert len(rows) == 1  # the head of the old decision is gone with it
    assert sorted(one.suffix for one in folder.iterdir()) == [".txt", ".wav"]


def test_the_oldest_are_deleted_while_the_store_is_too_large(
    path: Path, decider: Decider, wav: WriteWav
) -> None:
    with DecisionStore(path, keep_audio=True, megabytes=0.2) as store:
        for number in range(12):  # 32 kB of audio each
            store.record(decision(f"{number}.wav"), decider, wav(f"{number}.wav", 1.0, number))
        store.tidy()
        assert store.size() < 200_000
    left = sources(path)
    assert left == [f"{number}.wav" for number in range(12 - len(left), 12)]
    assert 2 <= len(left) <= 6
    with open_store(path) as store:
        for one in store.decisions():
            assert one.recording.audio is not None
            assert store.copy_of(one.recording.audio) is not None


def test_bounds_must_be_positive() -> None:
    with pytest.raises(UsageError, match="must be positive, got 0"):
        DecisionStore("decisions.db", days=0)


# Stores that cannot be used.


def test_a_full_disk_is_an_error_and_leaves_no_part_of_a_decision(
    path: Path, decider: Decider
) -> None:
    with DecisionStore(path) as store:
        store.record(decision("a.wav"), decider)
        pages = store._read("PRAGMA page_count")[0][0]
        store._db.execute(f"PRAGMA max_page_count={pages}")

        def fill() -> None:
            for number in range(50):
                store.record(decision(f"{number}.wav"), decider)

        with pytest.raises(AuditError, match=r"cannot be recorded: .* full"):
            fill()
        store._db.execute("PRAGMA max_page_count=1000000")
        store.record(decision("z.wav"), decider)
    assert sources(path)[0] == "a.wav"
    assert sources(path)[-1] == "z.wav"
    assert all(one.intact for one in decisions(path))


@pytest.mark.parametrize("name", ["", "s3://bucket/audit", "memory://x"])
def test_decisions_are_kept_in_a_file_of_this_machine(name: str) -> None:
    with pytest.raises(UsageError, match="file of this machine"):
        DecisionStore(name)


def _other_files(folder: Path) -> Iterator[Path]:
    (folder / "text.db").write_text("this is no database at all, but long enough to be one" * 20)
    yield folder / "text.db"
    with closing(sqlite3.connect(folder / "places.db")) as db, db:
        db.execute("CREATE TABLE places (id INTEGER)")
    yield folder / "places.db"
    with closing(sqlite3.connect(folder / "newer.db")) as db, db:
        DecisionStore(folder / "newer.db").close()
        db.execute("PRAGMA user_version=99")
    yield folder / "newer.db"


def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    for file in _other_files(tmp_path):
        before = file.read_bytes()
        with pytest.raises(FormatError, match=r"not a store of decisions|a newer version"):
            DecisionStore(file)
        assert file.read_bytes() == before
    with pytest.raises(UsageError, match="is a folder"):
        DecisionStore(tmp_path)
    with pytest.raises(FormatError, match="There is no store of decisions at"):
        open_store(tmp_path / "absent.db")
    assert not (tmp_path / "absent.db").exists()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[" * 200_000, "is damaged"),
        ("\x00", "is damaged"),
        ("[]", "is damaged"),
        ({"kind": "guess"}, "Invalid enum value 'guess'"),
        ({"evidence": {**EVIDENCE, "scores": {"siren": "high"}}}, "Expected `float`, got `str`"),
        ({"outcome": {}}, "is not a decision of the format 1"),
    ],
)
def test_a_damaged_decision_is_one_sentence(
    path: Path, decider: Decider, line: str | dict[str, object], why: str
) -> None:
    with DecisionStore(path) as store:
        store.record(decision(), decider)
    if isinstance(line, dict):
        rewrite(path, line)
    else:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE decisions SET line = ?", (line,))
    with pytest.raises(FormatError, match="Decision 1 is damaged") as caught:
        decisions(path)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_pages_are_one_sentence(path: Path, decider: Decider) -> None:
    with DecisionStore(path) as store:
        for number in range(200):
            store.record(decision(f"{number}.wav"), decider)
    content = bytearray(path.read_bytes())
    content[8192 : len(content) - 4096] = b"\xff" * (len(content) - 12_288)
    path.write_bytes(content)
    with pytest.raises((StoreError, FormatError), match=r"cannot be used|damaged"):
        decisions(path)


def test_a_store_cannot_name_files_outside_its_folder(
    path: Path, classifier: Classifier, wav: WriteWav
) -> None:
    recorded(path, classifier, [wav("a.wav", 1.0, 1)], keep_audio=True)
    (line,) = lines(path)
    rewrite(path, {"recording": {**line["recording"], "audio": "../a.wav"}})
    with pytest.raises(FormatError, match="not the name of a copy"):
        replayed(path)
    rewrite(path, {"recording": line["recording"], "head_sha256": "../../head"})
    assert replayed(path)[0].note == "its head was deleted"
    rewrite(path, {"head_sha256": line["head_sha256"], "backbone": str(path)})
    assert "does not come with driftscore" in replayed(path)[0].note


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied", "audit.db"),
        sqlite3.OperationalError("attempt to write a readonly database"),
    ],
)
def test_a_store_that_cannot_be_written_is_one_plain_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("driftscore.decisions.store.open_database", fail)
    with pytest.raises(StoreError, match="it cannot be written, which reading needs too; copy it"):
        DecisionStore(tmp_path / "audit.db")
