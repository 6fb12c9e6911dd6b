"""Review events, right or wrong, and fit thresholds to the answers.

Only events that a person answered (`answers.py`) count, and "unsure" counts as no answer.

For a label with n answers at or above a threshold, k of them right, the precision is k / n, with
Wilson's 95 % interval

    (k + z^2 / 2 +- z sqrt(k (n - k) / n + z^2 / 4)) / (n + z^2),    z = 1.96

The threshold that is chosen is the lowest one whose precision reaches the target, with at least
`FEWEST` answers above it: it keeps the most events. Reviewed events lie above the threshold that
found them, so a fit can raise a threshold and never lower it.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from driftscore.answers import RIGHT, WRONG, FoundEvent, Key
from driftscore.errors import UsageError
from driftscore.watchlist import WatchedLabel, WatchList

TARGET = 0.8
"""The precision that a threshold is chosen for."""
FEWEST = 10
"""Answers above a threshold that a fit needs."""
_Z = 1.959963984540054  # 97.5 % quantile of the standard normal distribution


@dataclass(frozen=True)
class Choice:
    """What one threshold would give, by the answers.

    Attributes:
        threshold: the score that an event must reach.
        answers: reviewed events that reach it.
        right: those of them that are right.
        low, high: 95 % interval of the precision.
        kept: the share of all right events that reach it.

    """

    threshold: float
    answers: int
    right: int
    low: float
    high: float
    kept: float

    @property
    def precision(self) -> float:
        """The share of right events."""
        return self.right / self.answers


@dataclass(frozen=True)
class Fit:
    """The thresholds that answers allow for a label, and the one that is chosen, if any."""

    label: str
    choices: tuple[Choice, ...]
    chosen: Choice | None
    note: str


def wilson(right: int, answers: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, by Wilson's score."""
    if not 0 <= right <= answers or answers == 0:
        raise UsageError(f"{right} of {answers} is not a share")
    spread = _Z * math.sqrt(right * (answers - right) / answers + _Z**2 / 4)
    middle, total = right + _Z**2 / 2, answers + _Z**2
    return max(0.0, (middle - spread) / total), min(1.0, (middle + spread) / total)


def fit_threshold(
    label: str,
    scores: Sequence[float],
    right: Sequence[bool],
    *,
    in_use: float | None = None,
    target: float = TARGET,
) -> Fit:
    """Return what each threshold gives, and the lowest one that reaches the target.

    `in_use` is the threshold that found the events: where the target is reached by all of them, it
    stays, since nothing is known about lower scores.
    """
    choices = _choices(np.asarray(scores, np.float64), np.asarray(right, np.bool_), in_use)
    able = [choice for choice in choices if choice.answers >= FEWEST]
    if not able:
        count = f"{len(scores)} answer{' is' if len(scores) == 1 else 's are'}"
        return Fit(label, choices, None, f"{count} too few; {FEWEST} are needed")
    good = [choice for choice in able if choice.precision >= target]
    if not good:
        return Fit(
            label, choices, None,
            f"no threshold with {FEWEST} answers reaches {target:.0%}; other wordings or negative "
            "words may help",
        )  # fmt: skip
    lowest = good[0] is choices[0]
    return Fit(label, choices, good[0], "as it is: all events count" if lowest else "raised")


def _choices(
    scores: NDArray[np.float64], right: NDArray[np.bool_], in_use: float | None
) -> tuple[Choice, ...]:
    """Return the choice at each distinct score, by rising threshold.

    A threshold lies halfway between a score and the next lower one; the lowest is the one in use.
    """
    values = np.unique(scores)
    found = []
    for number, value in enumerate(values.tolist()):
        above = scores >= value
        answers, good = int(above.sum()), int(right[above].sum())
        low, high = wilson(good, answers)
        threshold = (float(values[number - 1]) + value) / 2 if number else _lowest(value, in_use)
        kept = good / max(1, int(right.sum()))
        found.append(Choice(threshold, answers, good, low, high, kept))
    return tuple(found)


def _lowest(score: float, in_use: float | None) -> float:
    """Return the lowest threshold: that in use, unless an event was found below it."""
    return score if in_use is None else min(score, in_use)


def fit_thresholds(
    events: Iterable[FoundEvent], answers: Mapping[Key, str], *, target: float = TARGET
) -> list[Fit]:
    """Fit the threshold of each label to the answers; events without an answer do not count."""
    if not 0 < target <= 1:
        raise UsageError(f"The precision to reach is a share from 0 to 1, got {target:g}")
    by_label: dict[str, list[FoundEvent]] = {}
    for event in events:
        by_label.setdefault(event.label, [])
        if answers.get(event.key) in (RIGHT, WRONG):
            by_label[event.label].append(event)
    fits = []
    for label, reviewed in by_label.items():
        known = [event.threshold for event in reviewed if event.threshold is not None]
        fits.append(
            fit_threshold(
                label,
                [event.score for event in reviewed],
                [answers[event.key] == RIGHT for event in reviewed],
                in_use=min(known, default=None),
                target=target,
            )
        )
    return fits


def with_thresholds(watch: WatchList, fits: Iterable[Fit]) -> WatchList:
    """Return a watch list with the chosen thresholds; other labels stay as they are."""
    chosen = {fit.label: fit.chosen.threshold for fit in fits if fit.chosen is not None}
    known = {label.name for label in watch.labels}
    labels = [*watch.labels, *(WatchedLabel(name) for name in chosen if name not in known)]
    return replace(
        watch,
        labels=tuple(
            replace(label, threshold=_rounded_down(chosen[label.name]), false_alarms=None)
            if label.name in chosen
            else label
            for label in labels
        ),
    )


def _rounded_down(threshold: float) -> float:
    """Return a threshold with few decimals that the lowest event above it still reaches."""
    return max(1e-6, math.floor(threshold * 1e5) / 1e5)


def mixed(events: Sequence[FoundEvent], *, seed: int = 0) -> list[FoundEvent]:
    """Return events with the labels in turn, each in random order.

    The answers are then a fair sample whenever a person stops.
    """
    rng = random.Random(seed)  # noqa: S311 (an order, not a secret)
    queues: dict[str, list[FoundEvent]] = {}
    for event in events:
        queues.setdefault(event.label, []).append(event)
    for queue in queues.values():
        rng.shuffle(queue)
    longest = max(map(len, queues.values()), default=0)
    return [queue[n] for n in range(longest) for queue in queues.values() if n < len(queue)]
