"""What the live tab shows: sources, the events of today, when they happened, and verdicts on them.

`driftscore listen` writes the store; the page reads it and adds verdicts, from which `review` sets
thresholds. Times carry the zone of the place, and an hour is one of the place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable

from driftscore.service.live import EventStore, LiveEvent

Verdict = Literal["right", "wrong", ""]
"""What a person says of an event; empty for no verdict, or one that was taken back."""
MOST_EVENTS = 200
LISTENER_COMMANDS = (
    "driftscore listen mic --words 'siren, dog bark' --store events.db",
    "driftscore serve --events events.db",
)


@dataclass(frozen=True)
class ReviewedEvent:
    """A live event with the verdict of a person."""

    event: LiveEvent
    verdict: Verdict = ""


@dataclass(frozen=True)
class SourceStatus:
    """A source of a listener, as it is now."""

    name: str
    state: str
    """The word "running", or why not: "stalled", "stopped"."""
    level_db: float | None = None
    unit: str = "dBFS"
    labels: tuple[tuple[str, float], ...] = ()
    """The labels that stand out now, with their scores, best first."""


@runtime_checkable
class ReviewStore(EventStore, Protocol):
    """A store of live events that also has sources and verdicts; any thread may use it."""

    def events(self, since: datetime, limit: int) -> Sequence[ReviewedEvent]:
        """Return up to `limit` events that began at `since` or later, the newest first."""

    def review(self, event_id: int, verdict: Verdict) -> bool:
        """Store a verdict; return whether there is such an event."""

    def sources(self) -> Sequence[SourceStatus]:
        """Return every source, as it is now."""

    def counts_by_hour(self, since: datetime) -> Mapping[str, Sequence[int]]:
        """Return how many events each label has had since then: 24 counts, one per hour."""


def live_view(store: EventStore, now: datetime) -> dict[str, object]:
    """Return what the tab shows; without a listener, the commands that start one."""
    if not isinstance(store, ReviewStore):
        return {"available": False, "commands": list(LISTENER_COMMANDS)}
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return {
        "available": True,
        "sources": [asdict(source) for source in store.sources()],
        "events": [
            {**asdict(one.event), "verdict": one.verdict}
            for one in store.events(midnight, MOST_EVENTS)
        ],
        "hours": {label: list(counts) for label, counts in store.counts_by_hour(midnight).items()},
    }
