"""The log-mel of student and teacher for training: the package's front end in float32.

The same formula takes half the time of the package's float64, which must give the same bits on any
machine; training needs no such thing. `check` compares both.
"""

from functools import cache

import numpy as np
import numpy.typing as npt
import scipy.fft

from training.product import FRONT_END, log_mel

Samples = npt.NDArray[np.float32]
Spectrogram = npt.NDArray[np.float32]
_CHUNK = 64
"""Frames per step: few enough for the processor's cache."""


@cache
def _triangles() -> Spectrogram:
    """Return the weight of every FFT bin in every mel band, (mels, bins)."""
    _, shares, starts = FRONT_END._tables
    weights = np.zeros((FRONT_END.mels + 2, FRONT_END.n_fft // 2 + 1), np.float32)
    for slope in range(FRONT_END.mels + 1):
        bins = slice(int(starts[slope]), int(starts[slope + 1]))
        weights[slope + 1, bins] += shares[bins]
        weights[slope, bins] += 1 - shares[bins]
    return weights[1:-1]


@cache
def _taper() -> Samples:
    """Return the window of the FFT."""
    return FRONT_END._tables[0].astype(np.float32)


def fast_log_mel(samples: Samples) -> Spectrogram:
    """Return the log-mel of one waveform, (mels, frames)."""
    sharpened = samples[1:] - np.float32(0.97) * samples[:-1]
    padded = np.pad(sharpened, FRONT_END.n_fft // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRONT_END.n_fft)[:: FRONT_END.hop]
    mel = np.empty((FRONT_END.mels, len(frames)), np.float32)
    for start in range(0, len(frames), _CHUNK):
        spectrum = scipy.fft.rfft(frames[start : start + _CHUNK] * _taper())
        power = np.square(spectrum.real) + np.square(spectrum.imag)
        mel[:, start : start + _CHUNK] = _triangles() @ power.T
    return (np.log(mel + np.float32(1e-5)) + np.float32(4.5)) / np.float32(5.0)


def check(limit: float = 1e-3) -> None:
    """Raise an error if the front end differs from the package's."""
    samples = np.random.default_rng(1).normal(0.0, 0.1, 40_000).astype(np.float32)
    difference = float(np.abs(fast_log_mel(samples) - log_mel(samples)).max())
    if difference > limit:
        raise RuntimeError(f"fast_log_mel differs from the package by {difference:.1e}")
