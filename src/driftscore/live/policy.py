"""What is reported: one policy for all sources, applied to each event in this order.

1. Confirmation: a label must be found as often as its watch list asks within a minute.
2. Merging: a sound that several sources have at the same time is reported once, by the source
   whose event ends first; events of others with the same label that overlap it, or miss it by less
   than `APART_S`, are rejected.
3. Cool-down: at most one message per label and source in so many seconds, by the time of the
   events. Only messages are held back: the event is stored, and the state of its label is true.
"""

import threading
import time
from collections import deque
from dataclasses import replace

from driftscore.decisions.records import StoredEvent
from driftscore.events.watchlist import WatchList

WITHIN_S = 60.0
APART_S = 1.0
MAX_COMPARED = 1000


class Policy:
    """Decides what is reported; any thread may ask."""

    def __init__(self, *, merge: bool = False, newest: int = 0) -> None:
        self._merge = merge
        self._watch: dict[str, WatchList] = {}
        self._ends: dict[tuple[str, str], deque[float]] = {}
        self._reported: deque[StoredEvent] = deque(maxlen=MAX_COMPARED)
        self._last: dict[tuple[str, str], float] = {}
        self._number = newest  # the id of the newest event of the store
        self._lock = threading.RLock()
        self.reporting = threading.Lock()
        """Held from the number of an event to its report: outputs get events by their numbers."""

    def number(self) -> int:
        """Return a number that rises: milliseconds since 1970, or more if a clock was set back."""
        with self._lock:
            self._number = max(self._number + 1, time.time_ns() // 1_000_000)
            return self._number

    def begin(self, source: str, watch: WatchList) -> None:
        """Begin a stream of a source: nothing is confirmed, and labels that are gone are lost."""
        with self._lock:
            self._watch[source] = watch
            for label in watch.labels:
                self._ends[source, label.name] = deque(maxlen=label.confirm)
            for key in [key for key in self._last if key[0] == source]:
                if key[1] not in watch.names:
                    del self._last[key]

    def would_confirm(self, source: str, label: str, now_s: float) -> bool:
        """Return whether an event that ends now, by the time of the stream, would be confirmed."""
        with self._lock:
            ends = self._ends[source, label]
            return _recent(ends, now_s) + 1 >= (ends.maxlen or 1)

    def cooling(self, source: str, label: str, now_s: float) -> bool:
        """Return whether no message is sent now of a label, by the time of day."""
        with self._lock:
            last, cooldown_s = self._last.get((source, label)), self._watch[source].cooldown(label)
            # A clock that was set back starts no cool-down.
            return last is not None and last <= now_s < last + cooldown_s

    def decide(self, event: StoredEvent, stream_s: float) -> StoredEvent:
        """Return an event as it is reported; `stream_s` is its end by the time of the stream."""
        if event.rejected:
            return event
        key = event.source, event.label
        with self._lock:
            ends = self._ends[key]
            ends.append(stream_s)
            count, needed = _recent(ends, stream_s), ends.maxlen or 1
            if count < needed:
                why = f"unconfirmed: {count} of {needed} within a minute"
                return replace(event, rejected=why)
            if self._merge:
                for other in reversed(self._reported):
                    if (
                        other.source != event.source
                        and other.label == event.label
                        and other.start_s - APART_S <= event.end_s
                        and event.start_s <= other.end_s + APART_S
                    ):
                        why = f"the same as event {other.id} of {other.source}"
                        return replace(event, rejected=why)
                self._reported.append(event)
            if self.cooling(*key, event.end_s):
                return replace(event, cooling=True)
            self._last[key] = event.end_s
            return event


def _recent(ends: "deque[float]", now_s: float) -> int:
    return sum(now_s - end_s <= WITHIN_S for end_s in ends)
