"""The folder of an audit: files of a day, what is deleted, and folders that are damaged."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from driftscore import AuditError, Classifier, Embedder, FormatError, UsageError
from driftscore.audio import Recording
from driftscore.audit import (
    AuditLog,
    DecidedBy,
    Decision,
    Replayer,
    Retention,
    audited_results,
    read_entries,
)
from driftscore.audit import log as log_module
from driftscore.audit.entries import written

from .conftest import LABELS, Run, WriteWav, noise_clip

EVIDENCE: dict[str, object] = {"scores": {"siren": 1.5}, "threshold": None, "fitting": False}
Change = Callable[[Path, dict[str, object]], None]


@pytest.fixture(scope="module")
def by() -> DecidedBy:
    return DecidedBy.of(Classifier(LABELS, backbone=Embedder("fake", text_cache=False)))


def decision(source: str = "a.wav", score: float = 1.5) -> Decision:
    return Decision(
        "label", source, {"labels": ["siren"]}, {**EVIDENCE, "scores": {"siren": score}}
    )


def sources(folder: Path) -> list[object]:
    return [entry["source"] for _, entry in read_entries(folder)]


def age(path: Path, days: float) -> None:
    then = path.stat().st_mtime - days * 86_400
    os.utime(path, (then, then))


def test_a_file_that_is_full_is_followed_by_another_one_of_the_day(
    tmp_path: Path, by: DecidedBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "PART_BYTES", 2500)
    names = [f"{number}.wav" for number in range(50)]
    with AuditLog(tmp_path) as log:
        for name in names[:30]:
            log.record(decision(name), by)
    with AuditLog(tmp_path) as log:  # a later process continues in the last file
        for name in names[30:]:
            log.record(decision(name), by)
    files = list(tmp_path.glob("*.jsonl"))
    assert len(files) > 10  # so that .10 has to follow .9
    assert all(path.stat().st_size < 2500 + 1500 for path in files)
    assert sources(tmp_path) == names


def test_what_is_older_than_the_days_that_are_kept_is_deleted(
    tmp_path: Path, by: DecidedBy, wav: WriteWav
) -> None:
    with AuditLog(tmp_path / "log", keep_audio=True) as log:
        log.record(decision(), by, wav("a.wav", 1.0, 1))
    home = tmp_path / "log"
    (today,) = home.glob("*.jsonl")
    old = home / "2026-01-02.jsonl"
    old.write_bytes(today.read_bytes())
    foreign = home / "notes.txt"
    foreign.write_text("mine")
    for path in (old, foreign, *(home / "audio").iterdir(), *(home / "heads").iterdir()):
        age(path, 9)
    with AuditLog(home, retention=Retention(days=7)) as log:
        log.record(decision("b.wav"), by)
    assert not old.exists()
    assert not list((home / "audio").iterdir())
    assert foreign.read_text() == "mine"
    assert sources(home) == ["a.wav", "b.wav"]
    assert len(list((home / "heads").iterdir())) == 1  # in use, so it counts as new


def test_the_oldest_is_deleted_while_the_audit_is_too_large(
    tmp_path: Path, by: DecidedBy, wav: WriteWav
) -> None:
    with AuditLog(tmp_path / "log", keep_audio=True, retention=Retention(megabytes=0.2)) as log:
        for number in range(12):  # 32 kB of audio each
            log.record(decision(f"{number}.wav"), by, wav(f"{number}.wav", 1.0, number))
            for path in (tmp_path / "log" / "audio").iterdir():
                age(path, 0.01)
    size = sum(path.stat().st_size for path in (tmp_path / "log").rglob("*") if path.is_file())
    assert 100_000 < size < 200_000 + 2 * 33_000
    assert len(sources(tmp_path / "log")) == 12  # the file that is written to is never deleted
    last = list(read_entries(tmp_path / "log"))[-1][1]["recording"]
    assert isinstance(last, dict)
    assert (tmp_path / "log" / str(last["audio"])).is_file()


def test_bounds_must_be_positive() -> None:
    with pytest.raises(UsageError, match="must be positive, got 0"):
        Retention(days=0)


def test_a_line_that_a_power_cut_left_does_not_spoil_the_next_one(
    tmp_path: Path, by: DecidedBy
) -> None:
    with AuditLog(tmp_path) as log:
        log.record(decision("a.wav"), by)
    (file,) = tmp_path.glob("*.jsonl")
    file.write_bytes(file.read_bytes() + b"x" * 100_000)  # longer than one block of the reader
    with AuditLog(tmp_path) as log:
        log.record(decision("b.wav"), by)
    assert sources(tmp_path) == ["a.wav", "b.wav"]
    file.write_bytes(b"x" * 70_000)
    with AuditLog(tmp_path) as log:
        log.record(decision("c.wav"), by)
    assert sources(tmp_path) == ["c.wav"]


def test_a_full_disk_is_an_error_and_leaves_no_part_of_a_line(
    tmp_path: Path, by: DecidedBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with AuditLog(tmp_path) as log:
        log.record(decision("a.wav"), by)
        monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:100]))
        with pytest.raises(AuditError, match=os.strerror(errno.ENOSPC)):
            log.record(decision("b.wav"), by)
        monkeypatch.setattr(os, "write", write)
        log.record(decision("c.wav"), by)
    assert sources(tmp_path) == ["a.wav", "c.wav"]


def test_a_run_that_is_continued_records_no_decision_twice(tmp_path: Path, by: DecidedBy) -> None:
    with AuditLog(tmp_path) as log:
        log.record(decision("a.wav"), by)
    with AuditLog(tmp_path, once=True) as log:
        for source, score in (("a.wav", 1.5), ("b.wav", 1.5), ("a.wav", 2.5), ("b.wav", 1.5)):
            log.record(decision(source, score), by)
    assert sources(tmp_path) == ["a.wav", "b.wav", "a.wav"]


@pytest.mark.parametrize("place", ["", "s3://bucket/audit", "memory://x"])
def test_an_audit_is_kept_in_a_folder_of_this_machine(place: str) -> None:
    with pytest.raises(UsageError, match="folder of this machine"):
        AuditLog(place)


def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, run: Run, wav: WriteWav
) -> None:
    (tmp_path / "file").write_text("mine")
    status, out, err = run("classify", wav("a.wav", 1.0, 1), "-l", "a, b", "-b", "absent",
                           "--audit", tmp_path / "file")  # fmt: skip
    assert (status, out) == (1, "")
    assert "cannot be recorded: Cannot write" in err
    assert len(err.splitlines()) == 1


def _line(path: Path, entry: dict[str, object]) -> None:
    path.write_bytes(written({key: value for key, value in entry.items() if key != "sha256"}))


def _deep(path: Path, _: dict[str, object]) -> None:
    path.write_text("[" * 200_000 + "\n")


def _binary(path: Path, _: dict[str, object]) -> None:
    path.write_bytes(b"\xff\x00\n")


def _folder(path: Path, _: dict[str, object]) -> None:
    path.unlink()
    path.mkdir()


def _other_kind(path: Path, entry: dict[str, object]) -> None:
    _line(path, entry | {"kind": "guess"})


def _text_for_a_number(path: Path, entry: dict[str, object]) -> None:
    _line(path, entry | {"evidence": {**EVIDENCE, "scores": {"siren": "high"}}})


def _no_outcome(path: Path, entry: dict[str, object]) -> None:
    _line(path, entry | {"outcome": {}})


def _list_of_lists(path: Path, _: dict[str, object]) -> None:
    path.write_text("[]\n")


HOSTILE: dict[Change, str] = {
    _deep: "is not JSON",
    _binary: "UTF-8 text",
    _folder: "not a regular file",
    _other_kind: "kind must be 'label' or 'event'",
    _text_for_a_number: "scores.siren must be a number",
    _no_outcome: "labels is missing",
    _list_of_lists: "is not an entry of an audit log",
}


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: change.__name__)
def test_a_damaged_log_is_one_sentence(
    tmp_path: Path, by: DecidedBy, change: Change, run: Run
) -> None:
    with AuditLog(tmp_path) as log:
        log.record(decision(), by)
    (file,) = tmp_path.glob("*.jsonl")
    change(file, json.loads(file.read_text("utf-8")))
    for command in ("show", "replay"):
        status, out, err = run("audit", command, tmp_path)
        assert (status, out) == (1, "")
        assert HOSTILE[change] in err
        assert len(err.splitlines()) == 1


def test_a_log_cannot_name_files_outside_its_folder(
    tmp_path: Path, wav: WriteWav, run: Run
) -> None:
    classifier = Classifier(LABELS, backbone=Embedder("fake", text_cache=False))
    with AuditLog(tmp_path / "log", keep_audio=True) as log:
        list(audited_results(log, classifier, [wav("a.wav", 1.0, 1)]))
    (file,) = (tmp_path / "log").glob("*.jsonl")
    entry = json.loads(file.read_text("utf-8"))
    for changes, words in (
        ({"recording": {**entry["recording"], "audio": "../a.wav"}}, "not the name of a copy"),
        ({"head_sha256": "../../head"}, "is not a sha256"),
        ({"search_sha256": None, "backbone": str(tmp_path)}, "does not come with driftscore"),
    ):
        _line(file, entry | changes)
        status, out, _ = run("audit", "replay", tmp_path / "log")
        assert words in out
        assert status == (0 if "backbone" in changes else 1)


def test_a_copy_that_was_changed_is_noticed(tmp_path: Path, wav: WriteWav) -> None:
    classifier = Classifier(LABELS, backbone=Embedder("fake", text_cache=False))
    recordings: list[Recording] = [wav("a.wav", 1.0, 1), noise_clip(1.0)]
    for number, recording in enumerate(recordings):
        home = tmp_path / str(number)
        with AuditLog(home, keep_audio=True) as log:
            list(audited_results(log, classifier, [recording]))
        ((_, entry),) = read_entries(home)
        assert Replayer(home).replay(entry).from_audio
        (copy,) = (home / "audio").iterdir()
        content = bytearray(copy.read_bytes())
        content[-3] ^= 1
        copy.write_bytes(content)
        with pytest.raises(FormatError, match="it has changed"):
            Replayer(home).replay(entry)
