"""Log-mel spectrograms in numpy: one implementation with a few settings per model.

Input: mono float32 samples at the front end's rate. Output: float32 of shape (mels, frames).
The formula is Kaldi's, as EfficientAT uses it:

    y[t]     = x[t+1] - 0.97 x[t]
    power    = |STFT(y)|^2          centred with reflection, symmetric Hann window
    mel(f)   = 1127 ln(1 + f / 700) triangles that are linear in mel; the Nyquist bin is not used
    log_mel  = (ln(power in each triangle + 1e-5) + 4.5) / 5
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Samples

Spectrogram = NDArray[np.float32]

_FLOOR = 1e-5
_CHUNK = 64
"""Frames per step: few enough for the processor's cache. Frames do not affect each other."""
_PRE_EMPHASIS = np.float32(0.97)


@dataclass(frozen=True)
class FrontEnd:
    """The settings of one log-mel front end; lengths are in samples."""

    rate: int
    n_fft: int
    window: int
    hop: int
    mels: int
    top_hz: float

    @property
    def shortest(self) -> int:
        """The smallest number of samples that can be reflected at both ends."""
        return self.n_fft // 2 + 2

    @cached_property
    def taper(self) -> NDArray[np.float64]:
        """The Hann window, centred in the length of the FFT.

        It is float64, and so is the FFT: numpy's is four times as fast in float64 as in float32.
        """
        taper = np.zeros(self.n_fft)
        start = (self.n_fft - self.window) // 2
        taper[start : start + self.window] = np.hanning(self.window)
        return taper

    @cached_property
    def slopes(self) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """The relative position of each bin on its slope, and the first bin of each slope.

        The corners of the triangles divide the bins into mels + 1 slopes. A bin at position s of
        slope i has weight s in triangle i, which rises there, and 1 - s in triangle i - 1, which
        falls.
        """
        corners = np.linspace(0.0, _mel(np.array(self.top_hz)), self.mels + 2)
        bins = _mel(np.arange(self.n_fft // 2) * self.rate / self.n_fft)
        starts = np.searchsorted(bins, corners)
        slope = np.searchsorted(corners, bins[: starts[-1]], side="right") - 1
        return (bins[: starts[-1]] - corners[slope]) / corners[1], starts


def _mel(hertz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Kaldi's mel scale."""
    return 1127.0 * np.log1p(hertz / 700.0)


def log_mel(samples: Samples, front_end: FrontEnd) -> Spectrogram:
    """Return the log-mel spectrogram, (mels, frames); short input is padded with zeros."""
    x = np.asarray(samples, dtype=np.float32)
    if x.size < front_end.shortest:
        x = np.pad(x, (0, front_end.shortest - x.size))
    y = np.pad(x[1:] - _PRE_EMPHASIS * x[:-1], front_end.n_fft // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(y, front_end.n_fft)[:: front_end.hop]
    mel = np.empty((front_end.mels, len(frames)), dtype=np.float32)
    for start in range(0, len(frames), _CHUNK):
        spectrum = np.fft.rfft(frames[start : start + _CHUNK] * front_end.taper)
        power = np.square(spectrum.real) + np.square(spectrum.imag)
        mel[:, start : start + _CHUNK] = triangle_power(power, *front_end.slopes)
    return np.asarray((np.log(mel + np.float32(_FLOOR)) + 4.5) / 5.0, dtype=np.float32)


def triangle_power(
    power: NDArray[np.float64],
    shares: NDArray[np.float64],
    starts: NDArray[np.intp],
) -> NDArray[np.float64]:
    """Return the power in each triangle, (mels, frames), of power (frames, bins).

    Computed with sums over slopes, not with a matrix product: BLAS may add in a different order
    when the number of threads differs, and the same clip must give the same bits. The threads of
    BLAS would also compete with the network for cores while they wait for work.
    """
    used = np.ascontiguousarray(power[:, : starts[-1]].T)
    rising = used * shares[:, None]
    empty = np.diff(starts) == 0
    places = np.minimum(starts[:-1], len(used) - 1)

    def slope_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = np.add.reduceat(values, places, axis=0)
        sums[empty] = 0.0
        return sums

    return slope_sums(rising)[:-1] + slope_sums(used - rising)[1:]
