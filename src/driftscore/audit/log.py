"""An audit log: a folder in which every decision is recorded.

    2026-11-16.jsonl     one line per decision, only ever appended to; 2026-11-16.2.jsonl follows
    heads/<sha256>.safetensors, searches/<sha256>.json      what decided
    audio/<sha256>.flac  (or what the recording was), if asked for

Each line is written by one call. The file is synchronised with the disk at most once per second,
and when the log is closed: after a power cut the lines of the last second may be missing, and a
line that was cut is removed when the log is next written. Files can be read by their owner only.
"""

import errno
import hashlib
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from driftscore.audio import Recording
from driftscore.audit.decided import DecidedBy, Decision
from driftscore.audit.entries import (
    FORMAT,
    PART_BYTES,
    decision_digest,
    log_files,
    part_name,
    part_of,
    read_entries,
    written,
)
from driftscore.audit.keeping import HEADS, SEARCHES, KeptRecording, Retention, kept_recording
from driftscore.audit.searches import search_text
from driftscore.errors import AuditError, UsageError, WriteError
from driftscore.eventstream import Search
from driftscore.files import is_url, replacing, writing_to
from driftscore.head import Head
from driftscore.version import __version__

_SYNC_S = 1.0
_TIDY_S = 600.0
_TIDY_SHARE = 0.05
_PARTS = ("numpy", "onnxruntime", "soxr", "soundfile")
_REMEMBERED = 100
_BLOCK = 65_536
_IN_WORK_S = 0.1
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
Stored = TypeVar("Stored", Head, Search)


class AuditLog:
    """Records decisions in a folder; several threads may use it.

    Parameters
    ----------
        folder: where it is kept; it is made if it does not exist.
        keep_audio: keep the audio of each decision as well.
        once: leave out decisions that the folder has already, for a run that is continued.
        retention: when old decisions are deleted; None for never.

    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        keep_audio: bool = False,
        once: bool = False,
        retention: Retention | None = None,
    ) -> None:
        if not os.fspath(folder) or is_url(os.fspath(folder)):
            raise UsageError(f"An audit is kept in a folder of this machine, not in {folder!r}")
        self.keep_audio = keep_audio
        self.home = Path(folder)
        self._retention = retention or Retention()
        self._lock = threading.RLock()
        self._day, self._file, self._name = "", -1, ""
        self._synced = self._tidied = 0.0
        self._since_tidy = 0
        self._stored: dict[int, tuple[object, str]] = {}
        self._versions = _versions()
        with _recording_in(self.home):
            for inner in (self.home, self.home / HEADS, self.home / SEARCHES):
                inner.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._open(
                f"{datetime.now(UTC):%Y-%m-%d}"
            )  # a folder that cannot be written is noticed before any work
        self._known = (
            {decision_digest(entry) for _, entry in read_entries(self.home)} if once else None
        )

    def keep(self, recording: Recording, *, complete: bool = True) -> KeptRecording:
        """Return which recording it is; its audio is copied only if that was asked for.

        `complete` tells whether decisions follow from this recording alone.
        """
        with _recording_in(self.home):
            kept = kept_recording(recording, self.home, copy=self.keep_audio, complete=complete)
            if kept.audio is not None:
                self._since_tidy += (self.home / kept.audio).stat().st_size
        return kept

    def record(
        self,
        decision: Decision,
        by: DecidedBy,
        recording: Recording | KeptRecording | None = None,
    ) -> None:
        """Append a decision; what is not a `KeptRecording` yet is hashed, and copied if asked."""
        if recording is None:
            recording = KeptRecording()
        elif not isinstance(recording, KeptRecording):
            recording = self.keep(recording)
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        entry: dict[str, object] = {
            "format": FORMAT,
            "time": moment,
            "kind": decision.kind,
            "source": decision.source,
            "outcome": decision.outcome,
            "evidence": decision.evidence,
            "labels": list(by.head.labels),
            "prompts_sha256": by.prompts_sha256,
            "backbone": by.backbone,
            "fingerprint": by.fingerprint,
            "rule": by.rule,
            "calibration": by.calibration,
            "head_sha256": self._store(by.head, _store_head),
            "search_sha256": None if by.search is None else self._store(by.search, _store_search),
            "recording": dict(vars(recording)),
            "versions": self._versions,
        }
        line = written(entry)
        with self._lock, _recording_in(self.home):
            if self._known is not None:
                digest = decision_digest(entry)
                if digest in self._known:
                    return
                self._known.add(digest)
            self._append(moment[:10], line)
            self._tidy()

    def close(self) -> None:
        """Write everything to the disk."""
        with self._lock, _recording_in(self.home):
            self._close()

    def __enter__(self) -> "AuditLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, day: str, line: bytes) -> None:
        if day != self._day or os.fstat(self._file).st_size > PART_BYTES:
            self._open(day)
        count = os.write(self._file, line)
        self._since_tidy += count
        if count < len(line):  # the disk is full: leave no part of a line
            os.ftruncate(self._file, os.fstat(self._file).st_size - count)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if time.monotonic() - self._synced > _SYNC_S:
            os.fsync(self._file)
            self._synced = time.monotonic()

    def _open(self, day: str) -> None:
        """Open the last file of a day, or the one after it if that is full."""
        self._close()
        self._stored.clear()  # so that heads in use count as new every day
        found = [part_of(path.name) for path in log_files(self.home)]
        part = max((one[1] for one in found if one and one[0] == day), default=1)
        path = self.home / part_name(day, part)
        if path.exists() and path.stat().st_size > PART_BYTES:
            path = self.home / part_name(day, part + 1)
        self._file = os.open(path, _APPEND, 0o600)
        self._day, self._name = day, path.name
        _remove_cut_line(self._file)

    def _close(self) -> None:
        if self._file >= 0:
            os.fsync(self._file)
            os.close(self._file)
        self._file, self._day = -1, ""

    def _tidy(self) -> None:
        """Delete what is too old or too much; often called, seldom done."""
        bound = self._retention.megabytes
        much = bound is not None and self._since_tidy > _TIDY_SHARE * bound * 1e6
        due = not self._tidied or time.monotonic() - self._tidied > _TIDY_S
        if not self._retention.bounded or not (much or due):
            return
        self._tidied, self._since_tidy = time.monotonic(), 0
        if self._retention.tidy(self.home, current=self._name):
            self._stored.clear()  # a head that was deleted is written again when it is next used

    def _store(self, value: Stored, store: Callable[[Path, Stored], str]) -> str:
        """Store a head or a search once; return its digest."""
        with self._lock, _recording_in(self.home):
            known = self._stored.get(id(value))
            if known is not None and known[0] is value:
                return known[1]
            digest = store(self.home, value)
            if len(self._stored) > _REMEMBERED:
                self._stored.clear()
            self._stored[id(value)] = value, digest
            return digest


@contextmanager
def _recording_in(home: Path) -> Iterator[None]:
    """Turn whatever prevents writing into an AuditError."""
    try:
        with writing_to(home):
            yield
    except AuditError:
        raise
    except WriteError as error:
        raise AuditError(f"The decision cannot be recorded: {error}") from error


def head_digest(head: Head) -> str:
    """Return a digest of everything in a head that can change a score."""
    digest = hashlib.sha256(json.dumps(head.labels).encode())
    digest.update(head.weights.tobytes())
    digest.update(head.offsets.tobytes())
    return digest.hexdigest()


def _store_head(home: Path, head: Head) -> str:
    digest = head_digest(head)
    path = home / HEADS / f"{digest}.safetensors"
    if path.exists():
        os.utime(path)  # in use: the oldest files are deleted first
    else:
        head.save(path)
        path.chmod(0o600)
    return digest


def _store_search(home: Path, search: Search) -> str:
    text = search_text(search)
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = home / SEARCHES / f"{digest}.json"
    if path.exists():
        os.utime(path)
    else:
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8")
        path.chmod(0o600)
    return digest


def _remove_cut_line(file: int) -> None:
    """Remove a line at the end of a file that a power cut left without its end."""
    size, end = _complete_lines(file)
    if end < size:
        time.sleep(_IN_WORK_S)
        if _complete_lines(file) == (size, end):  # not one that another process is writing
            os.ftruncate(file, end)


def _complete_lines(file: int) -> tuple[int, int]:
    """Return the size of a file, and where its last complete line ends."""
    size = end = os.lseek(file, 0, os.SEEK_END)
    while end:
        first = max(0, end - _BLOCK)
        os.lseek(file, first, os.SEEK_SET)
        end = first + os.read(file, end - first).rfind(b"\n") + 1
        if end > first:
            break
    return size, end


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version  # not at the top: it is slow

    found = {"driftscore": __version__, "python": platform.python_version()}
    for name in _PARTS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
