"""How loud it is: the level of a stream over time, that of an event above what came before, LAeq.

Levels are in dB relative to full scale (dBFS): 0 dB is a square wave at full scale, a sine at full
scale has -3 dB. Those of `SoundMeter` are A-weighted, and dBA with a calibration offset: the
reading of a sound level meter minus the one of ours for the same sound.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Samples
from driftscore.audio.weighting import AWeighting

STEP_S = 0.1
"""Seconds of one level."""
MEMORY_S = 900.0
"""How much of the past is kept."""
BEFORE_S = 30.0
"""Seconds before an event that count as its background."""
FLOOR_DB = -120.0
"""The level of digital silence."""
METER_STEP_S = 0.125
INTERVAL_S = 60.0
"""How long an A-weighted level is averaged."""


class LevelTrack:
    """Mean power of each tenth of a second of a stream; the last quarter of an hour is kept."""

    def __init__(self, rate: int) -> None:
        self._step = max(1, round(rate * STEP_S))
        self._rest: Samples = np.zeros(0, np.float32)
        self._powers = np.zeros(round(MEMORY_S / STEP_S))  # the oldest ones are written over
        self._end = 0  # steps so far

    def feed(self, samples: Samples) -> None:
        """Add the samples that follow."""
        joined = np.concatenate([self._rest, samples]) if len(self._rest) else samples
        count = len(joined) // self._step
        parts = joined[: count * self._step].reshape(count, self._step).astype(np.float64)
        powers = (parts * parts).mean(axis=1)[-len(self._powers) :]
        self._end += count
        self._powers[self._places(self._end - len(powers), self._end)] = powers
        self._rest = joined[count * self._step :].copy()

    def level_db(self, start_s: float, end_s: float) -> float | None:
        """Return the mean level of a span; None if nothing of it is kept."""
        powers = self._between(start_s, end_s)
        return decibels(float(np.mean(powers))) if len(powers) else None

    def snr_db(self, start_s: float, end_s: float) -> float | None:
        """Return how far a span is above the median level of the half minute before it.

        The background is part of the span as well, and is subtracted. None where there is nothing
        before the span, or where the span is not louder than that.
        """
        inside = self._between(start_s, end_s)
        before = self._between(max(0.0, start_s - BEFORE_S), start_s - 0.5)
        if not len(inside) or len(before) < 1 / STEP_S:
            return None
        noise = float(np.median(before))
        power = float(np.mean(inside)) - noise
        if power <= 0 or noise <= 0:
            return None
        return 10 * float(np.log10(power / noise))

    def _between(self, start_s: float, end_s: float) -> NDArray[np.float64]:
        start = round(start_s / STEP_S)
        last = min(max(round(end_s / STEP_S), start + 1), self._end)
        return self._powers[self._places(max(0, start, self._end - len(self._powers)), last)]

    def _places(self, first: int, last: int) -> NDArray[np.int64]:
        """Return where the steps of a span are in the array."""
        return np.arange(first, last) % len(self._powers)


def decibels(power: float) -> float:
    """Return a mean power as dBFS."""
    return max(FLOOR_DB, 10 * float(np.log10(power))) if power > 0 else FLOOR_DB


@dataclass(frozen=True)
class SoundLevels:
    """LAeq, L10 and L90 of some seconds, in dB.

    Power is averaged over eighths of a second; L10 and L90 are the levels that these exceed for
    10 % and for 90 % of the time.
    """

    laeq: float
    l10: float
    l90: float
    seconds: float


class SoundMeter:
    """The A-weighted levels of one stream."""

    def __init__(
        self, rate: int, *, offset_db: float = 0.0, interval_s: float = INTERVAL_S
    ) -> None:
        self._weighting = AWeighting(rate)
        self._step = max(1, round(rate * METER_STEP_S))
        self._steps = max(1, round(interval_s / METER_STEP_S))
        self._offset_db = offset_db
        self._rest = np.zeros(0)
        self._powers: list[float] = []
        self.now_db: float | None = None
        """The level of the last eighth of a second."""

    def feed(self, samples: Samples) -> list[SoundLevels]:
        """Add samples; return the levels of the intervals that are complete."""
        weighted = np.concatenate([self._rest, self._weighting.feed(samples)])
        count = len(weighted) // self._step
        parts = weighted[: count * self._step].reshape(count, self._step)
        self._rest = weighted[count * self._step :]
        self._powers += (parts * parts).mean(axis=1).tolist()
        if count:
            self.now_db = decibels(self._powers[-1]) + self._offset_db
        levels = []
        while len(self._powers) >= self._steps:
            levels.append(self._levels(self._powers[: self._steps]))
            self._powers = self._powers[self._steps :]
        return levels

    def finish(self) -> list[SoundLevels]:
        """Return the levels of the interval that has begun, if it has."""
        powers, self._powers = self._powers, []
        return [self._levels(powers)] if powers else []

    def _levels(self, powers: list[float]) -> SoundLevels:
        steps = np.array([decibels(power) for power in powers]) + self._offset_db
        mean = decibels(float(np.mean(powers))) + self._offset_db
        high, low = np.quantile(steps, (0.9, 0.1))
        return SoundLevels(mean, float(high), float(low), len(powers) * METER_STEP_S)
