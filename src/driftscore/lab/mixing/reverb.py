"""The reverb effect of SoX as one filter: what Scaper applies to a soundscape with reverb.

In Scaper `reverb=0` does not mean "no reverb" (that is None): it runs the SoX effect at its
smallest setting, and Acevedo et al. made their soundscapes with it. The effect is Freeverb: eight
parallel comb filters, then four all-pass filters in series, for a left and a right channel with
slightly different delays; Scaper takes the mean of the two and adds it to the dry sound. All of
this is linear, so with w = e^(-i omega) it is one transfer function,

    comb(N)    = w^N / (1 - f (1 - h) / (1 - h w) w^N)      f feedback, h damping of treble
    allpass(N) = w^N / (1 - w^N / 2) - 1
    H          = 1 + 0.015 mean over channels of (sum of combs) (product of all-passes)

applied here by FFT, zero-padded so that the tail fits.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import UsageError

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_COMBS = (1116, 1188, 1277, 1356, 1422, 1491, 1557, 1617)  # frames at 44.1 kHz
_ALLPASSES = (225, 341, 441, 556)
_STEREO_FRAMES = 12
_GAIN = 0.015
_DAMPING = 0.5 * 0.3 + 0.2
_LEAST, _MOST = 0.3, 0.98  # feedback at a reverberance of 0 and of 100 %


def reverberated(samples: Floats, rate: int, *, reverb: float) -> Floats:
    """Return mono samples with reverb, the same number of them; `reverb` is in [0, 1]."""
    check_reverb(reverb)
    feedback = _feedback(100 * reverb)
    # The longest comb decays by `feedback` once per delay; 1e-9 counts as silence.
    tail = math.ceil(_COMBS[-1] * rate / 44_100 * math.log(1e-9) / math.log(feedback)) + rate
    size = 1 << (len(samples) + tail - 1).bit_length()
    spectrum = np.fft.rfft(samples, size) * _response(size, rate, feedback)
    return np.fft.irfft(spectrum, size)[: len(samples)]


@lru_cache(maxsize=4)  # all soundscapes of a grid have the same length
def _response(size: int, rate: int, feedback: float) -> Complexes:
    omega = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size)
    left, right = (_channel(omega, rate, feedback, offset) for offset in (0, 1))
    return 1 + _GAIN * (left + right) / 2


def check_reverb(reverb: float | None) -> None:
    """Raise an error unless `reverb` is None or in [0, 1]."""
    if reverb is not None and not 0 <= reverb <= 1:
        raise UsageError(f"reverb must be None or a number from 0 to 1, got {reverb!r}")


def _feedback(percent: float) -> float:
    a = -1 / math.log(1 - _LEAST)
    b = 100 / (math.log(1 - _MOST) * a + 1)
    return 1 - math.exp((percent - b) / (a * b))


def _channel(omega: Complexes, rate: int, feedback: float, offset: int) -> Complexes:
    """Return the transfer function of one channel; its delays are shifted up and down in turn."""
    shifts = [offset * _STEREO_FRAMES * (-1) ** n for n in range(len(_COMBS) + len(_ALLPASSES))]
    delays = [
        int(rate / 44_100 * (frames + shift) + 0.5)
        for frames, shift in zip((*_COMBS, *_ALLPASSES), shifts, strict=True)
    ]
    loop = feedback * (1 - _DAMPING) / (1 - _DAMPING * omega)
    combs = np.zeros_like(omega)
    for delay in delays[: len(_COMBS)]:
        delayed = omega**delay
        combs += delayed / (1 - loop * delayed)
    for delay in delays[len(_COMBS) :]:
        delayed = omega**delay
        combs *= delayed / (1 - delayed / 2) - 1
    return combs
