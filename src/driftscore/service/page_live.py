"""What the live tab shows: sources, the events of today, when they happened, and verdicts on them.

`driftscore listen` writes the store; the page reads it and adds verdicts, from which `review` sets
thresholds. Times are ISO 8601 with the zone of the place, and an hour is one of the place.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Literal

from driftscore.live.store import SqliteEvents, StoredEvent, StoredSource

Verdict = Literal["right", "wrong", ""]
"""What a person says of an event; empty for no verdict, or one that was taken back."""
MOST_EVENTS = 200
NOW_S = 30.0
"""Seconds after its end for which the label of an event counts as recent."""
LISTENER_COMMANDS = (
    'driftscore listen yard=mic --labels "siren, dog bark" --store events.db',
    "driftscore serve --store events.db",
)


def live_view(store: object, now: datetime) -> dict[str, object]:
    """Return what the tab shows; without a listener, the commands that start one."""
    if not isinstance(store, SqliteEvents):
        return {"available": False, "commands": list(LISTENER_COMMANDS)}
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    events = store.events(midnight, MOST_EVENTS)
    recent = now - timedelta(seconds=NOW_S)
    hours = store.counts_by_hour(midnight)
    return {
        "available": True,
        "clips": store.clips is not None,
        "now": now.isoformat(),
        "sources": [_source(source, events, recent) for source in store.sources()],
        "events": [asdict(event) for event in events],
        "count": sum(map(sum, hours.values())),
        "hours": hours,
    }


def _source(
    source: StoredSource, events: Sequence[StoredEvent], recent: datetime
) -> dict[str, object]:
    """Return a source with its last event and the labels of recent ones, the best score of each."""
    own = [event for event in events if event.source == source.name]
    labels: dict[str, float] = {}
    for event in own:
        if datetime.fromisoformat(event.end) >= recent:
            labels[event.label] = max(event.score, labels.get(event.label, event.score))
    return {
        **asdict(source),
        "recent": sorted(labels.items(), key=lambda item: -item[1]),
        "last": asdict(own[0]) if own else None,
    }
