"""Noise to calibrate and demonstrate with: synthetic backgrounds, and mixing at a chosen SNR.

Samples are mono float32. The SNR is a ratio of powers in dB: that of the clip over its active part
(samples that are not zero), that of the noise over its whole length.

Synthetic noises have a level of 0.1 (root mean square). They stand for common backgrounds: steady
noise of several colours, mains hum, wind, rain, traffic and the murmur of a crowd.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Samples
from driftscore.errors import AudioError

Floats = NDArray[np.float64]
Generator = np.random.Generator

_LEVEL = 0.1
_LOWEST_HZ = 20.0  # below it a coloured spectrum is flat


def add_at_snr(samples: Samples, noise: Samples, snr_db: float) -> Samples:
    """Return the clip with noise of the same length, scaled to this SNR."""
    active = samples[samples != 0]
    if not len(active) or not noise.any():
        raise AudioError("A clip and its noise must not be silent")
    power = np.mean(np.square(active, dtype=np.float64))
    other = np.mean(np.square(noise, dtype=np.float64))
    gain = np.sqrt(power / other / 10 ** (snr_db / 10))
    return (samples + gain * noise).astype(np.float32)


def excerpt(samples: Samples, length: int, rng: Generator) -> Samples:
    """Return `length` samples from a random place; shorter recordings are repeated."""
    if len(samples) < length:
        samples = np.tile(samples, -(-length // len(samples)))
    start = int(rng.integers(len(samples) - length + 1))
    return samples[start : start + length]


def synthetic(name: str, length: int, rate: int, rng: Generator) -> Samples:
    """Return one of the synthetic noises."""
    sound = SYNTHETIC[name](length, rate, rng)
    return (sound * (_LEVEL / np.sqrt(np.mean(np.square(sound))))).astype(np.float32)


def coloured(length: int, rate: int, fall: float, rng: Generator) -> Floats:
    """Return Gaussian noise whose amplitude falls as 1 / f ** fall."""
    white = rng.standard_normal(length)
    hertz = np.maximum(np.fft.rfftfreq(length, 1 / rate), _LOWEST_HZ)
    return np.fft.irfft(np.fft.rfft(white) * hertz**-fall, length)


def _band(length: int, rate: int, low: float, high: float, rng: Generator) -> Floats:
    """Return noise between two frequencies, with soft edges."""
    hertz = np.maximum(np.fft.rfftfreq(length, 1 / rate), 1.0)
    gains = 1 / (1 + (low / hertz) ** 4) / (1 + (hertz / high) ** 4)
    return np.fft.irfft(np.fft.rfft(rng.standard_normal(length)) * gains, length)


def _slow(length: int, rate: int, hertz: float, rng: Generator) -> Floats:
    """Return a random curve between 0 and 1 that changes at most so many times per second."""
    knots = rng.random(max(4, int(length / rate * hertz) + 4))
    return np.interp(np.linspace(0, len(knots) - 1, length), np.arange(len(knots)), knots)


def _hum(length: int, rate: int, rng: Generator) -> Floats:
    mains, time = float(rng.choice([50.0, 60.0])), np.arange(length) / rate
    hum = 0.02 * rng.standard_normal(length)
    for order in range(1, 13):
        phase, strength = rng.uniform(0, 2 * np.pi), rng.uniform(0.3, 1) / order
        hum += strength * np.sin(2 * np.pi * order * mains * time + phase)
    return hum


def _wind(length: int, rate: int, rng: Generator) -> Floats:
    gusts = 0.15 + _slow(length, rate, 0.7, rng) ** 2
    return gusts * _band(length, rate, 25.0, rng.uniform(150.0, 600.0), rng)


def _rain(length: int, rate: int, rng: Generator) -> Floats:
    drops = np.zeros(length)
    places = rng.integers(length, size=int(length / rate * rng.uniform(40, 400)))
    drops[places] = rng.exponential(1.0, len(places))
    decay = np.exp(-np.arange(int(0.004 * rate)) / (0.001 * rate))
    splashes = np.convolve(drops, decay * rng.standard_normal(len(decay)))[:length]
    steady = _band(length, rate, 800.0, 9_000.0, rng)
    rain: Floats = np.asarray(
        splashes / (splashes.std() + 1e-9) + rng.uniform(0.5, 2.0) * steady / steady.std()
    )
    return rain


def _traffic(length: int, rate: int, rng: Generator) -> Floats:
    road = coloured(length, rate, 0.9, rng)
    total = road / road.std()
    for _ in range(int(rng.integers(1, 4))):  # cars that come and go
        centre, width = rng.uniform(0, length), rng.uniform(0.8, 3.0) * rate
        near = np.exp(-0.5 * ((np.arange(length) - centre) / width) ** 2)
        tyres = _band(length, rate, 150.0, rng.uniform(900.0, 3_000.0), rng)
        total += rng.uniform(0.5, 3.0) * near * tyres / tyres.std()
    return np.asarray(total, np.float64)


def _crowd(length: int, rate: int, rng: Generator) -> Floats:
    """Return many voices at once: bands of speech, each with its own rhythm of syllables."""
    total = np.zeros(length)
    for _ in range(12):
        low = rng.uniform(120.0, 1_500.0)
        voice = _band(length, rate, low, low * rng.uniform(1.5, 3.0), rng)
        total += _slow(length, rate, rng.uniform(3.0, 6.0), rng) ** 2 * voice / voice.std()
    return np.asarray(total, np.float64)


SYNTHETIC: dict[str, Callable[[int, int, Generator], Floats]] = {
    "white": lambda length, rate, rng: coloured(length, rate, 0.0, rng),
    "pink": lambda length, rate, rng: coloured(length, rate, 0.5, rng),
    "brown": lambda length, rate, rng: coloured(length, rate, 1.0, rng),
    "hum": _hum,
    "wind": _wind,
    "rain": _rain,
    "traffic": _traffic,
    "crowd": _crowd,
}
"""The synthetic noises by name."""
