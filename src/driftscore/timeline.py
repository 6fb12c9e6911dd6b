"""Windows with their scores -> events: what was heard, from when to when.

Windows overlap by half, so each one answers for its middle only: the line between two
windows is the middle of what they share. Neighbouring stretches with the same label make
one event, and events of one recording never overlap unless several labels hold at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from driftscore.vectors import Scores


@dataclass(frozen=True)
class Stretch:
    """The part of a recording that one window answers for, with the window's scores."""

    start_s: float
    end_s: float
    scores: Scores


@dataclass(frozen=True)
class Event:
    """A label that held for a while, with its best score on the way."""

    label: str
    start_s: float
    end_s: float
    score: float


def stretches(windows: Iterable[tuple[float, float, Scores]]) -> list[Stretch]:
    """Give each window (start, end, scores) its own part; gaps (silence) stay gaps."""
    line = list(windows)
    spans = [[start, end] for start, end, _ in line]
    for before, after in pairwise(spans):
        if after[0] < before[1]:
            before[1] = after[0] = (after[0] + before[1]) / 2
    return [Stretch(a, b, row) for (a, b), (_, _, row) in zip(spans, line, strict=True)]


def merge(
    line: Sequence[Stretch], labels: Sequence[str], *, threshold: float | None = None
) -> list[Event]:
    """Join neighbouring stretches of one label: the best one, or each above `threshold`."""
    events: list[Event] = []
    open_events: dict[int, Event] = {}
    for stretch in line:
        if threshold is None:
            heard = {int(np.argmax(stretch.scores))}
        else:
            heard = {int(c) for c in np.flatnonzero(stretch.scores >= threshold)}
        still: dict[int, Event] = {}
        for c in sorted(heard):
            score = float(stretch.scores[c])
            event = open_events.get(c)
            if event is not None and event.end_s >= stretch.start_s:
                still[c] = Event(labels[c], event.start_s, stretch.end_s, max(score, event.score))
            else:
                still[c] = Event(labels[c], stretch.start_s, stretch.end_s, score)
        # An event ends when its label is not heard, or a silence lies before the next one.
        events += [
            e for c, e in open_events.items() if c not in still or still[c].start_s != e.start_s
        ]
        open_events = still
    events += open_events.values()
    return sorted(events, key=lambda e: (e.start_s, e.end_s, e.label))
