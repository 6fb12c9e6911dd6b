"""Random training examples with their targets, mixed on the fly.

An example is a main recording, often with a second event or with noise under it. Its target is
computed from the teacher's logits of the clean parts, so that the teacher never runs on a
mixture and the student learns to name the event in spite of the noise. With s the SNR in dB
(positive where the other part is quieter), l the logits of the main part and o the other's:

    two events:       target = max(l - c * max(-s, 0), o - c * max(s, 0))
    recorded noise:   target = max(l, o - c * max(s + 15, 0))
    babble, synthetic noise:   target = l

element-wise, with c = 0.25 per dB. Everything is drawn from an explicit generator.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftscore.backbones.mini import front_end as mini_frontend
from training.collect import RATE, WORK, read_audio, read_segments

VALIDATION_PACKAGE = "fillets-ng-data-nl"
"""Speech that is never trained on: the babble of the validation set is made from it."""
_BLOCK = RATE // 50
_MEL_FLOOR = float((np.log(1e-5) + 4.5) / 5.0)

Samples = npt.NDArray[np.float32]
Logits = npt.NDArray[np.float32]
Example = tuple[Samples, Logits]


@dataclass(frozen=True)
class Recipe:
    """Probability and range of each change."""

    untouched: float = 0.22
    """Share of examples that are clean segments without any change."""
    alone: float = 0.12
    """Share of examples with nothing mixed in, but changed in speed, room and level."""
    second_event: float = 0.18
    """Of the mixtures, the share with a second event; the others get noise."""
    noise_shares: tuple[float, float, float, float] = (0.45, 0.20, 0.25, 0.10)
    """Of the noises: steady recordings, any recordings, babble, synthetic noise."""
    snr_db: tuple[float, float] = (-6.0, 24.0)
    gain_db: tuple[float, float] = (-20.0, 6.0)
    speed_changed: float = 0.35
    largest_speed_change: float = 0.15
    equalised: float = 0.4
    reverberated: float = 0.15
    logits_per_db: float = 0.25
    noise_margin_db: float = 15.0


class Bank:
    """Segments and pieces with the teacher's logits, and the probability of each segment."""

    def __init__(self) -> None:
        self._audio = read_audio()
        with np.load(WORK / "pieces.npz") as file:
            self._start, self._length = file["start"], file["length"]
            self._logits, self._steady = file["logits"], file["steady"]
            segment, seconds = file["segment"], file["seconds"]
        self._pieces: dict[tuple[int, float], list[int]] = {}
        for row, key in enumerate(zip(segment.tolist(), seconds.tolist(), strict=True)):
            self._pieces.setdefault(key, []).append(row)
        weights = np.load(WORK / "teacher.npz")["weights"]
        weights *= [s.package != VALIDATION_PACKAGE for s in read_segments()[: len(weights)]]
        self._weights = np.cumsum(weights)
        self._steady_weights = np.cumsum(weights * self._steady)

    def draw(self, seconds: float, rng: np.random.Generator, *, steady: bool = False) -> Example:
        """Return samples and logits of a piece of at most about `seconds`."""
        weights = self._steady_weights if steady else self._weights
        segment = int(np.searchsorted(weights, rng.random() * weights[-1], side="right"))
        rows = self._pieces.get((segment, seconds)) or self._pieces[segment, 0.0]
        row = rows[int(rng.integers(len(rows)))]
        start = self._start[row]
        samples = self._audio[start : start + self._length[row]].astype(np.float32) / 32_767
        return samples, self._logits[row].astype(np.float32)


class Mixer:
    """Draws examples of a given length; `synthetic` holds noises of ten seconds to cut from."""

    def __init__(self, bank: Bank, recipe: Recipe, rng: np.random.Generator) -> None:
        self._bank, self._recipe, self._rng = bank, recipe, rng
        self._synthetic = [synthetic_noise(10 * RATE, rng) for _ in range(48)]

    def example(self, seconds: float) -> Example:
        """Return the log-mel (64, frames) and the target logits of one example."""
        rng, recipe, length = self._rng, self._recipe, int(seconds * RATE)
        samples, logits = self._bank.draw(seconds, rng)
        kind = rng.random()
        if kind < recipe.untouched:
            return mini_frontend.log_mel(place(samples, length, rng)), logits
        main = place(self._varied(samples), length, rng)
        if rng.random() < recipe.reverberated:
            main = reverberate(main, rng)
        if kind > recipe.untouched + recipe.alone:
            snr_db = rng.uniform(*recipe.snr_db)
            if rng.random() < recipe.second_event:
                other, target = self._event(seconds, logits, snr_db)
            else:
                other, target = self._noise(seconds, logits, snr_db)
            main, logits = add_at_snr(main, other, snr_db), target
        mel = mini_frontend.log_mel(self._levelled(main))
        if rng.random() < recipe.equalised:
            mel = np.maximum(mel + random_tilt(mel.shape[0], rng)[:, None], _MEL_FLOOR)
        return mel, logits

    def _event(self, seconds: float, main: Logits, snr_db: float) -> Example:
        """Return a second event and the target of both."""
        samples, logits = self._bank.draw(seconds, self._rng)
        other = place(self._varied(samples), int(seconds * RATE), self._rng)
        slope = self._recipe.logits_per_db
        quieter_main = main - slope * max(-snr_db, 0.0)
        return other, np.maximum(quieter_main, logits - slope * max(snr_db, 0.0))

    def _noise(self, seconds: float, main: Logits, snr_db: float) -> Example:
        """Return a background and the target of the main part in it."""
        rng, recipe, length = self._rng, self._recipe, int(seconds * RATE)
        kind = rng.choice(4, p=recipe.noise_shares)
        if kind == 3:
            noise = self._synthetic[int(rng.integers(len(self._synthetic)))]
            return place(noise, length, rng), main
        if kind == 2:
            return self._babble(seconds), main
        samples, logits = self._bank.draw(seconds, rng, steady=kind == 0)
        noise = looped(self._varied(samples), length, rng)
        if rng.random() < recipe.equalised:
            noise = equalise(noise, rng)
        drop = recipe.logits_per_db * max(snr_db + recipe.noise_margin_db, 0.0)
        return noise, np.maximum(main, logits - drop)

    def _babble(self, seconds: float) -> Samples:
        """Return three to seven recordings at once, each repeated over the whole length."""
        rng, length = self._rng, int(seconds * RATE)
        parts = [self._bank.draw(seconds, rng)[0] for _ in range(int(rng.integers(3, 8)))]
        return babble([looped(part, length, rng) for part in parts], rng)

    def _varied(self, samples: Samples) -> Samples:
        """Return the samples, sometimes played faster or slower."""
        if self._rng.random() >= self._recipe.speed_changed:
            return samples
        most = self._recipe.largest_speed_change
        return change_speed(samples, float(np.exp(self._rng.uniform(-most, most))))

    def _levelled(self, samples: Samples) -> Samples:
        """Return the samples at a random level, below full scale."""
        peak = float(np.abs(samples).max()) + 1e-9
        gain = 10 ** (self._rng.uniform(*self._recipe.gain_db) / 20)
        return samples * np.float32(min(gain, 1.0 / peak))


def place(segment: Samples, length: int, rng: np.random.Generator) -> Samples:
    """Return `length` samples: a random crop, or the segment in silence, or repeated."""
    if segment.size >= length:
        start = int(rng.integers(segment.size - length + 1))
        return segment[start : start + length]
    if rng.random() < 0.3:
        return looped(segment, length, rng)
    placed = np.zeros(length, dtype=np.float32)
    start = 0 if rng.random() < 0.4 else int(rng.integers(length - segment.size + 1))
    placed[start : start + segment.size] = segment
    return placed


def looped(segment: Samples, length: int, rng: np.random.Generator) -> Samples:
    """Return `length` samples of the segment, repeated and started anywhere."""
    start = int(rng.integers(segment.size))
    whole = np.concatenate([segment[start:], np.tile(segment, -(-length // segment.size))])
    return whole[:length]


def change_speed(segment: Samples, factor: float) -> Samples:
    """Return the segment played `factor` times as fast, with the pitch changed too."""
    import soxr

    return np.asarray(soxr.resample(segment, RATE * factor, RATE, quality="LQ"), dtype=np.float32)


def random_tilt(bands: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return a smooth random change of the log-mel bands, about +-6 dB, as of a microphone."""
    knots_db = rng.normal(0.0, 4.0, size=7)
    curve = np.interp(np.linspace(0, 6, bands), np.arange(7), knots_db - knots_db.mean())
    return (curve * np.log(10) / 10 / 5).astype(np.float32)


def equalise(samples: Samples, rng: np.random.Generator) -> Samples:
    """Return the samples through a smooth random filter of about +-6 dB."""
    spectrum = np.fft.rfft(samples)
    knots_db = rng.normal(0.0, 5.0, size=9)
    octaves = np.log2(1.0 + np.arange(spectrum.size) * 512.0 / spectrum.size)
    gains = 10 ** (np.interp(octaves, np.arange(9), knots_db - knots_db.mean()) / 20)
    return np.fft.irfft(spectrum * gains.astype(np.float32), samples.size).astype(np.float32)


def reverberate(samples: Samples, rng: np.random.Generator) -> Samples:
    """Return the samples in a random room: the direct sound and a tail of decaying noise."""
    decay_s, wet = rng.uniform(0.05, 0.5), rng.uniform(0.1, 0.7)
    t = np.arange(int(decay_s * RATE))
    tail = rng.normal(size=t.size) * np.exp(-6.9 * t / t.size)
    response = (wet * tail / np.linalg.norm(tail)).astype(np.float32)
    response[0] += 1.0
    spectrum = np.fft.rfft(samples) * np.fft.rfft(response, samples.size)
    return np.fft.irfft(spectrum, samples.size).astype(np.float32)


def babble(parts: list[Samples], rng: np.random.Generator) -> Samples:
    """Return the sum of recordings of one length, at levels within 10 dB of each other."""
    levels = [np.sqrt(_active_power(p) + 1e-12) * 10 ** (rng.uniform(0, 10) / 20) for p in parts]
    mixed = np.sum([p / np.float32(v) for p, v in zip(parts, levels, strict=True)], axis=0)
    return np.asarray(0.1 * mixed, dtype=np.float32)


def synthetic_noise(length: int, rng: np.random.Generator) -> Samples:
    """Return coloured noise (+3 to -6 dB per octave), some band-limited, some modulated."""
    spectrum = np.fft.rfft(rng.normal(size=length))
    hertz = np.arange(spectrum.size) * RATE / length
    spectrum[1:] *= np.arange(1, spectrum.size) ** rng.uniform(-1.0, 0.5)
    spectrum[0] = 0.0
    if rng.random() < 0.4:
        centre, width = np.exp(rng.uniform(np.log(150), np.log(8_000))), rng.uniform(0.3, 1.5)
        spectrum *= np.exp(-0.5 * np.square(np.log((hertz + 1) / centre) / width))
    noise = np.fft.irfft(spectrum, length)
    if rng.random() < 0.3:
        t = np.arange(length) / RATE
        depth, rate = rng.uniform(0.3, 0.9), np.exp(rng.uniform(np.log(0.2), np.log(12)))
        noise *= 1 + depth * np.sin(2 * np.pi * rate * t + rng.uniform(0, 6))
    return (0.1 * noise / noise.std()).astype(np.float32)


def _active_power(samples: Samples) -> float:
    """Return the power over the blocks of 20 ms that are within 50 dB of the loudest."""
    blocks = samples[: samples.size // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
    powers = np.einsum("bs,bs->b", blocks, blocks) / _BLOCK
    return float(powers[powers > 1e-5 * powers.max()].mean()) if powers.max() > 0 else 0.0


def add_at_snr(main: Samples, other: Samples, snr_db: float) -> Samples:
    """Return main + other with `other` scaled to `snr_db` below the active part of main."""
    power_main, power_other = _active_power(main), _active_power(other)
    if power_main <= 0.0 or power_other <= 0.0:
        return main + other
    return main + other * np.float32(np.sqrt(power_main / power_other / 10 ** (snr_db / 10)))
