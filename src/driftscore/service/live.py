"""What the service reads of a listener: its sources and events, and the verdicts of people.

`driftscore listen` writes the store; the service reads it and adds verdicts. Times carry their
zone, and an hour is that of the place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

Verdict = Literal["right", "wrong", ""]
"""What a person says of an event; empty for no verdict, or one that was taken back."""


@dataclass(frozen=True)
class StoredEvent:
    """An event that a listener found."""

    id: str
    source: str
    label: str
    start: datetime
    end: datetime
    score: float
    snr_db: float | None = None
    verdict: Verdict = ""


@dataclass(frozen=True)
class SourceStatus:
    """A source of a listener, as it is now."""

    name: str
    state: str
    """ "running", or in one word why not: "stalled", "stopped"."""
    level_db: float | None = None
    unit: str = "dBFS"
    labels: tuple[tuple[str, float], ...] = ()
    """The labels that stand out now, with their scores, best first."""


class EventStore(Protocol):
    """Where a listener keeps its events; it may be used by several threads."""

    def events(self, since: datetime, limit: int) -> Sequence[StoredEvent]:
        """Return the newest events that began at `since` or later, newest first."""

    def review(self, event_id: str, verdict: Verdict) -> bool:
        """Store a verdict; return whether the event exists."""

    def sources(self) -> Sequence[SourceStatus]:
        """Return every source, as it is now."""

    def counts_by_hour(self, since: datetime) -> Mapping[str, Sequence[int]]:
        """Return the events since then by label: 24 counts, one per hour of the day."""
