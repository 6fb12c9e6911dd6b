"""Random synthetic sounds, as further material for mixtures.

A sound is the sum of one to three voices. A voice has a source (partials of a gliding pitch, a
train of pulses, or noise), resonances, a slow modulation, and an envelope: one stroke, repeated
strokes, or steady. Nothing of it is meant to be any sound in particular. The teacher labels what
comes out, and the student learns what the teacher says of sounds that no recording of the pool has.
"""

import numpy as np
import numpy.typing as npt
import scipy.fft

Samples = npt.NDArray[np.float32]


def synthetic_sound(length: int, rate: int, rng: np.random.Generator) -> Samples:
    """Return a random sound with a peak of 0.5."""
    sound = np.zeros(length, np.float32)
    for _ in range(int(rng.integers(1, 4))):
        voice = _source(length, rate, rng)
        voice = _resonances(voice, rate, rng) * _envelope(length, rate, rng)
        peak = float(np.abs(voice).max())
        if peak > 1e-6:
            sound += voice * np.float32(10 ** (rng.uniform(-15, 0) / 20) / peak)
    peak = float(np.abs(sound).max())
    return sound * np.float32(0.5 / peak) if peak > 1e-6 else sound


def _glide(length: int, rate: int, rng: np.random.Generator) -> Samples:
    """Return the phase, in cycles, of a pitch that glides and wavers."""
    points = int(rng.integers(2, 7))
    octaves = np.log2(np.exp(rng.uniform(np.log(40), np.log(4_000))))
    octaves = octaves + np.cumsum(rng.normal(0.0, rng.choice([0.02, 0.2, 0.6]), size=points))
    t = np.arange(length, dtype=np.float32) / np.float32(rate)
    pitch = np.interp(t, np.linspace(0, length / rate, points), octaves).astype(np.float32)
    if rng.random() < 0.5:
        depth, speed = rng.uniform(0.01, 0.5), np.exp(rng.uniform(np.log(0.3), np.log(30)))
        pitch += np.float32(depth) * np.sin(np.float32(2 * np.pi * speed) * t)
    hertz = np.minimum(np.exp2(pitch), rate / 3)
    return np.cumsum(hertz / rate, dtype=np.float64)


def _source(length: int, rate: int, rng: np.random.Generator) -> Samples:
    """Return partials, pulses or noise."""
    kind = rng.choice(4, p=(0.35, 0.2, 0.15, 0.3))
    if kind == 3:
        return rng.standard_normal(length, dtype=np.float32)
    cycles = _glide(length, rate, rng)
    if kind == 0:
        stretch, tilt = rng.uniform(0.98, 1.15), rng.uniform(0.3, 2.0)
        numbers = np.arange(1, int(rng.integers(2, 9))) ** stretch
        phases = [((cycles * n) % 1.0).astype(np.float32) for n in numbers]
        waves = [np.sin(np.float32(2 * np.pi) * phase) for phase in phases]
        weights = numbers**-tilt * rng.uniform(0.2, 1.0, size=len(numbers))
        return np.asarray(sum(np.float32(w) * v for w, v in zip(weights, waves, strict=True)))
    slower = cycles / float(np.exp(rng.uniform(0, np.log(60)))) if kind == 2 else cycles
    slower = slower + rng.normal(0, rng.uniform(0, 0.02)) * np.sqrt(np.arange(length) / rate)
    pulses = np.zeros(length, np.float32)
    pulses[1:] = np.diff(np.floor(slower)) > 0
    return pulses * (1 + 0.3 * rng.standard_normal(length, dtype=np.float32))


def _resonances(voice: Samples, rate: int, rng: np.random.Generator) -> Samples:
    """Return the voice through a few resonances and a tilt of the spectrum."""
    size = scipy.fft.next_fast_len(voice.size, real=True)
    spectrum = scipy.fft.rfft(voice, size)
    octaves = np.log2(np.arange(1, spectrum.size + 1, dtype=np.float32) * (rate / size) + 20)
    gains_db = -rng.uniform(0, 9) * (octaves - 10)
    for _ in range(int(rng.integers(0, 6))):
        centre, width = rng.uniform(6.5, 13.5), np.exp(rng.uniform(np.log(0.02), np.log(1.0)))
        gains_db += rng.uniform(-10, 30) / (1 + np.square((octaves - centre) / width))
    spectrum *= 10 ** ((gains_db - gains_db.max()) / 20)
    return np.asarray(scipy.fft.irfft(spectrum, size)[: voice.size], dtype=np.float32)


def _envelope(length: int, rate: int, rng: np.random.Generator) -> Samples:
    """Return the level over time: steady and wavering, one stroke, or repeated strokes."""
    t = np.arange(length, dtype=np.float32) / np.float32(rate)
    kind = rng.random()
    if kind < 0.3:
        speed, depth = np.exp(rng.uniform(np.log(0.2), np.log(40))), rng.uniform(0, 1)
        return np.asarray(1 + depth * np.sin(2 * np.pi * np.float32(speed) * t), np.float32)
    attack, decay = np.exp(rng.uniform(np.log([0.001, 0.01]), np.log([0.3, 1.5])))
    if kind < 0.6:
        since = t - np.float32(rng.uniform(0, 0.7) * length / rate)
    else:
        period = np.exp(rng.uniform(np.log(0.06), np.log(2.0)))
        since = (t + np.float32(rng.uniform(0, period))) % np.float32(period)
    rise = np.clip(since / np.float32(attack), 0, 1)
    return np.asarray(rise * np.exp(-np.maximum(since, 0) / np.float32(decay)), np.float32)
