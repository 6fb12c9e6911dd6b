"""Where a listener reports to, one file per output."""

import threading
from collections.abc import Callable, Sequence, Set

from driftscore.live.outputs.protocol import Output
from driftscore.live.records import EventRecord, LevelRecord, SourceStatus
from driftscore.watchlist import WatchList

__all__ = ["Output", "Outputs"]


class Outputs:
    """Several outputs as one. One that fails is reported, and does not stop the others."""

    def __init__(self, outputs: Sequence[Output], notify: Callable[[str], None]) -> None:
        self._outputs = list(outputs)
        self._notify = notify
        self._failed: set[str] = set()
        self._lock = threading.Lock()

    def words(self, source: str, watch: WatchList) -> None:
        """Pass on the labels of a source."""
        self._each(lambda output: output.words(source, watch))

    def event(self, record: EventRecord) -> None:
        """Pass on an event."""
        self._each(lambda output: output.event(record))

    def active(self, source: str, labels: Set[str]) -> None:
        """Pass on the labels that are present."""
        self._each(lambda output: output.active(source, labels))

    def level(self, record: LevelRecord) -> None:
        """Pass on a level."""
        self._each(lambda output: output.level(record))

    def status(self, status: SourceStatus) -> None:
        """Pass on the status of a source."""
        self._each(lambda output: output.status(status))

    def close(self) -> None:
        """Close all of them."""
        self._each(lambda output: output.close())

    def _each(self, call: Callable[[Output], None]) -> None:
        with self._lock:
            for output in self._outputs:
                try:
                    call(output)
                except Exception as error:
                    what = f"{type(output).__name__}: {error}"
                    if what not in self._failed and len(self._failed) < 100:
                        self._notify(f"error: an output failed: {what}")
                    self._failed.add(what)
