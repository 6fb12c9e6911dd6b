"""CLAP's log-mel front end: what transformers' feature extractor computes, but faster.

48 kHz samples -> (frames, 64) decibels of mel power, in two flavours: *slaney* triangles (scaled to
equal area) for unfused checkpoints, *htk* triangles without scaling for fused ones. Samples shorter
than the window are repeated as often as they fit, then zero-padded ("repeatpad").
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Samples
from driftscore.backbones.onnx.log_mel import triangle_power
from driftscore.errors import UsageError

_FLOOR = 1e-10  # power: -100 dB
_FRAMES = 64  # per step: half a megabyte


@dataclass(frozen=True)
class ClapMel:
    """The settings of one checkpoint's front end."""

    flavour: Literal["slaney", "htk"]
    rate: int = 48_000
    n_fft: int = 1024
    hop: int = 480
    mels: int = 64
    low_hz: float = 50.0
    high_hz: float = 14_000.0
    length: int = 480_000
    padding: str = "repeatpad"

    def __call__(self, samples: Samples) -> NDArray[np.float32]:
        """Return the log-mel of one window, (frames, mels) in dB."""
        reflected = np.pad(self._padded(samples), self.n_fft // 2, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(reflected, self.n_fft)[:: self.hop]
        shares, starts, scale = self._slopes
        decibels = np.empty((len(frames), self.mels), np.float32)
        # In float64: numpy's FFT is no slower there, and quiet frames keep their precision.
        # A few frames at a time, which fit into the processor's cache.
        for first in range(0, len(frames), _FRAMES):
            some = slice(first, first + _FRAMES)
            spectrum = np.fft.rfft(frames[some] * self._taper)[:, : len(shares)]
            power = np.square(spectrum.real) + np.square(spectrum.imag)
            mel = scale * triangle_power(power, shares, starts).T
            decibels[some] = 10.0 * np.log10(np.maximum(mel, _FLOOR))
        return decibels

    def _padded(self, samples: Samples) -> Samples:
        """Repeat and pad a window to the model's length."""
        if len(samples) > self.length:
            raise UsageError(
                f"A window has at most {self.length} samples, got {len(samples)}; cut it first"
            )
        if self.padding == "repeatpad":
            samples = np.tile(samples, self.length // len(samples))
        elif self.padding == "repeat":
            samples = np.resize(samples, self.length)
        return np.pad(samples, (0, self.length - len(samples)))

    @cached_property
    def _taper(self) -> NDArray[np.float64]:
        """The periodic Hann window."""
        return np.hanning(self.n_fft + 1)[:-1]

    @cached_property
    def _slopes(self) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.float64]]:
        """Position of each bin on its slope, first bin of each slope, heights of the triangles."""
        to_mel, to_hz = _SCALES[self.flavour]
        ends = to_mel(np.array([self.low_hz, self.high_hz]))
        edges = to_hz(np.linspace(ends[0], ends[1], self.mels + 2))
        bins = np.linspace(0, self.rate // 2, self.n_fft // 2 + 1)
        starts = np.searchsorted(bins, edges)
        used = bins[: starts[-1]]
        slope = np.clip(np.searchsorted(edges, used, side="right") - 1, 0, self.mels)
        shares = (used - edges[slope]) / (edges[slope + 1] - edges[slope])
        area = 2.0 / (edges[2:] - edges[:-2])
        return shares, starts, area if self.flavour == "slaney" else np.ones(self.mels)


def _htk_mel(hz: NDArray[np.float64]) -> NDArray[np.float64]:
    return 2595.0 * np.log10(1.0 + hz / 700.0)


def _htk_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)


_LOG_FROM_HZ, _LOG_FROM_MEL, _LOG_STEP = 1000.0, 15.0, np.log(6.4) / 27.0


def _slaney_mel(hz: NDArray[np.float64]) -> NDArray[np.float64]:
    log = _LOG_FROM_MEL + np.log(np.maximum(hz, _LOG_FROM_HZ) / _LOG_FROM_HZ) / _LOG_STEP
    return np.where(hz < _LOG_FROM_HZ, 3.0 * hz / 200.0, log)


def _slaney_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    log = _LOG_FROM_HZ * np.exp(_LOG_STEP * (mel - _LOG_FROM_MEL))
    return np.where(mel < _LOG_FROM_MEL, 200.0 * mel / 3.0, log)


_SCALES = {"htk": (_htk_mel, _htk_hz), "slaney": (_slaney_mel, _slaney_hz)}
