"""How each label has scored lately: the running level that events are measured against.

    level = max(median of the last 20 s, median of the last 3 min)

The short median follows a background that has just become louder, the long one remembers a
background that pauses. Only the past counts, so a stream and a file give the same level. Before
there is a past, its place is taken by what the label scores on other sounds (the calibration), or
by the first scores if there is no calibration.
"""

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones.vectors import Scores
from driftscore.events.thresholds import spread_of

Mask = NDArray[np.bool_]

SHORT_S = 20.0
LONG_S = 180.0
_EVERY_S = 1.0  # one row of scores per second is enough for a median
_LEARNT = 1 / 6  # share of the long span that a spread is estimated from at the earliest


class Background:
    """The running level of each label, in the unit of the scores."""

    def __init__(self, hop_s: float, *, prior: Scores | None = None) -> None:
        step_s = max(hop_s, _EVERY_S)
        self._every = max(1, round(step_s / hop_s))
        self._short = max(1, round(SHORT_S / step_s))
        self._long = max(1, round(LONG_S / step_s))
        self._rows: Scores = np.zeros((0, 0))
        self._level: Scores = np.zeros(0)
        self._seen = 0  # rows of scores so far
        self._learnt = 0  # of these, rows in the medians
        if prior is not None:
            self.level(prior)

    def level(self, scores: Scores) -> Scores:
        """Return the level before these scores; the first ones begin it, if there is no prior."""
        if not len(self._rows):
            self._rows = np.repeat(np.asarray(scores, np.float64)[None], self._long, axis=0)
            self._level = self._rows[-1].copy()
        return self._level

    def spread(self) -> Scores | None:
        """Return the spread of each label in the past minutes; None while it is too short."""
        if self._learnt < _LEARNT * self._long:
            return None
        # Places have long tails: the lower half would make it too small.
        spread = spread_of(self._rows[-self._learnt :], max_skew=1e9)
        return np.maximum(spread, 0.25 * float(np.median(spread)))

    def update(self, scores: Scores, held: Mask) -> None:
        """Add scores to the past; the level of labels that are `held` does not move."""
        level = self.level(scores)
        if self._seen % self._every == 0:
            self._rows[:-1] = self._rows[1:]
            self._rows[-1] = np.where(held, level, scores)
            self._learnt = min(self._learnt + 1, self._long)
            recent, past = self._rows[-self._short :], self._rows
            self._level = np.maximum(np.median(recent, axis=0), np.median(past, axis=0))
        self._seen += 1
