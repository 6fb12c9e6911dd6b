"""The power spectrogram that every front end here begins with, by one batched FFT."""

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Samples


def power_spectrogram(
    samples: Samples, taper: NDArray[np.float64], *, hop: int
) -> NDArray[np.float64]:
    """Return |STFT|^2, (frames, bins): centred with reflection, frames of the taper's length.

    In float64: numpy's transform is several times as fast there as in float32.
    """
    reflected = np.pad(samples, len(taper) // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(reflected, len(taper))[::hop]
    spectrum = np.fft.rfft(frames * taper)
    return np.square(spectrum.real) + np.square(spectrum.imag)
