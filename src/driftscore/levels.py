"""How loud it is: the level of a stream over time, and that of an event above what came before.

Levels are in dB relative to full scale (dBFS): 0 dB is a square wave at full scale, a sine at full
scale has -3 dB.
"""

from collections import deque
from itertools import islice

import numpy as np

from driftscore.audio import Samples

STEP_S = 0.1
"""Seconds of one level."""
KEPT_S = 900.0
"""How much of the past is kept."""
BEFORE_S = 30.0
"""Seconds before an event that count as its background."""
FLOOR_DB = -120.0
"""The level of digital silence."""


class LevelTrack:
    """Mean power of each tenth of a second of a stream; the last quarter of an hour is kept."""

    def __init__(self, rate: int) -> None:
        self._step = max(1, round(rate * STEP_S))
        self._rest: Samples = np.zeros(0, np.float32)
        self._powers: deque[float] = deque(maxlen=round(KEPT_S / STEP_S))
        self._first = 0  # number of the first step that is kept

    def feed(self, samples: Samples) -> None:
        """Add the samples that follow."""
        joined = np.concatenate([self._rest, samples]) if len(self._rest) else samples
        count = len(joined) // self._step
        parts = joined[: count * self._step].reshape(count, self._step).astype(np.float64)
        powers = (parts * parts).mean(axis=1).tolist()
        self._first += max(0, len(self._powers) + count - round(KEPT_S / STEP_S))
        self._powers.extend(powers)
        self._rest = joined[count * self._step :].copy()

    def level_db(self, start_s: float, end_s: float) -> float | None:
        """Return the mean level of a span; None if nothing of it is kept."""
        powers = self._between(start_s, end_s)
        return decibels(float(np.mean(powers))) if powers else None

    def snr_db(self, start_s: float, end_s: float) -> float | None:
        """Return how far a span is above the median level of the half minute before it.

        The background is part of the span as well, and is subtracted. None where there is nothing
        before the span, or where the span is not louder than that.
        """
        inside = self._between(start_s, end_s)
        before = self._between(max(0.0, start_s - BEFORE_S), start_s - 0.5)
        if not inside or len(before) < 1 / STEP_S:
            return None
        noise = float(np.median(before))
        power = float(np.mean(inside)) - noise
        if power <= 0 or noise <= 0:
            return None
        return 10 * float(np.log10(power / noise))

    def _between(self, start_s: float, end_s: float) -> list[float]:
        first = round(start_s / STEP_S) - self._first
        last = max(round(end_s / STEP_S) - self._first, first + 1)
        return list(islice(self._powers, max(0, first), max(0, last)))


def decibels(power: float) -> float:
    """Return a mean power as dBFS."""
    return max(FLOOR_DB, 10 * float(np.log10(power))) if power > 0 else FLOOR_DB
