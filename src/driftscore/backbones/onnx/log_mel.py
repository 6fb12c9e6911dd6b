"""Log-mel spectrograms in numpy: the front end of EfficientAT (mn04, mini) and that of CLAP.

Both take mono float32 samples at their rate, sum the power of an FFT in triangles, and differ in
the rest. A front end is a frozen value that is called with the samples of one window.

Powers are summed over the slopes of the triangles, not with a matrix product: BLAS may add in a
different order when the number of threads differs, and the same clip must give the same bits. The
threads of BLAS would also compete with the network for cores while they wait for work.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Samples
from driftscore.errors import UsageError
from driftscore.system.lazy import lazy_property

Spectrogram = NDArray[np.float32]

_CHUNK = 64
"""Frames per step: few enough for the processor's cache. Frames do not affect each other."""
_PRE_EMPHASIS = np.float32(0.97)
_POWER_FLOOR = 1e-10  # -100 dB
_LOG_FROM_HZ, _LOG_FROM_MEL, _LOG_STEP = 1000.0, 15.0, np.log(6.4) / 27.0  # of slaney's scale


def _triangle_power(
    samples: Samples,
    taper: NDArray[np.float64],
    hop: int,
    shares: NDArray[np.float64],
    starts: NDArray[np.intp],
) -> NDArray[np.float64]:
    """Return the power in each triangle of each frame, (mels, frames).

    The corners of the triangles divide the bins into mels + 1 slopes: `starts` are their first
    bins. A bin at position s of slope i (its share) has weight s in triangle i, which rises there,
    and 1 - s in triangle i - 1, which falls. All in float64: numpy's FFT is four times as fast
    there as in float32, and quiet frames keep their precision.
    """
    frames = np.lib.stride_tricks.sliding_window_view(samples, len(taper))[::hop]
    power = np.empty((len(starts) - 2, len(frames)))
    empty = np.diff(starts) == 0
    first_bins = np.minimum(starts[:-1], len(shares) - 1)
    for first in range(0, len(frames), _CHUNK):
        spectrum = np.fft.rfft(frames[first : first + _CHUNK] * taper)[:, : len(shares)]
        bins = np.ascontiguousarray((np.square(spectrum.real) + np.square(spectrum.imag)).T)
        up = bins * shares[:, None]
        rising, falling = (np.add.reduceat(part, first_bins, axis=0) for part in (up, bins - up))
        rising[empty] = falling[empty] = 0.0
        power[:, first : first + _CHUNK] = rising[:-1] + falling[1:]
    return power


@dataclass(frozen=True)
class FrontEnd:
    """A log-mel front end of Kaldi's formula, as EfficientAT uses it; lengths are in samples.

    y[t]     = x[t+1] - 0.97 x[t]
    power    = |STFT(y)|^2          centred with reflection, symmetric Hann window
    mel(f)   = 1127 ln(1 + f / 700) triangles that are linear in mel, without the Nyquist bin
    log_mel  = (ln(power in each triangle + 1e-5) + 4.5) / 5
    """

    rate: int
    n_fft: int
    window: int
    hop: int
    mels: int
    top_hz: float

    def __call__(self, samples: Samples) -> Spectrogram:
        """Return the log-mel spectrogram, (mels, frames); short input is padded with zeros."""
        x = np.asarray(samples, dtype=np.float32)
        shortest = self.n_fft // 2 + 2  # what can be reflected at both ends
        if x.size < shortest:
            x = np.pad(x, (0, shortest - x.size))
        y = np.pad(x[1:] - _PRE_EMPHASIS * x[:-1], self.n_fft // 2, mode="reflect")
        taper, shares, starts = self._tables
        mel = _triangle_power(y, taper, self.hop, shares, starts).astype(np.float32)
        return np.asarray((np.log(mel + np.float32(1e-5)) + 4.5) / 5.0, dtype=np.float32)

    @lazy_property
    def _tables(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
        """The window, centred in the length of the FFT; shares and starts of the slopes."""
        taper = np.zeros(self.n_fft)
        start = (self.n_fft - self.window) // 2
        taper[start : start + self.window] = np.hanning(self.window)
        hertz = np.arange(self.n_fft // 2) * self.rate / self.n_fft
        top, bins = (1127.0 * np.log1p(hz / 700.0) for hz in (np.array(self.top_hz), hertz))
        corners = np.linspace(0.0, top, self.mels + 2)
        starts = np.searchsorted(bins, corners)
        slope = np.searchsorted(corners, bins[: starts[-1]], side="right") - 1
        return taper, (bins[: starts[-1]] - corners[slope]) / corners[1], starts


EFFICIENT_AT = FrontEnd(rate=32_000, n_fft=1024, window=800, hop=320, mels=128, top_hz=15_000.0)
"""The front end of mn04 and mini: 100 frames per second."""


@dataclass(frozen=True)
class ClapMel:
    """CLAP's front end: what transformers' feature extractor computes, but faster.

    Decibels of mel power in two flavours: *slaney* triangles (scaled to equal area) for unfused
    checkpoints, *htk* triangles without scaling for fused ones. Samples shorter than the window are
    repeated as often as they fit, then zero-padded ("repeatpad").
    """

    flavour: Literal["slaney", "htk"]
    rate: int = 48_000
    n_fft: int = 1024
    hop: int = 480
    mels: int = 64
    low_hz: float = 50.0
    high_hz: float = 14_000.0
    length: int = 480_000
    padding: str = "repeatpad"

    def __call__(self, samples: Samples) -> Spectrogram:
        """Return the log-mel of one window, (frames, mels) in dB."""
        if len(samples) > self.length:
            raise UsageError(
                f"A window has at most {self.length} samples, got {len(samples)}; cut it first"
            )
        if self.padding == "repeatpad":
            samples = np.tile(samples, self.length // len(samples))
        elif self.padding == "repeat":
            samples = np.resize(samples, self.length)
        padded = np.pad(samples, (0, self.length - len(samples)))
        reflected = np.pad(padded, self.n_fft // 2, mode="reflect")
        taper, shares, starts, scale = self._tables
        mel = scale * _triangle_power(reflected, taper, self.hop, shares, starts).T
        return np.asarray(10.0 * np.log10(np.maximum(mel, _POWER_FLOOR)), np.float32, order="C")

    @lazy_property
    def _tables(
        self,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp], NDArray[np.float64]]:
        """The periodic window; shares and starts of the slopes; heights of the triangles."""
        ends = np.array([self.low_hz, self.high_hz])
        if self.flavour == "htk":
            low, high = 2595.0 * np.log10(1.0 + ends / 700.0)
            edges = 700.0 * (10.0 ** (np.linspace(low, high, self.mels + 2) / 2595.0) - 1.0)
        else:  # linear up to 1 kHz, then logarithmic
            log = _LOG_FROM_MEL + np.log(np.maximum(ends, _LOG_FROM_HZ) / _LOG_FROM_HZ) / _LOG_STEP
            low, high = np.where(ends < _LOG_FROM_HZ, 3.0 * ends / 200.0, log)
            mel = np.linspace(low, high, self.mels + 2)
            log = _LOG_FROM_HZ * np.exp(_LOG_STEP * (mel - _LOG_FROM_MEL))
            edges = np.where(mel < _LOG_FROM_MEL, 200.0 * mel / 3.0, log)
        bins = np.linspace(0, self.rate // 2, self.n_fft // 2 + 1)
        starts = np.searchsorted(bins, edges)
        used = bins[: starts[-1]]
        slope = np.clip(np.searchsorted(edges, used, side="right") - 1, 0, self.mels)
        shares = (used - edges[slope]) / (edges[slope + 1] - edges[slope])
        area = 2.0 / (edges[2:] - edges[:-2])
        scale = area if self.flavour == "slaney" else np.ones(self.mels)
        return np.hanning(self.n_fft + 1)[:-1], shares, starts, scale
