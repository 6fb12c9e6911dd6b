"""Result: the scores of one recording and the labels that follow from them, or its error."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from driftscore.vectors import Scores


@dataclass(slots=True)  # not frozen, which would take three times as long to make
class Result:
    """The scores of one recording, or the error that prevented them."""

    source: str
    labels: tuple[str, ...] = ()
    scores: Scores | None = None
    seconds: float = 0.0
    error: str = ""
    leading: Sequence[tuple[str, float]] = field(default=(), repr=False, compare=False)
    """The best two labels with their scores, if they were computed for many at once."""
    fits: tuple[bool, ...] | None = None
    """Whether each label fits at all; None where that was not asked: the best one is taken."""

    @property
    def ranking(self) -> list[tuple[str, float]]:
        """Labels with their scores, best first; ties in the order of the labels."""
        if self.scores is None:
            return []
        order = np.argsort(-self.scores, kind="stable")
        return [(self.labels[c], float(self.scores[c])) for c in order]

    def best_two(self) -> Sequence[tuple[str, float]]:
        """Return the first two of the ranking, without ranking the rest."""
        if self.scores is None:
            return []
        return self.leading or _best_two(self.labels, self.scores[None])[0]

    @property
    def label(self) -> str:
        """The best label; empty if none fits."""
        if self.scores is None:
            return ""
        if self.fits is None:
            return self.labels[int(self.scores.argmax())]
        fitting = np.where(self.fits, self.scores, -math.inf)
        return self.labels[int(fitting.argmax())] if any(self.fits) else ""

    @property
    def margin(self) -> float:
        """How far the best label is ahead of the runner-up."""
        return lead(self.best_two())

    def above(self, threshold: float) -> list[str]:
        """Return every label whose score reaches `threshold`, best first."""
        if self.scores is None:
            return []
        chosen = np.flatnonzero(self.scores >= threshold)
        order = chosen[np.argsort(-self.scores[chosen], kind="stable")]
        return [self.labels[c] for c in order]


def lead(best_two: Sequence[tuple[str, float]]) -> float:
    """Return the margin of the first of two labels; infinite if there is no second."""
    return best_two[0][1] - best_two[1][1] if len(best_two) > 1 else math.inf


def results(
    labels: tuple[str, ...], names: Sequence[str], scores: Scores, seconds: Sequence[float] = ()
) -> Iterator[Result]:
    """Yield the results of many recordings; the best two labels are computed for all at once."""
    ends = seconds or [0.0] * len(names)
    best = _best_two(labels, scores)
    for name, row, end, leading in zip(names, scores, ends, best, strict=True):
        yield Result(name, labels, row, end, leading=leading)


def _best_two(labels: tuple[str, ...], scores: Scores) -> list[list[tuple[str, float]]]:
    """Return the first two of each row's ranking; ties in the order of the labels."""
    left, every = scores.copy(), np.arange(len(scores))
    places: list[list[tuple[str, float]]] = [[] for _ in every]
    for _ in labels[:2]:
        best = left.argmax(axis=1) if len(left) else every
        values = left[every, best].tolist()
        for place, c, value in zip(places, best.tolist(), values, strict=True):
            place.append((labels[c], value))
        left[every, best] = -math.inf
    return places
