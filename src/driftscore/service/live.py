"""Live events: what `driftscore listen` found, as the service reads it.

The service reads events from an `EventStore` and never writes one. A store numbers its events with
rising ids, so that a client which was away continues where it was. `EventLog` is the store of a
listener in the same process; one that runs elsewhere keeps its events in SQLite
(`live/store.py`).
"""

from collections import deque
from collections.abc import Sequence
from threading import Lock
from typing import Protocol

from driftscore.live.records import LiveEvent

__all__ = ["EventLog", "EventStore", "LiveEvent"]


class EventStore(Protocol):
    """Where live events are kept; its methods may be called from any thread."""

    def newest(self) -> int:
        """Return the id of the newest event, 0 if there is none."""

    def after(self, id: int, most: int) -> Sequence[LiveEvent]:
        """Return up to `most` events with higher ids, in the order of their ids."""


class EventLog:
    """The latest events of a listener in this process, in memory."""

    def __init__(self, size: int = 1000) -> None:
        self._events: deque[LiveEvent] = deque(maxlen=size)
        self._lock = Lock()

    def publish(self, event: LiveEvent) -> None:
        """Add an event, whose id must be higher than those before it."""
        with self._lock:
            self._events.append(event)

    def newest(self) -> int:
        """Return the id of the newest event, 0 if there is none."""
        with self._lock:
            return self._events[-1].id if self._events else 0

    def after(self, id: int, most: int) -> list[LiveEvent]:
        """Return up to `most` events with higher ids, in the order of their ids."""
        with self._lock:
            return [event for event in self._events if event.id > id][:most]
