"""What the live tab shows: sources, the events of today, when they happened, and verdicts on them.

`driftscore listen` writes the store; the page reads it and adds verdicts, from which `review` sets
thresholds. Times are ISO 8601 with the zone of the place, and an hour is one of the place.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol, runtime_checkable

Verdict = Literal["right", "wrong", ""]
"""What a person says of an event; empty for no verdict, or one that was taken back."""
MOST_EVENTS = 200
NOW_S = 30.0
"""Seconds after its end for which the label of an event counts as current."""
LISTENER_COMMANDS = (
    'driftscore listen yard=mic --labels "siren, dog bark" --store events.db',
    "driftscore serve --store events.db",
)


class ReviewedEvent(Protocol):
    """A live event with the verdict of a person."""

    @property
    def id(self) -> int:
        """Rises with every event of a store."""

    @property
    def source(self) -> str:
        """The name of the source."""

    @property
    def label(self) -> str:
        """What the user typed."""

    @property
    def score(self) -> float:
        """The highest score of the event."""

    @property
    def start(self) -> str:
        """When it began."""

    @property
    def end(self) -> str:
        """When it ended."""

    @property
    def duration_s(self) -> float:
        """How long it was."""

    @property
    def snr_db(self) -> float | None:
        """How far its level is above the level before it, if it is known."""

    @property
    def verdict(self) -> str:
        """One of `Verdict`."""


class KnownSource(Protocol):
    """A source of a listener: whether it gives audio, since when, why not, and its words."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def online(self) -> bool:
        """Whether it gives audio."""

    @property
    def since(self) -> str:
        """Since when this is so."""

    @property
    def why(self) -> str:
        """Why it gives none."""

    @property
    def words(self) -> str:
        """The words that it is searched for."""


@runtime_checkable
class ReviewStore(Protocol):
    """What the page needs of a store of live events; any thread may use it."""

    def events(self, since: datetime, limit: int) -> Sequence[ReviewedEvent]:
        """Return up to `limit` events that began at `since` or later, the newest first."""

    def review(self, event_id: int, verdict: Verdict) -> bool:
        """Store a verdict; return whether there is such an event."""

    def sources(self) -> Sequence[KnownSource]:
        """Return every source."""

    def counts_by_hour(self, since: datetime) -> Mapping[str, Sequence[int]]:
        """Return how many events each label has had since then: 24 counts, one per hour."""


def live_view(store: object, now: datetime) -> dict[str, object]:
    """Return what the tab shows; without a listener, the commands that start one."""
    if not isinstance(store, ReviewStore):
        return {"available": False, "commands": list(LISTENER_COMMANDS)}
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    events = store.events(midnight, MOST_EVENTS)
    current = now - timedelta(seconds=NOW_S)
    return {
        "available": True,
        "sources": [_source(source, events, current) for source in store.sources()],
        "events": [_event(event) for event in events],
        "hours": {label: list(counts) for label, counts in store.counts_by_hour(midnight).items()},
    }


def _source(
    source: KnownSource, events: Sequence[ReviewedEvent], current: datetime
) -> dict[str, object]:
    """Return a source with its current labels, the best score of each, and its last event."""
    own = [event for event in events if event.source == source.name]
    labels: dict[str, float] = {}
    for event in own:
        if datetime.fromisoformat(event.end) >= current:
            labels[event.label] = max(event.score, labels.get(event.label, event.score))
    return {
        "name": source.name,
        "online": source.online,
        "since": _local(source.since, current),
        "why": source.why,
        "words": source.words,
        "labels": sorted(labels.items(), key=lambda item: -item[1]),
        "last": _event(own[0]) if own else None,
    }


def _local(time: str, here: datetime) -> str:
    """Return a time with its zone; one without a zone is UTC, and is told in the zone of `here`."""
    found = datetime.fromisoformat(time)
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC).astimezone(here.tzinfo)
    return found.isoformat()


def _event(event: ReviewedEvent) -> dict[str, object]:
    return {
        "id": event.id,
        "source": event.source,
        "label": event.label,
        "score": event.score,
        "start": event.start,
        "end": event.end,
        "duration_s": event.duration_s,
        "snr_db": event.snr_db,
        "verdict": event.verdict,
    }
