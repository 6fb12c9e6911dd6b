"""The audit log: what is recorded of a decision, and the same decision made again."""

import json
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from driftscore import Audio, Backbone, Classifier, Embedder, Result
from driftscore.audit import (
    AuditLog,
    DecidedBy,
    Decision,
    Replayer,
    audited_results,
    label_decision,
    read_entries,
)
from driftscore.errors import FormatError, UsageError

from .conftest import LABELS, WriteWav, noise_clip

NOTHING: dict[str, object] = {"scores": {}, "threshold": None, "fitting": False}


@pytest.fixture
def classifier() -> Classifier:
    return Classifier(LABELS, backbone=Embedder("fake", text_cache=False)).fit()


def recorded(
    folder: Path, classifier: Classifier, recordings: list[str], *, keep_audio: bool = False
) -> list[Result]:
    with AuditLog(folder, keep_audio=keep_audio) as log:
        return list(audited_results(log, classifier, recordings))


def entries(folder: Path) -> list[dict[str, object]]:
    return [entry for _, entry in read_entries(folder)]


def test_a_decision_is_recorded_with_everything_it_followed_from(
    tmp_path: Path, classifier: Classifier, wav: WriteWav
) -> None:
    (result,) = recorded(tmp_path / "audit", classifier, [wav("a.wav", 3.0, 1)])
    (entry,) = entries(tmp_path / "audit")
    assert entry["outcome"] == {"labels": [result.label]}
    evidence = entry["evidence"]
    assert isinstance(evidence, dict)
    assert result.scores is not None
    assert evidence["scores"] == dict(zip(LABELS, result.scores.tolist(), strict=True))
    assert entry["labels"] == list(LABELS)
    assert entry["fingerprint"] == classifier.embedder_.backbone.fingerprint
    assert entry["rule"] == "das"
    assert entry["calibration"] is None
    assert len(str(entry["prompts_sha256"])) == 64
    versions = entry["versions"]
    assert isinstance(versions, dict)
    assert {"driftscore", "python", "numpy", "onnxruntime"} <= versions.keys()
    recording = entry["recording"]
    assert isinstance(recording, dict)
    assert recording["audio"] is None
    assert not (tmp_path / "audit" / "audio").exists()


def test_the_hash_of_the_prompts_changes_with_the_prompts(classifier: Classifier) -> None:
    other = Classifier(("rain", "siren"), backbone=classifier.backbone).fit()
    assert DecidedBy.of(classifier).prompts_sha256 != DecidedBy.of(other).prompts_sha256


def test_the_same_inputs_give_the_same_decision(
    tmp_path: Path, classifier: Classifier, wav: WriteWav
) -> None:
    recorded(tmp_path / "audit", classifier, [wav(f"{n}.wav", 3.0, n) for n in range(4)])
    replayer = Replayer(tmp_path / "audit")
    assert [replayer.replay(entry).same for entry in entries(tmp_path / "audit")] == [True] * 4


def test_kept_audio_replays_when_the_recording_is_gone(
    tmp_path: Path, classifier: Classifier, wav: WriteWav
) -> None:
    kept, lost = wav("a.wav", 3.0, 1), wav("b.wav", 3.0, 2)
    recorded(tmp_path / "kept", classifier, [kept], keep_audio=True)
    recorded(tmp_path / "lost", classifier, [lost])
    Path(kept).unlink()
    Path(lost).write_bytes(b"something else")
    assert Replayer(tmp_path / "kept").replay(entries(tmp_path / "kept")[0]).same is True
    gone = Replayer(tmp_path / "lost").replay(entries(tmp_path / "lost")[0])
    assert (gone.same, gone.from_audio) == (True, False)
    assert "not kept" in gone.note


def test_arrays_and_bytes_can_be_kept_and_replayed(
    tmp_path: Path, classifier: Classifier, wav: WriteWav
) -> None:
    by = DecidedBy.of(classifier)
    content = Path(wav("a.wav", 3.0, 1)).read_bytes()
    with AuditLog(tmp_path / "audit", keep_audio=True) as log:
        for recording in (noise_clip(2.0), content):
            (result,) = classifier.classify([recording])
            log.record(label_decision(result), by, recording)
    replayer = Replayer(tmp_path / "audit")
    assert [replayer.replay(entry).same for entry in entries(tmp_path / "audit")] == [True, True]


@pytest.mark.parametrize("what", ["outcome", "score", "fingerprint", "head"])
def test_a_decision_that_is_another_one_now_is_found(
    tmp_path: Path, classifier: Classifier, wav: WriteWav, what: str
) -> None:
    recorded(tmp_path / "audit", classifier, [wav("a.wav", 3.0, 1)])
    (entry,) = entries(tmp_path / "audit")
    evidence = entry["evidence"]
    assert isinstance(evidence, dict)
    if what == "outcome":
        entry["outcome"] = {"labels": ["something else"]}
    elif what == "score":
        evidence["scores"] = {name: s + 0.01 for name, s in evidence["scores"].items()}
    elif what == "fingerprint":
        entry["fingerprint"] = "fake/of/another/day"
    else:
        (head,) = (tmp_path / "audit" / "heads").iterdir()
        other = Classifier(LABELS, rule="cosine", backbone=classifier.backbone).fit().head_
        head.chmod(0o600)
        other.save(head)
        with pytest.raises(FormatError, match="has changed"):
            Replayer(tmp_path / "audit").replay(entry)
        return
    found = Replayer(tmp_path / "audit").replay(entry)
    assert found.same is False
    reasons = {
        "outcome": "do not give the recorded labels",
        "score": "scores differ by up to 0.01",
        "fingerprint": "the model fake is another one now",
    }
    assert reasons[what] in found.note
    assert found.note.startswith("its line was changed")


def test_a_threshold_is_part_of_the_decision(tmp_path: Path, wav: WriteWav) -> None:
    low = Classifier(LABELS, backbone="fake", threshold=-10.0).fit()
    (result,) = low.classify([path := wav("a.wav", 3.0, 1)])
    with AuditLog(tmp_path / "audit") as log:
        log.record(label_decision(result, -10.0), DecidedBy.of(low), path)
    (entry,) = entries(tmp_path / "audit")
    outcome = entry["outcome"]
    assert isinstance(outcome, dict)
    assert sorted(outcome["labels"]) == sorted(LABELS)
    assert Replayer(tmp_path / "audit").replay(entry).same is True


def test_lines_are_appended_and_private(
    tmp_path: Path, classifier: Classifier, wav: WriteWav
) -> None:
    path = wav("a.wav", 3.0, 1)
    for _ in range(2):
        recorded(tmp_path / "audit", classifier, [path])
    (file,) = (tmp_path / "audit").glob("*.jsonl")
    assert len(file.read_text("utf-8").splitlines()) == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(list((tmp_path / "audit" / "heads").iterdir())) == 1


def test_a_line_that_was_cut_is_left_out_and_a_damaged_one_is_named(
    tmp_path: Path, classifier: Classifier, wav: WriteWav
) -> None:
    recorded(tmp_path / "audit", classifier, [wav("a.wav", 3.0, 1)])
    (file,) = (tmp_path / "audit").glob("*.jsonl")
    with open(file, "a", encoding="utf-8") as out:
        out.write('{"format": 1, "ti')
    assert len(entries(tmp_path / "audit")) == 1
    with open(file, "a", encoding="utf-8") as out:
        out.write("\n")
    with pytest.raises(FormatError, match=r"jsonl:2 is not JSON"):
        entries(tmp_path / "audit")


def test_threads_do_not_mix_their_lines(tmp_path: Path, classifier: Classifier) -> None:
    by = DecidedBy.of(classifier)
    log = AuditLog(tmp_path / "audit")

    def write(name: str) -> None:
        for _ in range(50):
            log.record(Decision("label", name, {"labels": [name * 1000]}, NOTHING), by)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert len(entries(tmp_path / "audit")) == 200


def test_a_folder_that_is_no_audit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not an audit folder"):
        entries(tmp_path)


def test_a_name_that_is_not_utf8_is_recorded(tmp_path: Path, classifier: Classifier) -> None:
    with AuditLog(tmp_path / "audit") as log:
        decision = Decision("label", "bad\udcff.wav", {"labels": []}, NOTHING)
        log.record(decision, DecidedBy.of(classifier))
    assert json.dumps(entries(tmp_path / "audit")[0]["source"])


def test_the_model_of_the_default_is_replayed(mini: Backbone, tmp_path: Path) -> None:
    found = Classifier(("siren", "rain"), backbone=Embedder("mini", text_cache=False)).fit()
    audio = Audio(
        (0.1 * np.random.default_rng(0).standard_normal(64_000)).astype(np.float32), 32_000
    )
    (result,) = found.classify([audio])
    by = DecidedBy.of(found)
    assert by.calibration is not None
    with AuditLog(tmp_path / "audit", keep_audio=True) as log:
        log.record(label_decision(result), by, audio)
    assert Replayer(tmp_path / "audit").replay(entries(tmp_path / "audit")[0]).same is True
