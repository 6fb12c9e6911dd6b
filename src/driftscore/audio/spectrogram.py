"""Samples -> the power of mel bands over time: for the page, and for pictures of long recordings.

Powers are relative to a full-scale sine. `spectrogram` returns them as small integers that a canvas
draws: a column is the mean of its stretch of time, in dB. The scale is fixed (`FLOOR_DB` is 0,
`TOP_DB` is 255), so that two pictures, live or of a file, clean or in noise, have the same colours
for the same level.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Audio

FLOOR_DB = -90.0
TOP_DB = 0.0
BANDS = 80
MAX_COLUMNS = 480
LOWEST_HZ = 50.0
HIGHEST_HZ = 14_000.0
_FRAME_S = 0.032
_BLOCK = 4096  # frames transformed at once: memory stays flat for long recordings

ByteLevels = NDArray[np.uint8]
Powers = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Picture:
    """Levels of mel bands (columns x bands, lowest band first), and what they cover."""

    levels: ByteLevels
    seconds: float
    low_hz: float
    high_hz: float


def spectrogram(audio: Audio, *, max_columns: int = MAX_COLUMNS) -> Picture:
    """Return the spectrogram of a recording in at most `max_columns` columns."""
    rate, frame = audio.rate, max(16, round(_FRAME_S * audio.rate))
    high_hz = min(HIGHEST_HZ, rate / 2)
    low_hz = min(LOWEST_HZ, high_hz / 4)
    count = max(1, -(-len(audio.samples) // (frame // 2)))  # frames that overlap by half
    columns = min(max_columns, count)
    frames_per_column = max(1, round(count / columns))
    hop = len(audio.samples) / (columns * frames_per_column)
    filters = mel_filters(frame, rate, BANDS, low_hz, high_hz)
    padded = np.pad(audio.samples, (frame // 2, frame))
    # Frames are centred on the stretches that they stand for.
    starts = np.floor((np.arange(columns * frames_per_column) + 0.5) * hop).astype(np.int64)
    powers = band_powers(padded, starts, frame, filters)
    means = powers.reshape(columns, frames_per_column, BANDS).mean(axis=1)
    return Picture(to_levels(means), audio.seconds, low_hz, high_hz)


def to_levels(powers: Powers) -> ByteLevels:
    """Return powers as integers from 0 (`FLOOR_DB` and below) to 255 (`TOP_DB` and above)."""
    decibels = 10 * np.log10(np.maximum(powers, 1e-20))
    share = (decibels - FLOOR_DB) / (TOP_DB - FLOOR_DB)
    return np.clip(np.rint(255 * share), 0, 255).astype(np.uint8)


@lru_cache(maxsize=8)
def mel_filters(frame: int, rate: int, bands: int, low_hz: float, high_hz: float) -> Powers:
    """Return triangular filters (bins x bands) that average the power around each mel frequency.

    A band narrower than the distance of two bins takes the nearest bin.
    """
    mels = np.linspace(to_mel(low_hz), to_mel(high_hz), bands + 2)
    edges = 700 * (10 ** (mels / 2595) - 1)
    hertz = np.fft.rfftfreq(frame, 1 / rate)[:, None]
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (hertz - low) / (centre - low), (high - hertz) / (high - centre)
    weights = np.maximum(0, np.minimum(rising, falling))
    nearest = np.abs(hertz - centre).argmin(axis=0)
    weights[nearest, np.arange(bands)] = np.maximum(weights[nearest, np.arange(bands)], 1e-3)
    filters: Powers = (weights / weights.sum(axis=0)).astype(np.float32)
    filters.setflags(write=False)
    return filters


def to_mel(hertz: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return frequencies on the mel scale."""
    return np.asarray(2595 * np.log10(1 + np.asarray(hertz, np.float64) / 700))


def band_powers(
    samples: NDArray[np.float32], starts: NDArray[np.int64], frame: int, filters: Powers
) -> Powers:
    """Return the band powers of the frames that begin at some samples, one row per frame."""
    window = np.hanning(frame).astype(np.float32)
    scale = np.float32(2 / window.sum()) ** 2  # a full-scale sine has the power 1 in its bin
    powers = np.empty((len(starts), filters.shape[1]), np.float32)
    offsets = np.arange(frame)
    for first in range(0, len(starts), _BLOCK):
        block = starts[first : first + _BLOCK]
        spectra = np.fft.rfft(samples[block[:, None] + offsets] * window, axis=1)
        power = (np.square(spectra.real) + np.square(spectra.imag)).astype(np.float32)
        powers[first : first + _BLOCK] = scale * (power @ filters)
    return powers
