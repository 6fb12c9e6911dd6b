"""The log-mels of student and teacher for training: the package's front end in float32.

The same formula takes half the time of the package's float64, which must give the same bits on any
machine; training makes two spectrograms per example and needs no such thing. `check` compares both.
"""

from functools import cache

import numpy as np
import numpy.typing as npt
import scipy.fft

from training.product import (
    STUDENT_FRONT_END,
    TEACHER_FRONT_END,
    FrontEnd,
    student_log_mel,
    teacher_log_mel,
)

Samples = npt.NDArray[np.float32]
Spectrogram = npt.NDArray[np.float32]
_CHUNK = 64
"""Frames per step: few enough for the processor's cache."""


@cache
def _triangles(front_end: FrontEnd) -> Spectrogram:
    """Return the weight of every FFT bin in every mel band, (mels, bins)."""
    _, shares, starts = front_end._tables
    weights = np.zeros((front_end.mels + 2, front_end.n_fft // 2 + 1), np.float32)
    for slope in range(front_end.mels + 1):
        bins = slice(int(starts[slope]), int(starts[slope + 1]))
        weights[slope + 1, bins] += shares[bins]
        weights[slope, bins] += 1 - shares[bins]
    return weights[1:-1]


@cache
def _taper(front_end: FrontEnd) -> Samples:
    """Return the window of the FFT."""
    return front_end._tables[0].astype(np.float32)


def _log_mel(samples: Samples, front_end: FrontEnd) -> Spectrogram:
    """Return the log-mel of one waveform, (mels, frames)."""
    sharpened = samples[1:] - np.float32(0.97) * samples[:-1]
    padded = np.pad(sharpened, front_end.n_fft // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, front_end.n_fft)[:: front_end.hop]
    mel = np.empty((front_end.mels, len(frames)), np.float32)
    for start in range(0, len(frames), _CHUNK):
        spectrum = scipy.fft.rfft(frames[start : start + _CHUNK] * _taper(front_end))
        power = np.square(spectrum.real) + np.square(spectrum.imag)
        mel[:, start : start + _CHUNK] = _triangles(front_end) @ power.T
    return (np.log(mel + np.float32(1e-5)) + np.float32(4.5)) / np.float32(5.0)


def student_input(samples: Samples) -> Spectrogram:
    """Return the student's input for one waveform."""
    return _log_mel(samples, STUDENT_FRONT_END)


def teacher_input(samples: Samples) -> Spectrogram:
    """Return the teacher's input for one waveform."""
    return _log_mel(samples, TEACHER_FRONT_END)


def check(limit: float = 1e-3) -> None:
    """Raise an error if the front ends differ from the package's."""
    samples = np.random.default_rng(1).normal(0.0, 0.1, 40_000).astype(np.float32)
    for ours, theirs in ((student_input, student_log_mel), (teacher_input, teacher_log_mel)):
        difference = float(np.abs(ours(samples) - theirs(samples)).max())
        if difference > limit:
            raise RuntimeError(f"{ours.__name__} differs from the package by {difference:.1e}")
