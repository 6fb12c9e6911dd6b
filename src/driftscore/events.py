"""Scores over time -> events: a label from one time to another.

Each window has one score per label, relative to the label's background and divided by its spread
(`background.py`, `thresholds.py`). An event begins where a score rises above half of the label's
threshold, must reach the threshold, and ends where it falls below half of it; events of a label
that are closer than two seconds are one. Times are the centres of windows, so that they are as fine
as the hop whatever the window. An event whose peak is below that of a negative word is rejected.

Windows are given in order of time, one by one, and nothing later is used: a stream gives the events
of the file.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Samples
from driftscore.errors import UsageError
from driftscore.thresholds import DEFAULT_FALSE_ALARMS
from driftscore.vectors import Scores

BELOW = "below the threshold"
SHORT = "shorter than asked for"
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
    gap_s: float = 2.0
    leave: float = 0.5
    hold_s: float = 60.0
    thresholds_from: str = "auto"

    def __post_init__(self) -> None:
        positive = ("false_alarms", "threshold", "window_s", "hop_s")
        for name, low in [(name, 1e-9) for name in positive] + [
            ("min_duration_s", 0.0), ("gap_s", 0.0), ("leave", 0.0), ("hold_s", 0.0)
        ]:  # fmt: skip
            value = getattr(self, name)
            if value is None:
                continue
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or not (low <= value < 1e9)
            ):
                kind = "positive" if low else "at least 0"
                raise UsageError(f"{name} must be a number that is {kind}, got {value!r}")
        if self.leave > 1:
            raise UsageError(f"leave is a share of the threshold from 0 to 1, got {self.leave}")
        if self.thresholds_from not in SOURCES:
            known = ", ".join(SOURCES)
            raise UsageError(f"Thresholds come from one of {known}; got {self.thresholds_from!r}")

    def changed(self, **changes: object) -> "Detection":
        """Return a copy with other values; None leaves a value as it is."""
        given = {name: value for name, value in changes.items() if value is not None}
        return replace(self, **given)  # type: ignore[arg-type]


SOURCES = ("auto", "calibration", "quiet", "recording")


@dataclass(frozen=True, eq=False)
class Criteria:
    """What the events of each label must reach, in the order of the labels."""

    labels: tuple[str, ...]
    thresholds: Scores
    """Multiples of the spread."""
    min_durations_s: Scores
    negatives: tuple[str, ...] = ()
    """Words whose scores follow those of the labels in every row."""
    opposed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    """Whether a negative word counts against a label: (labels, negatives); empty for always."""


@dataclass
class _Run:
    """A stretch of one label above its lower threshold."""

    start_s: float
    end_s: float
    peak: float
    score: float
    """The peak in the unit of the scores."""
    threshold: float
    against: str = ""
    """The negative word that scores higher at the peak."""

    def joined(self, later: "_Run") -> "_Run":
        best = later if later.peak > self.peak else self
        return replace(best, start_s=self.start_s, end_s=later.end_s)


class Watcher(Protocol):
    """What is given the samples and the scores of a recording as they pass, for a picture."""

    def samples(self, samples: Samples, rate: int) -> None:
        """Take the mono samples that follow."""

    def scores(self, time_s: float, shares: Scores) -> None:
        """Take the score of each label at a time, as a share of its threshold: 1 reaches it."""


class Tracker:
    """The events of one recording, from its windows in order of time."""

    def __init__(self, criteria: Criteria, settings: Detection, *, hop_s: float) -> None:
        self.criteria = criteria
        self._settings = settings
        self._hop_s = hop_s
        self._lower = criteria.thresholds * settings.leave
        self._runs: dict[int, _Run] = {}
        self._waiting: dict[int, _Run] = {}
        self._first = True

    @property
    def active(self) -> list[int]:
        """The labels that are present now, by number."""
        reached = [c for c, run in self._runs.items() if run.peak >= self.criteria.thresholds[c]]
        return sorted({*reached, *self._waiting})

    @property
    def earliest_s(self) -> float:
        """The start of the earliest event that is not finished; infinite if there is none."""
        runs = (*self._runs.values(), *self._waiting.values())
        return min((run.start_s for run in runs), default=float("inf"))

    def held(self, now_s: float) -> NDArray[np.bool_]:
        """Return which columns belong to an event that is not background yet."""
        width = len(self.criteria.labels) + len(self.criteria.negatives)
        mask = np.zeros(width, np.bool_)
        for c, run in self._runs.items():
            since = min(run.start_s, self._waiting[c].start_s if c in self._waiting else now_s)
            mask[c] = (
                now_s - since < self._settings.hold_s and run.peak >= (self.criteria.thresholds[c])
            )
        return mask

    def feed(
        self, start_s: float, end_s: float, scores: Scores, spreads: Scores | float = 1.0
    ) -> list[Event]:
        """Take the scores of one window above the background; return the events that ended."""
        multiples = scores / spreads
        count = len(self.criteria.labels)
        now_s = (start_s + end_s) / 2
        begin_s = start_s if self._first else now_s
        self._first = False
        scale = np.broadcast_to(np.asarray(spreads, np.float64), scores.shape)
        found: list[Event] = []
        above = multiples[:count] >= self._lower
        for c in [
            c for c in self._runs if not above[c] or begin_s - self._runs[c].end_s > self._gap_s
        ]:
            found += self._closed(c)
        for c in np.flatnonzero(above).tolist():
            self._extend(c, begin_s, now_s, multiples, scale)
        found += self._settled(now_s)
        return found

    def finish(self, end_s: float) -> list[Event]:
        """Return the events that are left at the end of the recording."""
        found: list[Event] = []
        for c in list(self._runs):
            run = self._runs[c]
            if end_s - run.end_s <= self._gap_s + self._hop_s:  # it lasts to the end
                run.end_s = end_s
            found += self._closed(c)
        return found + self._settled(float("inf"))

    @property
    def _gap_s(self) -> float:
        return self._settings.gap_s

    def _extend(
        self, c: int, begin_s: float, now_s: float, multiples: Scores, scale: Scores
    ) -> None:
        value = float(multiples[c])
        run = self._runs.get(c)
        end_s = now_s + self._hop_s / 2
        if run is None or value > run.peak:
            start_s = begin_s if run is None else run.start_s
            score, threshold = value * float(scale[c]), self._threshold(c, scale)
            against = self._against(c, value, multiples)
            self._runs[c] = _Run(start_s, end_s, value, score, threshold, against)
        else:
            run.end_s = end_s

    def _threshold(self, c: int, scale: Scores) -> float:
        return float(self.criteria.thresholds[c] * scale[c])

    def _against(self, c: int, value: float, multiples: Scores) -> str:
        """Return the negative word that scores higher than a label, if there is one."""
        others = multiples[len(self.criteria.labels) :]
        if self.criteria.opposed.size:
            others = np.where(self.criteria.opposed[c], others, -np.inf)
        if not len(others) or others.max() <= value:
            return ""
        return self.criteria.negatives[int(others.argmax())]

    def _closed(self, c: int) -> list[Event]:
        """End the run of a label: join it to the one before it, or let that one go."""
        run = self._runs.pop(c)
        if run.peak < self.criteria.thresholds[c]:
            nearly = run.peak >= _NEARLY * self.criteria.thresholds[c]
            return [self._event(c, run, BELOW)] if nearly else []
        before = self._waiting.pop(c, None)
        if before is None:
            self._waiting[c] = run
        elif run.start_s - before.end_s <= self._gap_s:
            self._waiting[c] = before.joined(run)
        else:
            self._waiting[c] = run
            return [self._event(c, before)]
        return []

    def _settled(self, now_s: float) -> list[Event]:
        """Return the events that nothing can be joined to any more."""
        done = [
            c
            for c, waiting in self._waiting.items()
            if (self._runs[c].start_s if c in self._runs else now_s) - waiting.end_s > self._gap_s
        ]
        return [self._event(c, self._waiting.pop(c)) for c in done]

    def _event(self, c: int, run: _Run, rejected: str = "") -> Event:
        if not rejected and run.end_s - run.start_s < self.criteria.min_durations_s[c]:
            rejected = SHORT
        if not rejected and run.against:
            rejected = f"more like {run.against!r}"
        return Event(
            self.criteria.labels[c], run.start_s, run.end_s, run.score, run.threshold,
            rejected=rejected,
        )  # fmt: skip


def in_order(found: Iterator[tuple[list[Event], float]]) -> Iterator[Event]:
    """Yield events by their start, given batches with the earliest start that is still open."""
    waiting: list[Event] = []
    for batch, open_s in found:
        waiting = sorted([*waiting, *batch], key=_order)
        while waiting and waiting[0].start_s < open_s:
            yield waiting.pop(0)
    yield from waiting


def _order(event: Event) -> tuple[float, float, str]:
    return event.start_s, event.end_s, event.label
