"""Sound levels of a source: LAeq, L10 and L90.

Levels are A-weighted. Power is averaged over eighths of a second; L10 and L90 are the levels that
these exceed for 10 % and 90 % of the time. Without a calibration offset levels are relative to full
scale (dBFS, a sine at full scale at 1 kHz has -3 dB); with one they are dBA: the offset is added,
and is the reading of a sound level meter minus the one of ours for the same sound.
"""

from dataclasses import dataclass

import numpy as np

from driftscore.audio import Samples
from driftscore.levels import decibels
from driftscore.live.weighting import AWeighting

STEP_S = 0.125
INTERVAL_S = 60.0
"""How long a level is averaged."""


@dataclass(frozen=True)
class Levels:
    """LAeq, L10 and L90 of some seconds, in dB."""

    laeq: float
    l10: float
    l90: float
    seconds: float


class SoundMeter:
    """The levels of one stream."""

    def __init__(
        self, rate: int, *, offset_db: float = 0.0, interval_s: float = INTERVAL_S
    ) -> None:
        self._weighting = AWeighting(rate)
        self._step = max(1, round(rate * STEP_S))
        self._steps = max(1, round(interval_s / STEP_S))
        self._offset_db = offset_db
        self._rest = np.zeros(0)
        self._powers: list[float] = []
        self.now_db: float | None = None
        """The level of the last eighth of a second."""

    def feed(self, samples: Samples) -> list[Levels]:
        """Add samples; return the levels of the intervals that are complete."""
        weighted = np.concatenate([self._rest, self._weighting.feed(samples)])
        count = len(weighted) // self._step
        parts = weighted[: count * self._step].reshape(count, self._step)
        self._rest = weighted[count * self._step :]
        self._powers += (parts * parts).mean(axis=1).tolist()
        if count:
            self.now_db = decibels(self._powers[-1]) + self._offset_db
        found = []
        while len(self._powers) >= self._steps:
            found.append(self._levels(self._powers[: self._steps]))
            self._powers = self._powers[self._steps :]
        return found

    def finish(self) -> list[Levels]:
        """Return the levels of the interval that has begun, if it has."""
        powers, self._powers = self._powers, []
        return [self._levels(powers)] if powers else []

    def _levels(self, powers: list[float]) -> Levels:
        steps = np.array([decibels(power) for power in powers]) + self._offset_db
        mean = decibels(float(np.mean(powers))) + self._offset_db
        high, low = np.quantile(steps, (0.9, 0.1))
        return Levels(mean, float(high), float(low), len(powers) * STEP_S)
