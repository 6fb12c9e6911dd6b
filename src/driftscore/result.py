"""Result: the scores of one recording and the labels that follow from them, or its error.

Results are made in blocks; `ResultBlock` has the best labels of many recordings in one step.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from driftscore.vectors import Scores


@dataclass(frozen=True)
class Result:
    """The scores of one recording, or the error that prevented them."""

    source: str
    labels: tuple[str, ...] = ()
    scores: Scores | None = None
    seconds: float = 0.0
    error: str = ""
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
        """Return the first two of the ranking."""
        return self.ranking[:2]

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
        """How far the best label is ahead of the runner-up; infinite if there is none."""
        best = self.best_two()
        return best[0][1] - best[1][1] if len(best) > 1 else math.inf

    def above(self, threshold: float) -> list[str]:
        """Return every label whose score reaches `threshold`, best first."""
        if self.scores is None:
            return []
        chosen = np.flatnonzero(self.scores >= threshold)
        order = chosen[np.argsort(-self.scores[chosen], kind="stable")]
        return [self.labels[c] for c in order]


@dataclass(frozen=True, eq=False)
class ResultBlock:
    """The results of recordings that were scored together; iterate over it for each of them."""

    labels: tuple[str, ...]
    sources: Sequence[str]
    scores: Scores
    """One row for each recording that has no error."""
    seconds: Sequence[float]
    errors: Sequence[str]
    """The error of each recording, empty for a good one."""

    @staticmethod
    def of(result: Result) -> "ResultBlock":
        """Return the block of one result."""
        scores = np.zeros((0, 0)) if result.scores is None else result.scores[None]
        return ResultBlock(result.labels, [result.source], scores, [result.seconds], [result.error])

    def __len__(self) -> int:
        return len(self.sources)

    def __iter__(self) -> Iterator[Result]:
        rows = iter(self.scores)
        for source, end, error in zip(self.sources, self.seconds, self.errors, strict=True):
            if error:
                yield Result(source, self.labels, error=error)
            else:
                yield Result(source, self.labels, next(rows), end)

    def best(self) -> Iterator[tuple[str, float, float, str]]:
        """Yield best label, score, margin and runner-up of each recording that has no error.

        What `Result` says, computed for all at once: an archive has 100,000 of them.
        """
        left, every = self.scores.copy(), np.arange(len(self.scores))
        if not len(left):
            return iter(())
        first = left.argmax(axis=1)
        highest = left[every, first]
        labels = [self.labels[c] for c in first.tolist()]
        if len(self.labels) == 1:
            return zip(labels, highest.tolist(), repeat(math.inf), repeat(""))
        left[every, first] = -math.inf
        second = left.argmax(axis=1)
        margins = highest - left[every, second]
        others = [self.labels[c] for c in second.tolist()]
        return zip(labels, highest.tolist(), margins.tolist(), others, strict=True)
