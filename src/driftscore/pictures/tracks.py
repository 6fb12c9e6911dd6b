"""What pictures are drawn from: a spectrogram and scores over time, and counts by hour of day.

A recording of any length is kept as at most `MOST` columns. When they are full, two neighbours
become one (the mean of powers, the maximum of scores), so memory stays flat.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Samples
from driftscore.clock import Start
from driftscore.events import Event
from driftscore.vectors import Scores

Columns = NDArray[np.float64]
"""One row per column of a picture, in order of time."""

MOST = 2048
BANDS = 96
LOWEST_HZ = 50.0
HOURS_OF_DAY = 24
_FRAME_S = 0.064
_FLOOR = 1e-12  # power, -120 dB


class ColumnTrack:
    """Rows of numbers over time, at most `MOST` of them.

    Parameters
    ----------
        width: numbers in a row.
        step_s: seconds of one column at the beginning.
        mean: whether rows of one column are averaged; else their maximum counts.

    """

    def __init__(self, width: int, step_s: float, *, mean: bool) -> None:
        self.step_s = step_s
        self._mean = mean
        self._values = np.full((MOST, width), 0.0 if mean else -np.inf)
        self._counts = np.zeros(MOST)
        self._used = 0

    def add(self, time_s: float, row: Scores) -> None:
        """Add a row at a time."""
        while int(time_s / self.step_s) >= MOST:
            self._fold()
        place = max(0, int(time_s / self.step_s))
        if self._mean:
            self._values[place] += row
        else:
            np.maximum(self._values[place], row, out=self._values[place])
        self._counts[place] += 1
        self._used = max(self._used, place + 1)

    def columns(self) -> Columns:
        """Return the columns so far; one without a row repeats the one before it, or the first."""
        counts = self._counts[: self._used]
        if not self._used:
            return self._values[:0]
        first = int(np.argmax(counts > 0))
        filled = np.maximum.accumulate(np.where(counts > 0, np.arange(self._used), first))
        values = self._values[filled]
        if self._mean:
            values = values / np.maximum(counts[filled], 1)[:, None]
        found: Columns = np.where(np.isfinite(values), values, 0.0)
        return found

    def _fold(self) -> None:
        pairs = self._values.reshape(MOST // 2, 2, -1)
        empty = np.full((MOST // 2, pairs.shape[2]), 0.0 if self._mean else -np.inf)
        joined = pairs.sum(axis=1) if self._mean else pairs.max(axis=1)
        self._values = np.concatenate([joined, empty])
        folded = self._counts.reshape(-1, 2).sum(axis=1)
        self._counts = np.concatenate([folded, np.zeros(MOST // 2)])
        self._used = -(-self._used // 2)
        self.step_s *= 2


class Spectrum:
    """The power of a stream in bands of equal width on the mel scale, over time."""

    def __init__(self, rate: int) -> None:
        self._length = 2 ** round(np.log2(max(32.0, rate * _FRAME_S)))
        self._rate = rate
        self._taper = np.hanning(self._length)
        self.edges_hz = _edges(rate, self._length)
        self._first = np.unique(np.round(self.edges_hz[:-1] * self._length / rate).astype(int))
        self.edges_hz = np.append(self._first, self._length // 2) * rate / self._length
        self._rest: Samples = np.zeros(0, np.float32)
        self._place = 0  # number of the first sample in _rest
        self.track = ColumnTrack(len(self._first), self._length / 4 / rate, mean=True)

    def feed(self, samples: Samples) -> None:
        """Add the samples that follow."""
        joined = np.concatenate([self._rest, samples])
        # Frames overlap only as long as they fall into different columns.
        hop = min(self._length, max(self._length // 4, round(self.track.step_s * self._rate)))
        count = max(0, (len(joined) - self._length) // hop + 1)
        for first in range(0, count, 256):
            starts = np.arange(first, min(count, first + 256)) * hop
            frames = joined[starts[:, None] + np.arange(self._length)]
            powers = np.abs(np.fft.rfft(frames * self._taper, axis=1)[:, :-1]) ** 2
            bands = np.add.reduceat(powers, self._first, axis=1)
            for start, row in zip(starts, bands, strict=True):
                middle = self._place + start + self._length / 2
                self.track.add(middle / self._rate, row)
        self._rest = joined[count * hop :].copy()
        self._place += count * hop

    def decibels(self) -> Columns:
        """Return the columns in dB below the loudest."""
        powers = self.track.columns()
        top = max(float(powers.max(initial=0.0)), _FLOOR)
        found: Columns = 10 * np.log10(np.maximum(powers / top, _FLOOR))
        return found


def _edges(rate: int, length: int) -> NDArray[np.float64]:
    """Return the frequencies that divide the bands, equally far from each other in mel."""
    low, high = 1127 * np.log1p(np.array([LOWEST_HZ, rate / 2]) / 700)
    edges: NDArray[np.float64] = 700 * np.expm1(np.linspace(low, high, BANDS + 1) / 1127)
    return np.maximum(edges, rate / length)


class PictureTrack:
    """The samples and scores of one recording as they pass: a watcher for `Detector.events`."""

    def __init__(self, labels: Sequence[str], *, hop_s: float = 0.5) -> None:
        self.labels = tuple(labels)
        self.spectrum: Spectrum | None = None
        self.shares = ColumnTrack(len(self.labels), hop_s, mean=False)
        self.seconds = 0.0

    def samples(self, samples: Samples, rate: int) -> None:
        """Add the samples that follow to the spectrogram."""
        if self.spectrum is None:
            self.spectrum = Spectrum(rate)
        self.seconds += len(samples) / rate
        self.spectrum.feed(samples)

    def scores(self, time_s: float, shares: Scores) -> None:
        """Add the scores of one window, as shares of the thresholds."""
        self.shares.add(time_s, shares)


class HourCounts:
    """Events by label and hour of day, over many recordings.

    An hour is that of the clock where the recording was made. Hours in which nothing was recorded
    are known as well: no event there says nothing.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self.counts = np.zeros((len(self.labels), HOURS_OF_DAY), np.int64)
        self.recorded_h = np.zeros(HOURS_OF_DAY)
        self.recordings = 0
        self.undated = 0
        self.zones: set[str] = set()

    def add(self, start: Start | None, seconds: float, events: Iterable[Event]) -> None:
        """Add a recording; one whose start is unknown is only counted."""
        self.recordings += 1
        if start is None:
            self.undated += 1
            return
        place = {label: number for number, label in enumerate(self.labels)}
        self.zones.add(zone_text(start))
        for event in events:
            if event.label in place:
                self.counts[place[event.label], start.at(event.start_s).hour] += 1
        now, end = start.time, start.at(seconds)
        while now < end:
            later = min(end, _next_hour(now))
            self.recorded_h[now.hour] += (later - now).total_seconds() / 3600
            now = later


def _next_hour(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


def zone_text(start: Start) -> str:
    """Return the zone of a start, as in UTC+01:00."""
    return f"UTC{start.time.isoformat()[-6:]}"
