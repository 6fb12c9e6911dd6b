"""Scores over time -> events: a label from one time to another.

Each window has one score per label, relative to the label's background and divided by its spread
(`background.py`, `thresholds.py`). An event begins where a score rises above a share of the label's
threshold, must reach the threshold, and ends where it falls below that share; events of a label
that are closer than three seconds are one. An event whose peak is below that of a negative word is
rejected. Many low peaks of a label raise its threshold from then on (`restlessness`).

A sound raises the score of a window of which it fills about `REACH_S`. So an event begins that long
before the end of its first window, and ends that long after the start of its last one: times are as
fine as the hop, whatever the window.

Windows are given in order of time, one by one, and nothing later is used: a stream gives the events
of the file.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Samples
from driftscore.backbones.vectors import Scores
from driftscore.errors import UsageError
from driftscore.events.thresholds import DEFAULT_FALSE_ALARMS, FORGET_H, restlessness

HOUR_S = 3600.0
NEVER = 1e9
"""A multiple that no score reaches."""
BELOW = "below the threshold"
SHORT = "shorter than asked for"
REACH_S = 0.65
"""How much of a window a sound must fill; measured, and alike for windows of 2 to 4 s."""
SOURCES = ("auto", "calibration", "quiet", "recording")
_FROM_ZERO = ("min_duration_s", "gap_s", "leave", "hold_s")
_NEARLY = 0.75
"""Share of the threshold from which a rejected event is worth a mention."""


@dataclass(frozen=True)
class Event:
    """A label that is present for some time.

    Attributes:
        label: what the user typed.
        start_s, end_s: from when to when, in seconds from the start of the recording.
        score: its highest score above its background.
        threshold: the score that it had to reach.
        level_db: mean level during the event in dBFS, if it is known.
        snr_db: how far that is above the level before the event, if it is known.
        rejected: why it is not reported; empty for an event that is.

    """

    label: str
    start_s: float
    end_s: float
    score: float
    threshold: float | None = None
    level_db: float | None = None
    snr_db: float | None = None
    rejected: str = ""


@dataclass(frozen=True)
class Detection:
    """How events are found.

    Attributes:
        false_alarms: how many false alarms per hour and label are acceptable.
        threshold: the same score above the background for every label, in place of the above.
        window_s: length of a window in seconds; None for what suits the backbone.
        hop_s: seconds from one window to the next; None for what suits the backbone.
        min_duration_s: shorter events are rejected.
        gap_s: events of one label that are no further apart are one event.
        leave: an event ends below this share of the threshold.
        hold_s: for so long an event does not count as background of its own label.
        thresholds_from: "calibration", "quiet" (the quiet recording in the calibration),
            "recording" (the recording itself), or "auto" for quiet if there is one.

    """

    false_alarms: float = DEFAULT_FALSE_ALARMS
    threshold: float | None = None
    window_s: float | None = None
    hop_s: float | None = None
    min_duration_s: float = 0.0
    gap_s: float = 3.0
    leave: float = 0.35
    hold_s: float = 60.0
    thresholds_from: str = "auto"

    def __post_init__(self) -> None:
        for name in ("false_alarms", "threshold", "window_s", "hop_s", "min_duration_s", "gap_s",
                     "leave", "hold_s"):  # fmt: skip
            value = getattr(self, name)
            low, kind = (0.0, "at least 0") if name in _FROM_ZERO else (1e-9, "positive")
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (is_number and low <= value < 1e9):
                raise UsageError(f"{name} must be a number that is {kind}, got {value!r}")
        if self.leave > 1:
            raise UsageError(f"leave is a share of the threshold from 0 to 1, got {self.leave}")
        if self.thresholds_from not in SOURCES:
            names = ", ".join(SOURCES)
            raise UsageError(f"Thresholds come from one of {names}; got {self.thresholds_from!r}")

    def changed(self, **changes: object) -> "Detection":
        """Return a copy with other values; None leaves a value as it is."""
        values = {name: value for name, value in changes.items() if value is not None}
        return replace(self, **values)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class LabelRules:
    """What the events of each label must reach, in the order of the labels."""

    labels: tuple[str, ...]
    thresholds: Scores
    """Multiples of the spread."""
    min_durations_s: Scores
    negatives: tuple[str, ...] = ()
    """Words whose scores follow those of the labels in every row."""
    opposed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    """Whether a negative word counts against a label: (labels, negatives); empty for always."""
    low: Scores = field(default_factory=lambda: np.zeros(0))
    """The multiples from which on peaks are counted: many of them raise the threshold of a label;
    `NEVER` for a threshold that does not move, empty if none does."""


@dataclass
class _Run:
    """A stretch of windows of one label above its lower threshold."""

    first_s: float
    """Start of its first window."""
    last_s: float
    """Start of its last window."""
    window_s: float
    peak: float
    score: float
    """The peak in the unit of the scores."""
    required: float
    """The multiple that it must reach."""
    threshold: float
    """The same in the unit of the scores."""
    against: str = ""
    """The negative word that scores higher at the peak."""


class Observer(Protocol):
    """What is given the samples and the scores of a recording as they pass, for a picture."""

    def samples(self, samples: Samples, rate: int) -> None:
        """Take the mono samples that follow."""

    def scores(self, time_s: float, shares: Scores) -> None:
        """Take the score of each label at a time, as a share of its threshold: 1 reaches it."""


class Tracker:
    """The events of one recording, from its windows in order of time."""

    def __init__(self, criteria: LabelRules, settings: Detection, *, hop_s: float) -> None:
        self.criteria = criteria
        self._settings = settings
        self._hop_s = hop_s
        self._lower = criteria.thresholds * settings.leave
        self._runs: dict[int, _Run] = {}
        self._waiting: dict[int, _Run] = {}
        self._begin_s: float | None = None
        self._end_s = float("inf")
        self._low = criteria.low if len(criteria.low) else np.full(len(criteria.labels), NEVER)
        self._peaks = np.zeros(len(criteria.labels))  # low ones, old ones forgotten
        self._counted_s = 0.0  # when they were counted last

    def thresholds(self, now_s: float) -> Scores:
        """Return the multiples that a run must reach which begins now."""
        begin_s = now_s if self._begin_s is None else self._begin_s
        forgotten = np.exp(-(now_s - self._counted_s) / HOUR_S / FORGET_H)
        raised = restlessness(self._peaks * forgotten, (now_s - begin_s) / HOUR_S)
        return self.criteria.thresholds + raised

    @property
    def active(self) -> list[int]:
        """The labels that are present now, by number; not those that a negative word exceeds."""
        reached = [c for c, run in self._runs.items() if run.peak >= run.required]
        runs = [(c, self._runs[c]) for c in reached] + list(self._waiting.items())
        return sorted({c for c, run in runs if not run.against})

    @property
    def open(self) -> list[Event]:
        """The events that are sure and not over, as they are so far."""
        events = []
        for c in self.active:
            runs = [runs[c] for runs in (self._waiting, self._runs) if c in runs]
            best = max(runs, key=lambda run: run.peak)
            event = self._event(c, replace(best, first_s=runs[0].first_s, last_s=runs[-1].last_s))
            if not event.rejected:
                events.append(event)
        return events

    @property
    def earliest_s(self) -> float:
        """No event that is not finished starts before this; infinite if there is none."""
        runs = (*self._runs.values(), *self._waiting.values())
        return min((run.first_s for run in runs), default=float("inf"))

    def held(self, now_s: float) -> NDArray[np.bool_]:
        """Return which columns belong to an event that is not background yet."""
        width = len(self.criteria.labels) + len(self.criteria.negatives)
        mask = np.zeros(width, np.bool_)
        for c, run in self._runs.items():
            since_s = min(run.first_s, self._waiting[c].first_s if c in self._waiting else now_s)
            reached = run.peak >= run.required
            mask[c] = reached and now_s - since_s < self._settings.hold_s
        return mask

    def feed(
        self, start_s: float, end_s: float, scores: Scores, spreads: Scores | float = 1.0
    ) -> list[Event]:
        """Take the scores of one window above the background; return the events that ended."""
        if self._begin_s is None:
            self._begin_s = start_s
        criteria, count = self.criteria, len(self.criteria.labels)
        multiples = scores / spreads
        scale = np.broadcast_to(np.asarray(spreads, np.float64), scores.shape)
        above = multiples[:count] >= self._lower
        events: list[Event] = []
        for c, run in list(self._runs.items()):
            if not above[c] or self._gap(run, start_s) > self._settings.gap_s:
                events += self._closed(c)
        thresholds = self.thresholds(start_s) if above.any() else criteria.thresholds
        for c in np.flatnonzero(above).tolist():
            value, previous = float(multiples[c]), self._runs.get(c)
            if previous is not None and value <= previous.peak:
                previous.last_s = start_s
                continue
            others = multiples[count:]
            if criteria.opposed.size:
                others = np.where(criteria.opposed[c], others, -np.inf)
            exceeded = len(others) > 0 and others.max() > value
            required = float(thresholds[c]) if previous is None else previous.required
            self._runs[c] = _Run(
                start_s if previous is None else previous.first_s,
                start_s,
                end_s - start_s,
                value,
                value * float(scale[c]),
                required,
                required * float(scale[c]),
                criteria.negatives[int(others.argmax())] if exceeded else "",
            )
        return events + self._settled(start_s)

    def finish(self, end_s: float) -> list[Event]:
        """Return the events that are left at the end of the recording."""
        self._end_s = end_s
        events = [event for c in list(self._runs) for event in self._closed(c)]
        return events + self._settled(float("inf"))

    def _gap(self, run: _Run, start_s: float) -> float:
        """Return the seconds between a run and a window that starts later."""
        return start_s - run.last_s - self._hop_s

    def _closed(self, c: int) -> list[Event]:
        """End the run of a label: join it to the one before it, or let that one go."""
        run = self._runs.pop(c)
        if run.peak >= self._low[c]:
            self._peaks *= np.exp(-(run.last_s - self._counted_s) / HOUR_S / FORGET_H)
            self._peaks[c] += 1
            self._counted_s = run.last_s
        if run.peak < run.required:
            nearly = run.peak >= _NEARLY * run.required
            return [self._event(c, run, BELOW)] if nearly else []
        before = self._waiting.pop(c, None)
        if before is not None and self._gap(before, run.first_s) <= self._settings.gap_s:
            best = run if run.peak > before.peak else before
            self._waiting[c] = replace(best, first_s=before.first_s, last_s=run.last_s)
            return []
        self._waiting[c] = run
        return [] if before is None else [self._event(c, before)]

    def _settled(self, start_s: float) -> list[Event]:
        """Return the events that nothing can be joined to any more."""
        events = []
        for c, waiting in list(self._waiting.items()):
            next_s = self._runs[c].first_s if c in self._runs else start_s
            if self._gap(waiting, next_s) > self._settings.gap_s:
                events.append(self._event(c, self._waiting.pop(c)))
        return events

    def _event(self, c: int, run: _Run, rejected: str = "") -> Event:
        """Return the event of a run; an end of the recording that it touches is its end."""
        reach_s, begin_s = min(REACH_S, run.window_s / 2), self._begin_s or 0.0
        start_s, end_s = run.first_s + run.window_s - reach_s, run.last_s + reach_s
        if end_s < start_s + self._hop_s:
            middle_s = (start_s + end_s) / 2
            start_s, end_s = middle_s - self._hop_s / 2, middle_s + self._hop_s / 2
        if run.first_s <= begin_s:
            start_s = begin_s
        if run.last_s + run.window_s + self._hop_s > self._end_s:
            end_s = self._end_s
        if not rejected and end_s - start_s < self.criteria.min_durations_s[c]:
            rejected = SHORT
        if not rejected and run.against:
            rejected = f"more like {run.against!r}"
        label = self.criteria.labels[c]
        return Event(label, start_s, end_s, run.score, run.threshold, rejected=rejected)


def in_order(batches: Iterator[tuple[list[Event], float]]) -> Iterator[Event]:
    """Yield events by their start, given batches with the earliest start that is still open."""
    waiting: list[Event] = []
    for batch, open_s in batches:
        waiting += batch
        waiting.sort(key=lambda event: (event.start_s, event.end_s, event.label))
        while waiting and waiting[0].start_s < open_s:
            yield waiting.pop(0)
    yield from waiting
