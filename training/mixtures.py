"""Random mixtures of recorded segments: what the teacher hears and the student learns.

Everything is drawn from an explicit generator. One mixture is a main segment, often with one
or two others or synthetic noise at -5 to 25 dB below it, each moved in time, played faster or
slower, equalised and sometimes reverberated, at a random level. The teacher labels the result,
so that no change made here can make a target wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RATE = 32_000

Samples = npt.NDArray[np.float32]
Draw = Callable[[np.random.Generator], Samples]


@dataclass(frozen=True)
class Recipe:
    """How often each kind of change is made."""

    untouched: float = 0.20
    alone: float = 0.35
    """Of those not untouched, the share with nothing mixed in; a third of the rest get two."""
    faster_or_slower: float = 0.5
    speed_range: float = 0.3
    """The largest change of speed, as a logarithm: 0.3 is 0.74 to 1.35 times as fast."""
    equalised: float = 0.4
    reverberated: float = 0.15
    synthetic_noise: float = 0.15
    snr_db: tuple[float, float] = (-5.0, 25.0)
    gain_db: tuple[float, float] = (-14.0, 6.0)


def mix(draw: Draw, length: int, recipe: Recipe, rng: np.random.Generator) -> Samples:
    """Return one mixture of `length` samples; `draw` yields one recorded segment a call."""
    if rng.random() < recipe.untouched:
        return place(draw(rng), length, rng)
    mixture = _varied(draw, length, recipe, rng)
    others = 0 if rng.random() < recipe.alone else 1 + int(rng.random() < 1 / 3)
    for _ in range(others):
        if rng.random() < recipe.synthetic_noise:
            other = coloured_noise(length, rng)
        else:
            other = _varied(draw, length, recipe, rng)
        mixture = add_at_snr(mixture, other, rng.uniform(*recipe.snr_db))
    peak = float(np.abs(mixture).max()) + 1e-9
    gain = 10 ** (rng.uniform(*recipe.gain_db) / 20)
    return (mixture * min(gain, 1.0 / peak)).astype(np.float32)


def place(segment: Samples, length: int, rng: np.random.Generator) -> Samples:
    """Return `length` samples: a random crop, or the segment somewhere in silence, or looped."""
    if segment.size >= length:
        start = int(rng.integers(segment.size - length + 1))
        return segment[start : start + length]
    if rng.random() < 0.3:
        looped = np.tile(segment, -(-length // segment.size))[:length]
        return np.roll(looped, int(rng.integers(length)))
    placed = np.zeros(length, dtype=np.float32)
    start = 0 if rng.random() < 0.4 else int(rng.integers(length - segment.size + 1))
    placed[start : start + segment.size] = segment
    return placed


def _varied(draw: Draw, length: int, recipe: Recipe, rng: np.random.Generator) -> Samples:
    """Return one drawn segment with its speed, place, colour and room changed."""
    segment = draw(rng)
    if rng.random() < recipe.faster_or_slower:
        segment = change_speed(segment[: 2 * length], _speed(recipe, rng))
    placed = place(segment, length, rng)
    equalise, reverberate = rng.random(2) < (recipe.equalised, recipe.reverberated)
    if not (equalise or reverberate):
        return placed
    spectrum = np.fft.rfft(placed.astype(np.float64))
    if equalise:
        spectrum *= random_gains(spectrum.size, rng)
    if reverberate:
        spectrum *= np.fft.rfft(random_room(rng), length)
    return np.fft.irfft(spectrum, length).astype(np.float32)


def _speed(recipe: Recipe, rng: np.random.Generator) -> float:
    """Return a random factor of speed."""
    return float(np.exp(rng.uniform(-recipe.speed_range, recipe.speed_range)))


def change_speed(segment: Samples, factor: float) -> Samples:
    """Return the segment played `factor` times as fast, pitch and all."""
    import soxr

    return np.asarray(soxr.resample(segment, RATE * factor, RATE, quality="LQ"), dtype=np.float32)


def random_gains(bins: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return smooth random gains over linear frequency bins, about +-6 dB, by octave."""
    knots_db = rng.normal(0.0, 4.0, size=9)
    octaves = np.log2(1.0 + np.arange(bins) * 512.0 / bins)
    return 10 ** (np.interp(octaves, np.arange(9), knots_db - knots_db.mean()) / 20)


def random_room(rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return an impulse response: the direct sound, then noise that dies away exponentially."""
    decay_s, wet = rng.uniform(0.05, 0.5), rng.uniform(0.1, 0.7)
    t = np.arange(int(decay_s * RATE))
    tail = rng.normal(size=t.size) * np.exp(-6.9 * t / t.size)
    response = wet * tail / np.linalg.norm(tail)
    response[0] += 1.0
    return response


def coloured_noise(length: int, rng: np.random.Generator) -> Samples:
    """Return noise whose power falls by 0 to 6 dB an octave."""
    spectrum = np.fft.rfft(rng.normal(size=length))
    spectrum[1:] *= np.arange(1, spectrum.size) ** -rng.uniform(0.0, 1.0)
    spectrum[0] = 0.0
    noise = np.fft.irfft(spectrum, length)
    return (0.1 * noise / noise.std()).astype(np.float32)


def add_at_snr(main: Samples, other: Samples, snr_db: float) -> Samples:
    """Return main + other with `other` scaled to lie `snr_db` below main, in power."""
    active = np.abs(main) > 0
    power_main = float(np.square(main[active]).mean()) if active.any() else 0.0
    power_other = float(np.square(other).mean())
    if power_main <= 0.0 or power_other <= 0.0:
        return main + other
    return main + other * np.float32(np.sqrt(power_main / power_other / 10 ** (snr_db / 10)))
