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

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_COMBS = (1116, 1188, 1277, 1356, 1422, 1491, 1557, 1617)  # frames at 44.1 kHz
_ALLPASSES = (225, 341, 441, 556)
_STEREO_FRAMES = 12
_GAIN = 0.015
_DAMPING = 0.5 * 0.3 + 0.2
_MIN_FEEDBACK, _MAX_FEEDBACK = 0.3, 0.98  # feedback at a reverberance of 0 and of 100 %


def reverberated(samples: Floats, rate: int, *, reverb: float) -> Floats:
    """Return mono samples with reverb, the same number of them; `reverb` is in [0, 1]."""
    a = -1 / math.log(1 - _MIN_FEEDBACK)
    b = 100 / (math.log(1 - _MAX_FEEDBACK) * a + 1)
    feedback = 1 - math.exp((100 * reverb - b) / (a * b))
    # The longest comb decays by `feedback` once per delay; 1e-9 counts as silence.
    tail = math.ceil(_COMBS[-1] * rate / 44_100 * math.log(1e-9) / math.log(feedback)) + rate
    size = 1 << (len(samples) + tail - 1).bit_length()
    spectrum = np.fft.rfft(samples, size) * _response(size, rate, feedback)
    return np.fft.irfft(spectrum, size)[: len(samples)]


@lru_cache(maxsize=4)  # all soundscapes of a grid have the same length
def _response(size: int, rate: int, feedback: float) -> Complexes:
    omega = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size)
    loop = feedback * (1 - _DAMPING) / (1 - _DAMPING * omega)
    channels: list[Complexes] = []
    for offset in (0, _STEREO_FRAMES):  # left; right, its delays shifted up and down in turn
        delays = [
            int(rate / 44_100 * (frames + offset * (-1) ** n) + 0.5)
            for n, frames in enumerate((*_COMBS, *_ALLPASSES))
        ]
        channel = np.zeros_like(omega)
        for delay in delays[: len(_COMBS)]:
            delayed = omega**delay
            channel += delayed / (1 - loop * delayed)
        for delay in delays[len(_COMBS) :]:
            delayed = omega**delay
            channel *= delayed / (1 - delayed / 2) - 1
        channels.append(channel)
    return 1 + _GAIN * (channels[0] + channels[1]) / 2
