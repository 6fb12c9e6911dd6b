"""Impulse responses of rooms, and convolution with them.

decay    h(t) = delta(t) + g(t) 10^(-3 t / rt60), g Gaussian noise with as much energy as the
direct sound: the level falls by 60 dB in rt60 seconds
box      a room of 6 x 5 x 3 m by the image source method (Allen and Berkley, 1979): each image
of the source adds a pulse r^k / (4 pi d), d its distance to the microphone, k its
number of reflections and r = sqrt(1 - a), with the absorption a from Sabine's formula
"""

import math

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import UsageError

Floats = NDArray[np.float64]

SIZE_M = (6.0, 5.0, 3.0)
SOURCE_M = (1.5, 1.2, 1.6)
MICROPHONE_M = (4.2, 3.6, 1.2)
SPEED_M_S = 343.0
_SABINE = 24 * math.log(10) / SPEED_M_S


def decay_response(rate: int, rt60_s: float, rng: np.random.Generator) -> Floats:
    """Return an exponentially decaying response that includes the direct sound."""
    time = np.arange(round(rt60_s * rate)) / rate
    tail: Floats = rng.standard_normal(len(time)) * 10 ** (-3 * time / rt60_s)
    tail /= np.sqrt(np.sum(tail**2))
    tail[0] += 1
    return tail


def box_response(rate: int, rt60_s: float) -> Floats:
    """Return the response of the box room, `rt60_s` long, in frames at `rate`."""
    reflection = math.sqrt(1 - absorption(rt60_s))
    frames = round(rt60_s * rate)
    offsets, counts = [], []  # of the image sources along each axis, and their reflections
    for side, source, microphone in zip(SIZE_M, SOURCE_M, MICROPHONE_M, strict=True):
        reach = math.ceil(rt60_s * SPEED_M_S / (2 * side)) + 1
        order = np.arange(-reach, reach + 1)
        images = [2 * order * side + source - microphone, 2 * order * side - source - microphone]
        offsets.append(np.concatenate(images))
        counts.append(np.concatenate([np.abs(2 * order), np.abs(2 * order - 1)]))
    x, y, z = offsets
    kx, ky, kz = counts
    distance = np.sqrt(
        x[:, None, None] ** 2 + y[None, :, None] ** 2 + z[None, None, :] ** 2
    ).ravel()
    reflections = (kx[:, None, None] + ky[None, :, None] + kz[None, None, :]).ravel()
    frame = np.rint(distance / SPEED_M_S * rate).astype(np.intp)
    inside = frame < frames
    pulses = reflection ** reflections[inside] / (4 * np.pi * distance[inside])
    return np.bincount(frame[inside], weights=pulses, minlength=frames).astype(float)


def absorption(rt60_s: float) -> float:
    """Return the share of energy that the walls absorb, for a reverberation time by Sabine."""
    width, depth, height = SIZE_M
    volume = width * depth * height
    surface = 2 * (width * depth + width * height + depth * height)
    share = _SABINE * volume / (surface * rt60_s) if rt60_s > 0 else math.inf
    if share > 1:
        shortest = _SABINE * volume / surface
        raise UsageError(
            f"The box room has a reverberation time of at least {shortest:.2f} s, got {rt60_s!r}"
        )
    return share


def convolved(samples: Floats, response: Floats) -> Floats:
    """Return the full convolution of samples with a response."""
    length = len(samples) + len(response) - 1
    size = 1 << (length - 1).bit_length()
    return np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(response, size), size)[:length]
