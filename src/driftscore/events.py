"""Scored windows -> events: which label was present, from when to when.

Windows overlap by half, so each one is responsible for its middle only: the border between two
windows is the middle of their overlap. Neighbouring segments with the same label make one event,
and the events of a recording overlap only if several labels are present at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from driftscore.vectors import Scores


@dataclass(frozen=True)
class Segment:
    """The part of a recording that one window is responsible for, with its scores."""

    start_s: float
    end_s: float
    scores: Scores


@dataclass(frozen=True)
class Event:
    """A label that is present for some time, with its highest score."""

    label: str
    start_s: float
    end_s: float
    score: float


def segments(windows: Iterable[tuple[float, float, Scores]]) -> list[Segment]:
    """Give each window (start, end, scores) its own part; gaps (silence) stay gaps."""
    line = list(windows)
    spans = [[start, end] for start, end, _ in line]
    for before, after in pairwise(spans):
        if after[0] < before[1]:
            before[1] = after[0] = (after[0] + before[1]) / 2
    return [Segment(a, b, row) for (a, b), (_, _, row) in zip(spans, line, strict=True)]


def merge(
    parts: Sequence[Segment], labels: Sequence[str], *, threshold: float | None = None
) -> list[Event]:
    """Join neighbouring segments of one label: the best one, or each above `threshold`."""
    events: list[Event] = []
    open_events: dict[int, Event] = {}
    for segment in parts:
        if threshold is None:
            present = {int(np.argmax(segment.scores))}
        else:
            present = {int(c) for c in np.flatnonzero(segment.scores >= threshold)}
        still: dict[int, Event] = {}
        for c in sorted(present):
            score = float(segment.scores[c])
            event = open_events.get(c)
            if event is not None and event.end_s >= segment.start_s:
                still[c] = Event(labels[c], event.start_s, segment.end_s, max(score, event.score))
            else:
                still[c] = Event(labels[c], segment.start_s, segment.end_s, score)
        # An event ends when its label is absent, or when silence comes before the next one.
        events += [
            e for c, e in open_events.items() if c not in still or still[c].start_s != e.start_s
        ]
        open_events = still
    events += open_events.values()
    return sorted(events, key=lambda e: (e.start_s, e.end_s, e.label))
