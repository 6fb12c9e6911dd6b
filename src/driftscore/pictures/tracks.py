"""What pictures are drawn from: a spectrogram and scores over time, and counts by hour of day.

A recording of any length is kept as at most `MAX_COLUMNS` columns. When they are full, two
neighbours become one (the mean of powers, the maximum of scores), so memory stays flat.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.clock import Start
from driftscore.audio.recordings import Samples
from driftscore.audio.spectrogram import band_powers, mel_filters, to_mel
from driftscore.backbones.vectors import Scores
from driftscore.events.tracking import Event

Columns = NDArray[np.float64]
"""One row per column of a picture, in order of time."""

MAX_COLUMNS = 2048
BANDS = 96
LOWEST_HZ = 50.0
HOURS_OF_DAY = 24
_FRAME_S = 0.064
_FLOOR = 1e-12  # power, -120 dB


class ColumnTrack:
    """Rows of numbers over time, at most `MAX_COLUMNS` of them.

    Parameters
    ----------
        width: numbers in a row.
        step_s: seconds of one column at the beginning.
        mean: whether rows of one column are averaged; else their maximum counts.

    """

    def __init__(self, width: int, step_s: float, *, mean: bool) -> None:
        self.step_s = step_s
        self._mean = mean
        self._join: np.ufunc = np.add if mean else np.maximum
        self._empty = 0.0 if mean else -np.inf
        self._values = np.full((MAX_COLUMNS, width), self._empty)
        self._counts = np.zeros(MAX_COLUMNS)
        self._used = 0

    def add(self, time_s: float, row: Scores) -> None:
        """Add a row at a time."""
        while int(time_s / self.step_s) >= MAX_COLUMNS:
            half = MAX_COLUMNS // 2
            self._values[:half] = self._join(self._values[::2], self._values[1::2])
            self._values[half:] = self._empty
            self._counts[:half] = self._counts.reshape(-1, 2).sum(axis=1)
            self._counts[half:] = 0
            self._used = -(-self._used // 2)
            self.step_s *= 2
        index = max(0, int(time_s / self.step_s))
        self._values[index] = self._join(self._values[index], row)
        self._counts[index] += 1
        self._used = max(self._used, index + 1)

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
        return np.where(np.isfinite(values), values, 0.0)


class Spectrum:
    """The power of a stream in mel bands, over time."""

    def __init__(self, rate: int) -> None:
        self.low_hz, self.high_hz = min(LOWEST_HZ, rate / 8), rate / 2
        self._rate = rate
        self._frame = max(32, round(rate * _FRAME_S))
        self._filters = mel_filters(self._frame, rate, BANDS, self.low_hz, self.high_hz)
        self._rest: Samples = np.zeros(0, np.float32)
        self._first = 0  # number of the first sample in _rest
        self.track = ColumnTrack(BANDS, self._frame / 4 / rate, mean=True)

    def feed(self, samples: Samples) -> None:
        """Add the samples that follow."""
        joined = np.concatenate([self._rest, samples])
        # Frames overlap only as long as they fall into different columns.
        hop = min(self._frame, max(self._frame // 4, round(self.track.step_s * self._rate)))
        count = max(0, (len(joined) - self._frame) // hop + 1)
        starts = np.arange(count) * hop
        powers = band_powers(joined, starts, self._frame, self._filters)
        for start, row in zip(starts, powers, strict=True):
            middle = self._first + start + self._frame / 2
            self.track.add(middle / self._rate, row)
        self._rest = joined[count * hop :].copy()
        self._first += count * hop

    def decibels(self) -> Columns:
        """Return the columns in dB below the loudest."""
        powers = self.track.columns()
        top = max(float(powers.max(initial=0.0)), _FLOOR)
        return 10 * np.log10(np.maximum(powers / top, _FLOOR))

    def bands_of(self, hertz: Sequence[float]) -> NDArray[np.float64]:
        """Return where frequencies are among the bands; the middle of the first one is 0.5."""
        low, high = to_mel(self.low_hz), to_mel(self.high_hz)
        return (to_mel(np.array(hertz)) - low) / (high - low) * (BANDS + 1) - 0.5


class PictureTrack:
    """The samples and scores of one recording as they pass: an observer for `Detector.events`."""

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
        rows = {label: row for row, label in enumerate(self.labels)}
        self.zones.add(zone_text(start))
        for event in events:
            if event.label in rows:
                self.counts[rows[event.label], start.at(event.start_s).hour] += 1
        now, end = start.time, start.at(seconds)
        while now < end:
            full_hour = now.replace(minute=0, second=0, microsecond=0)
            later = min(end, full_hour + timedelta(hours=1))
            self.recorded_h[now.hour] += (later - now).total_seconds() / 3600
            now = later


def zone_text(start: Start) -> str:
    """Return the zone of a start, as in UTC+01:00."""
    return f"UTC{start.time.isoformat()[-6:]}"
