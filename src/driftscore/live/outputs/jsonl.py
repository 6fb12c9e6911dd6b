"""Events, levels and states as lines of JSON, each with its `kind`; stdout or a file.

Lines that a full disk does not take wait in the buffer of the file, and are written when there is
space again. A file that was renamed or deleted, as logrotate does, is made anew.
"""

import json
import os
import sys
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

MAX_WAITING = 4_000_000
"""Characters that may wait for a full disk."""


class JsonLines:
    """Writes each report at once; with `rejected` also events that are not reported."""

    def __init__(self, path: str = "", *, rejected: bool = False) -> None:
        self._path = path
        self._rejected = rejected
        self._stream: IO[str] = sys.stdout
        self._waiting = self._waiting_events = self._lost = 0
        if path:
            self._open()

    def _open(self) -> None:
        # The buffer takes what waits: characters of four bytes.
        stream = open(self._path, "a", encoding="utf-8", buffering=4 * MAX_WAITING)  # noqa: SIM115
        with suppress(OSError), open(self._path, "rb") as old:
            if Path(self._path).is_file() and old.seek(-1, os.SEEK_END) and old.read() != b"\n":
                stream.write("\n")  # after a power cut: the next line must be one of its own
        self._stream = stream

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
        if self._waiting + len(line) > MAX_WAITING:
            self._lost += kind == "event"
            return
        if self._path and not self._waiting and not self._is_open():
            try:
                old = self._stream
                self._open()
                old.close()
            except OSError:
                self._lost += kind == "event"
                raise
        self._stream.write(line)
        self._waiting += len(line)
        self._waiting_events += kind == "event"
        self._stream.flush()
        self._waiting = self._waiting_events = 0

    def _is_open(self) -> bool:
        """Return whether the open file is still the one at the path."""
        with suppress(OSError):
            return os.path.samestat(Path(self._path).stat(), os.fstat(self._stream.fileno()))
        return False

    def close(self) -> int:
        """Close the file, unless it is stdout; return how many events are not in it."""
        with suppress(OSError):
            self._stream.flush()
            self._waiting_events = 0
        if self._path:
            with suppress(OSError):
                self._stream.close()
        return self._lost + self._waiting_events
