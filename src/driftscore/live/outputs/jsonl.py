"""Events, levels and states as lines of JSON, each with its `kind`; stdout or a file.

Lines that a full disk does not take wait, and are written when there is space again. A file that
was renamed or deleted, as logrotate does, is made anew.
"""

import json
import os
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import IO

from driftscore.decisions.records import (
    LevelReport,
    LiveReport,
    OutputStatus,
    Present,
    Started,
    StoredEvent,
    Words,
)
from driftscore.errors import WriteError
from driftscore.storage.files import writing_to

MAX_WAITING = 4_000_000
"""Bytes that may wait for a full disk."""


class JsonLines:
    """Writes each report at once; with `rejected` also events that are not reported."""

    def __init__(self, path: str = "", *, rejected: bool = False) -> None:
        self._path = path
        self._rejected = rejected
        self._waiting: deque[tuple[bytes, bool]] = deque()
        """Lines that are not in the file yet, and whether they are events."""
        self._waiting_bytes = 0
        self._written = 0  # bytes of the first of them that are in the file
        self._lost = 0  # events
        if path:
            self._file = self._open()

    def _open(self) -> IO[bytes]:
        self._written = 0
        file = open(self._path, "ab", buffering=0)  # noqa: SIM115
        cut = False  # by a power cut: the next line must be one of its own
        with suppress(OSError), open(self._path, "rb") as old:
            cut = Path(self._path).is_file() and old.seek(-1, os.SEEK_END) > 0
            cut = cut and old.read() != b"\n"
        if cut:
            file.write(b"\n")
        return file

    def send(self, report: LiveReport) -> None:
        """Write a line; labels that are present have none, since the event follows."""
        if isinstance(report, Present):
            return
        if isinstance(report, StoredEvent):
            if report.rejected and not self._rejected:
                return
            start_id = report.start_id and str(report.start_id)
            kind, fields = "event", {**report.fields(), "start_id": start_id}
        elif isinstance(report, Started):
            fields = report.message()
            kind = str(fields.pop("phase"))
        elif isinstance(report, Words):
            kind, fields = "words", {"source": report.source, "words": report.text}
        else:
            kinds = {LevelReport: "level", OutputStatus: "output"}
            kind, fields = kinds.get(type(report), "status"), dict(vars(report))
        line = json.dumps({"kind": kind, **fields}, ensure_ascii=False) + "\n"
        data, is_event = line.encode("utf-8", "backslashreplace"), kind == "event"
        try:
            with writing_to(self._path or "stdout"):
                if self._path:
                    self._waiting.append((data, is_event))
                    self._waiting_bytes += len(data)
                    self._write()
                else:
                    sys.stdout.write(line)
                    sys.stdout.flush()
        except WriteError:
            self._lost += is_event and not self._path
            while self._waiting_bytes > MAX_WAITING:
                data, is_event = self._waiting.pop()
                self._waiting_bytes -= len(data)
                self._lost += is_event
            raise

    def _write(self) -> None:
        """Write the lines that wait."""
        if not self._is_open():
            old, self._file = self._file, self._open()
            old.close()
        while self._waiting:
            data, _ = self._waiting[0]
            self._written += self._file.write(data[self._written :])
            if self._written == len(data):
                self._waiting.popleft()
                self._waiting_bytes -= len(data)
                self._written = 0

    def _is_open(self) -> bool:
        """Return whether the open file is still the one at the path."""
        with suppress(OSError):
            return os.path.samestat(Path(self._path).stat(), os.fstat(self._file.fileno()))
        return False

    def close(self) -> int:
        """Close the file, unless it is stdout; return how many events are not in it."""
        if self._path:
            with suppress(OSError):
                self._write()
            self._file.close()
        return self._lost + sum(is_event for _, is_event in self._waiting)
