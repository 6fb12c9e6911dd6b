"""Events, levels and states as lines of JSON, each with its `kind`; stdout or a file."""

import json
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


class JsonLines:
    """Writes each report at once; with `rejected` also events that are not reported."""

    def __init__(self, stream: IO[str], *, rejected: bool = False, owned: bool = False) -> None:
        self._stream = stream
        self._rejected = rejected
        self._owned = owned

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
        self._stream.write(json.dumps({"kind": kind, **fields}, ensure_ascii=False) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Close the file, unless it is stdout."""
        self._stream.flush()
        if self._owned:
            self._stream.close()
