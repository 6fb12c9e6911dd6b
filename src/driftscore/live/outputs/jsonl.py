"""Events, levels and states as lines of JSON, each with its `kind`; stdout or a file."""

import json
from collections.abc import Set
from typing import IO

from driftscore.live.records import EventRecord, Json, LevelRecord, SourceStatus
from driftscore.watchlist import WatchList


class JsonLines:
    """Writes each record at once; with `rejected` also events that are not reported."""

    def __init__(self, stream: IO[str], *, rejected: bool = False, owned: bool = False) -> None:
        self._stream = stream
        self._rejected = rejected
        self._owned = owned

    def words(self, source: str, watch: WatchList) -> None:
        """Write the labels that a source is searched for."""
        self._write("words", {"source": source, "words": ", ".join(watch.names)})

    def event(self, record: EventRecord) -> None:
        """Write an event."""
        if self._rejected or not record.event.rejected:
            self._write("event", record.fields())

    def active(self, source: str, labels: Set[str]) -> None:
        """Write nothing: the event follows."""

    def level(self, record: LevelRecord) -> None:
        """Write a level."""
        self._write("level", record.fields())

    def status(self, status: SourceStatus) -> None:
        """Write whether a source gives audio."""
        self._write("status", status.fields())

    def close(self) -> None:
        """Close the file, unless it is stdout."""
        self._stream.flush()
        if self._owned:
            self._stream.close()

    def _write(self, kind: str, fields: Json) -> None:
        self._stream.write(json.dumps({"kind": kind, **fields}, ensure_ascii=False) + "\n")
        self._stream.flush()
