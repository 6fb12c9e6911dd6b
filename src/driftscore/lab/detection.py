"""How well events were found: matching, precision and recall over thresholds, false alarms.

Truth comes before what was found; both are events of one recording: a label from one time to
another, in seconds. Events of several recordings are compared by joining them (`joined`).

A found event may be matched with a true event of the same label if it

    overlap    overlaps it at all, or
    onset      starts at most `onset_s` before or after it (and, if `offset` is asked for, ends at
               most max(onset_s, offset_share * length of the true event) before or after its end).

Matches are one to one, and as many as possible are made, as sed_eval has it. A found event without
a match is a *false alarm*, also if it is the second one for a true event; a true event without a
match is *missed*.

    precision = hits / found    recall = hits / true    F1 = 2 hits / (found + true)

Raising the threshold of a detector is taken to remove the found events with a score below it and to
change nothing about the others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import UndefinedMetricError, UsageError
from driftscore.events.tracking import Event

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

HOUR_S = 3600.0
RESAMPLES = 1000
BLOCK_S = 60.0
"""What is resampled for an interval: minutes, since events of one minute are not independent."""


@dataclass(frozen=True)
class Matching:
    """When a found event may be matched with a true one; without `onset_s`, by any overlap."""

    onset_s: float | None = None
    offset: bool = False
    offset_share: float = 0.5

    def __post_init__(self) -> None:
        if self.onset_s is not None and not self.onset_s >= 0:
            raise UsageError(f"onset_s must be at least 0, got {self.onset_s!r}")
        if self.offset and self.onset_s is None:
            raise UsageError("Matching by offset needs onset_s, the tolerance in seconds")

    def allowed(self, truth: Sequence[Event], detected: Sequence[Event]) -> Bools:
        """Return which true event (rows) may be matched with which found one (columns)."""
        labels = {label: n for n, label in enumerate({e.label for e in (*truth, *detected)})}
        number, start, end = _columns(truth, labels)
        other, begins, ends = _columns(detected, labels)
        same: Bools = number[:, None] == other
        if self.onset_s is None:
            return same & (start[:, None] < ends) & (begins < end[:, None])
        same &= np.abs(start[:, None] - begins) <= self.onset_s
        if self.offset:
            tolerance = np.maximum(self.onset_s, self.offset_share * (end - start))
            same &= np.abs(end[:, None] - ends) <= tolerance[:, None]
        return same


OVERLAP = Matching()
ONSET = Matching(onset_s=1.0)
"""The tolerance of the report: a start within 1 s."""


class EventMatch(NamedTuple):
    """A true event and the found event that it is matched with, by their positions."""

    truth: int
    detected: int


@dataclass(frozen=True)
class DetectionCounts:
    """How many true events were found and missed, and how many false alarms there are."""

    hits: int
    missed: int
    false_alarms: int

    @property
    def precision(self) -> float:
        """The share of found events that are right; NaN if nothing was found."""
        every = self.hits + self.false_alarms
        return self.hits / every if every else float("nan")

    @property
    def recall(self) -> float:
        """The share of true events that were found; NaN if there are none."""
        true = self.hits + self.missed
        return self.hits / true if true else float("nan")

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; NaN if there is no event at all."""
        every = 2 * self.hits + self.missed + self.false_alarms
        return 2 * self.hits / every if every else float("nan")


@dataclass(frozen=True, eq=False)
class DetectionCurve:
    """Precision, recall and false alarms per hour at every threshold, highest threshold first."""

    thresholds: Floats
    precision: Floats
    recall: Floats
    false_alarms_per_hour: Floats

    @property
    def f1(self) -> Floats:
        """F1 at every threshold."""
        both = self.precision + self.recall
        return np.where(both > 0, 2 * self.precision * self.recall / np.maximum(both, 1e-300), 0.0)

    @property
    def best(self) -> int:
        """The position of the highest F1; of several, that with the highest threshold."""
        if not len(self.thresholds):
            raise UndefinedMetricError("Nothing was found, so there is no best threshold")
        return int(self.f1.argmax())

    def recall_at(self, false_alarms_per_hour: float) -> float:
        """Return the highest recall of the thresholds with at most so many false alarms."""
        allowed = self.false_alarms_per_hour <= false_alarms_per_hour
        return float(self.recall[allowed].max(initial=0.0))


def match(
    truth: Sequence[Event], detected: Sequence[Event], matching: Matching
) -> list[EventMatch]:
    """Return as many one-to-one matches as there can be, in the order of the true events.

    Where there is a choice, the found events that start nearest to a true one get theirs first.
    """
    owners = _owners(truth, detected, matching)[1]
    return [EventMatch(t, f) for t, f in enumerate(owners) if f >= 0]


def count(truth: Sequence[Event], detected: Sequence[Event], matching: Matching) -> DetectionCounts:
    """Return the numbers of hits, missed events and false alarms."""
    hits = len(match(truth, detected, matching))
    return DetectionCounts(hits, len(truth) - hits, len(detected) - hits)


def detection_curve(
    truth: Sequence[Event], detected: Sequence[Event], matching: Matching, *, seconds: float
) -> DetectionCurve:
    """Return precision, recall and false alarms at each distinct score, in `seconds` of audio."""
    if not truth:
        raise UndefinedMetricError("Recall is not defined: there is no true event")
    if not seconds > 0:
        raise UsageError(f"seconds must be positive, got {seconds!r}")
    scores = np.array([event.score for event in detected], np.float64)
    order = np.argsort(-scores, kind="stable")
    # A found event that gets a match keeps some match when further ones are added, so the number
    # of matches among the best n is a running sum.
    hit = _owners(truth, detected, matching, order.tolist())[0]
    hits = np.cumsum(hit[order])
    taken = np.arange(1, len(detected) + 1)
    falling = scores[order]
    last = np.r_[falling[1:] < falling[:-1], True][: len(detected)]
    wrong = (taken - hits) / (seconds / HOUR_S)
    columns = (falling, hits / np.maximum(taken, 1), hits / len(truth), wrong)
    return DetectionCurve(*(np.asarray(column[last], np.float64) for column in columns))


def onset_errors(truth: Sequence[Event], detected: Sequence[Event], matching: Matching) -> Floats:
    """Return for each match how many seconds the found event starts after the true one."""
    pairs = match(truth, detected, matching)
    return np.array(
        [detected[p.detected].start_s - truth[p.truth].start_s for p in pairs], np.float64
    )


def count_within(detected: Sequence[Event], start_s: float, end_s: float) -> int:
    """Return how many found events overlap a part of the recording, such as a quiet one."""
    return sum(event.start_s < end_s and event.end_s > start_s for event in detected)


def joined(
    recordings: Iterable[tuple[Sequence[Event], Sequence[Event], float]],
) -> tuple[list[Event], list[Event], float]:
    """Return (truth, found, seconds) of several recordings as those of one, one after the other.

    The times of later recordings are moved far behind the earlier ones, so that no event is matched
    with one of another recording; `seconds` is the sum.
    """
    truth: list[Event] = []
    detected: list[Event] = []
    total, start = 0.0, 0.0
    for true, events, seconds in recordings:
        truth += [Event(e.label, e.start_s + start, e.end_s + start, 0.0) for e in true]
        detected += [Event(e.label, e.start_s + start, e.end_s + start, e.score) for e in events]
        total += seconds
        start += seconds + HOUR_S
    return truth, detected, total


def block_counts(
    truth: Sequence[Event],
    detected: Sequence[Event],
    matching: Matching,
    *,
    seconds: float,
    block_s: float = BLOCK_S,
) -> NDArray[np.int64]:
    """Return hits, missed events and false alarms (columns) of each minute by when they start."""
    blocks = max(1, int(np.ceil(seconds / block_s)))
    counts = np.zeros((blocks, 3), np.int64)
    pairs = match(truth, detected, matching)
    hit, taken = {p.truth for p in pairs}, {p.detected for p in pairs}

    def block(event: Event) -> int:
        return min(int(event.start_s / block_s), blocks - 1)

    for number, event in enumerate(truth):
        counts[block(event), 0 if number in hit else 1] += 1
    for number, event in enumerate(detected):
        if number not in taken:
            counts[block(event), 2] += 1
    return counts


def f1_values(counts: NDArray[np.int64]) -> Floats:
    """Return F1 from hits, missed events and false alarms in the last axis; 0 without an event."""
    every = 2 * counts[..., 0] + counts[..., 1] + counts[..., 2]
    return np.asarray(2 * counts[..., 0] / np.maximum(every, 1), np.float64)


def resampled(
    counts: Sequence[NDArray[np.int64]], *, resamples: int = RESAMPLES, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Return sums of `block_counts` over blocks drawn with replacement (resamples x 3).

    All tables are of the same recordings and get the same draws, so that differences between
    detectors are paired.
    """
    blocks = len(counts[0])
    if any(table.shape != (blocks, 3) for table in counts):
        raise UsageError("Counts of the same blocks are needed: their numbers differ")
    drawn = rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=resamples)
    return [drawn @ table for table in counts]


def _owners(
    truth: Sequence[Event],
    detected: Sequence[Event],
    matching: Matching,
    order: Sequence[int] | None = None,
) -> tuple[Bools, list[int]]:
    """Return which found events are matched, and the found event of each true one (-1: none).

    Found events are added in `order` (None: those that start nearest to a true one first), each by
    an augmenting path if there is one, so that the number of matches is the largest possible after
    every step. Near onsets are tried first.
    """
    starts = np.array([event.start_s for event in truth], np.float64)
    begins = np.array([event.start_s for event in detected], np.float64)
    allowed = matching.allowed(truth, detected)
    distances = np.where(allowed, np.abs(starts[:, None] - begins), np.inf)
    if order is None:
        order = np.argsort(distances.min(axis=0, initial=np.inf), kind="stable").tolist()
    nearest = np.argsort(distances, axis=0, kind="stable").T
    near = [
        row[: int(np.isfinite(column).sum())].tolist()
        for row, column in zip(nearest, distances.T, strict=True)
    ]
    owners = [-1] * len(truth)
    matched = np.zeros(len(detected), np.bool_)
    for number in order:
        matched[number] = _augment(number, near, owners, set())
    return matched, owners


def _augment(number: int, near: list[list[int]], owners: list[int], seen: set[int]) -> bool:
    """Match a found event, giving other found events another true one where that is needed."""
    for true in near[number]:
        if true not in seen:
            seen.add(true)
            if owners[true] < 0 or _augment(owners[true], near, owners, seen):
                owners[true] = number
                return True
    return False


def _columns(events: Sequence[Event], labels: dict[str, int]) -> tuple[Floats, Floats, Floats]:
    """Return the label number, start and end of events as columns."""
    table = np.array([(labels[e.label], e.start_s, e.end_s) for e in events], np.float64)
    number, start, end = table.reshape(-1, 3).T
    if not (np.isfinite(start).all() and np.isfinite(end).all() and (start <= end).all()):
        raise UsageError("Events must have finite times and must not end before they start")
    return number, start, end
