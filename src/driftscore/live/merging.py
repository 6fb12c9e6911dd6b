"""Neighbouring microphones: a sound that several sources have at the same time is reported once.

The source whose event ends first reports it; the events of others with the same label that overlap
it, or miss it by less than `APART_S`, are rejected with the source as the reason.
"""

import threading
from collections import deque
from datetime import timedelta

from driftscore.live.records import EventRecord

APART_S = 1.0
_KEPT = 1000  # events


class Merging:
    """The last events of all sources; any thread may ask."""

    def __init__(self) -> None:
        self._reported: deque[EventRecord] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()

    def same_as(self, record: EventRecord) -> str:
        """Return why an event is not reported; empty if it is new, and it is then kept."""
        apart = timedelta(seconds=APART_S)
        with self._lock:
            for other in reversed(self._reported):
                if (
                    other.source != record.source
                    and other.event.label == record.event.label
                    and other.start - apart <= record.end
                    and record.start <= other.end + apart
                ):
                    return f"the same as event {other.id} of {other.source}"
            self._reported.append(record)
            return ""
