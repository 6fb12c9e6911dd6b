"""Fewer notifications: at most one per label and source within a cool-down.

The time is that of the events, not of the clock. Only messages are held back: the event is stored,
and the state of a label stays true.
"""

from datetime import datetime, timedelta

from driftscore.live.records import EventRecord
from driftscore.watchlist import WatchList


class Cooldown:
    """Knows when each label of each source was last notified of."""

    def __init__(self) -> None:
        self._watched: dict[str, WatchList] = {}
        self._last: dict[tuple[str, str], datetime] = {}

    def words(self, source: str, watch: WatchList) -> None:
        """Take the labels of a source; what is gone is forgotten."""
        self._watched[source] = watch
        for key in [key for key in self._last if key[0] == source and key[1] not in watch.names]:
            del self._last[key]

    def passes(self, record: EventRecord) -> bool:
        """Return whether an event is notified of, and if so, begin its cool-down."""
        key = record.source, record.event.label
        watch, last = self._watched.get(record.source), self._last.get(key)
        seconds = 0.0 if watch is None else watch.cooldown(record.event.label)
        if last is not None and record.end < last + timedelta(seconds=seconds):
            return False
        self._last[key] = record.end
        return True
