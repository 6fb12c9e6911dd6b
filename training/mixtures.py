"""Random training examples, mixed on the fly and labelled by the teacher.

An example is a waveform for the student and a waveform for the teacher. They are the same one
(function matching), except in a share of the mixtures with noise, where the teacher gets the main
part alone (denoising): there the student learns to name the sound in spite of the noise.

A recording is cropped, changed in speed, equaliser, room and level, and mixed with any other
recording or with noise (steady recordings, babble, synthetic noise). Some are played backwards,
joined from parts of several recordings, or given the colour of another one: the teacher labels what
comes out, so an example need not be natural, and a student that hears only the pool's recordings
learns them by heart (a cosine of .88 to the teacher there, .77 on others). Batch n is a function of
the pool, the recipe and n alone, so a training that resumes at batch n needs no other random state.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.fft
import soxr
import torch
from torch import Tensor

from training.collect import RATE, WORK, read_audio, read_segments
from training.front_ends import fast_log_mel
from training.synthesis import synthetic_sound
from training.teacher_frames import TeacherFrames, load_teacher

VALIDATION_PACKAGE = "fillets-ng-data-nl"
"""Speech that is never trained on: the babble of the validation set is made from it."""
FRAME = 10_240
"""Samples per feature frame of the student."""
_BLOCK = RATE // 50
_FADE = np.linspace(0.0, 1.0, RATE // 100, dtype=np.float32)

Samples = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Recipe:
    """Probability and range of each change."""

    lengths: tuple[tuple[float, float], ...] = ((1.0, 0.12), (2.5, 0.28), (5.0, 0.42), (10.0, 0.18))
    """Seconds of the examples in a batch, and the share of such batches."""
    seconds_per_batch: float = 240.0
    untouched: float = 0.06
    """Share of examples that are plain crops."""
    alone: float = 0.2
    """Share of examples that are changed, with nothing mixed in."""
    noise: float = 0.6
    """Of the mixtures, the share with noise; the others get any other recording."""
    noise_shares: tuple[float, float, float] = (0.6, 0.25, 0.15)
    """Of the noises: steady recordings, babble, synthetic noise."""
    denoised: float = 0.55
    """Of the mixtures with noise, the share whose target is that of the main part alone."""
    denoised_events: float = 0.1
    """The same for mixtures with any other recording that is quieter by `event_margin_db`."""
    event_margin_db: float = 3.0
    snr_db: tuple[float, float] = (-6.0, 20.0)
    gain_db: tuple[float, float] = (-20.0, 6.0)
    speed_changed: float = 0.6
    largest_speed_change: float = 0.45
    """As the logarithm of the factor."""
    synthetic: float = 0.08
    """Share of the recordings that are replaced by random synthetic sounds."""
    backwards: float = 0.12
    joined: float = 0.25
    """Share of the main parts that are joined from parts of two to four recordings."""
    equalised: float = 0.4
    coloured: float = 0.2
    reverberated: float = 0.2
    window_frames: tuple[tuple[int, int], ...] = ((1, 3), (4, 9))
    """Shortest and longest window of the two losses on windows, in feature frames of 0.32 s."""
    shortest_windowed: float = 4.0
    """Seconds of the shortest example that has windows."""


@dataclass(frozen=True)
class Window:
    """A short part of every example of a batch, and the teacher's logits of that part."""

    first: int
    """Its first feature frame."""
    frames: int
    logits: Tensor
    weight: Tensor
    """1, or 0 for an example whose waveform is nearly silent there."""


@dataclass(frozen=True)
class Batch:
    """Examples of one length."""

    log_mel: Tensor
    """(examples, 1, 128, log-mel frames)"""
    logits: Tensor
    """The teacher's logits of the examples, (examples, 527)."""
    frames: Tensor
    """The teacher's features of each frame of 0.32 s, (examples, 384, frames)."""
    maps: list[Tensor]
    """The teacher's maps, float16, from the finest to the coarsest."""
    same: Tensor
    """Whether the teacher got the waveform of the student."""
    windows: list[Window]
    """Parts of examples that are long enough."""


class Bank:
    """The pool: segments and the probability of drawing each of them."""

    def __init__(self) -> None:
        self._audio = read_audio()
        with np.load(WORK / "teacher.npz") as file:
            weights, steady = file["weights"], file["steady"]
        segments = read_segments()[: len(weights)]
        self._start = np.array([s.start for s in segments])
        self._length = np.array([s.length for s in segments])
        weights = weights * [s.package != VALIDATION_PACKAGE for s in segments]
        self._any, self._steady = np.cumsum(weights), np.cumsum(weights * steady)

    def __len__(self) -> int:
        return len(self._start)

    def draw(self, length: int, rng: np.random.Generator, *, steady: bool = False) -> Samples:
        """Return a random part of a random segment, of at most `length` samples."""
        weights = self._steady if steady else self._any
        number = int(np.searchsorted(weights, rng.random() * weights[-1], side="right"))
        start, spare = self._start[number], self._length[number] - length
        if spare > 0:
            start += int(rng.integers(spare + 1))
        stop = start + min(length, self._length[number])
        return self._audio[start:stop].astype(np.float32) / np.float32(32_767)


class Mixer:
    """Makes batches; an index gives the same batch at every call."""

    def __init__(self, bank: Bank, recipe: Recipe, seed: int) -> None:
        self._bank, self._recipe, self._seed = bank, recipe, seed
        rng = np.random.default_rng([seed])
        self._synthetic = [synthetic_noise(10 * RATE, rng) for _ in range(48)]

    def first_mels(self) -> Tensor:
        """Return 2.4 s of the log-mels of some examples, for the statistics of batch norms."""
        mels = [self[number].log_mel for number in range(8)]
        return torch.cat([mel[..., :240] for mel in mels if mel.shape[-1] >= 240])

    def __getitem__(self, index: int) -> Batch:
        rng, recipe = np.random.default_rng([self._seed, index]), self._recipe
        lengths, shares = zip(*recipe.lengths, strict=True)
        seconds = float(rng.choice(lengths, p=shares))
        length, count = int(seconds * RATE), round(recipe.seconds_per_batch / seconds)
        pairs = [self._example(length, rng) for _ in range(count)]
        mels = [fast_log_mel(waveform) for waveform, _ in pairs]
        same = [waveform is samples for waveform, samples in pairs]
        taught = load_teacher().label(
            [
                mel if equal else fast_log_mel(samples)
                for mel, equal, (_, samples) in zip(mels, same, pairs, strict=True)
            ]
        )
        labelled = np.stack([samples for _, samples in pairs])
        spans = recipe.window_frames if seconds >= recipe.shortest_windowed else ()
        windows = [self._window(labelled, taught, span, rng) for span in spans]
        log_mel = torch.from_numpy(np.stack(mels))[:, None]
        logits, frames = torch.from_numpy(taught.logits), torch.from_numpy(taught.frames)
        maps = [torch.from_numpy(rows) for rows in taught.maps]
        return Batch(log_mel, logits, frames, maps, torch.tensor(same), windows)

    def _window(
        self,
        labelled: Samples,
        taught: TeacherFrames,
        span: tuple[int, int],
        rng: np.random.Generator,
    ) -> Window:
        """Return a random window of waveforms (examples, samples)."""
        frames = int(rng.integers(span[0], span[1] + 1))
        first = int(rng.integers(labelled.shape[1] // FRAME - frames + 1))
        start, stop = first * FRAME - FRAME // 2, (first + frames) * FRAME - FRAME // 2
        part = labelled[:, max(0, start) : stop]
        audible = np.square(part).mean(axis=1) > 0.01 * np.square(labelled).mean(axis=1)
        logits = load_teacher().window_logits(taught.frames[:, :, first : first + frames])
        weight = torch.from_numpy(audible.astype(np.float32))
        return Window(first, frames, torch.from_numpy(logits), weight)

    def _example(self, length: int, rng: np.random.Generator) -> tuple[Samples, Samples]:
        """Return the student's and the teacher's waveform of one example."""
        recipe, kind = self._recipe, rng.random()
        if kind < recipe.untouched:
            samples = place(self._bank.draw(length, rng), length, rng)
            return samples, samples
        main = self._event(length, rng)
        mixed = labelled = main
        if kind > recipe.untouched + recipe.alone:
            snr_db = rng.uniform(*recipe.snr_db)
            noise = rng.random() < recipe.noise
            other = self._noise(length, rng) if noise else self._event(length, rng)
            mixed = add_at_snr(main, other, snr_db)
            denoised = recipe.denoised if noise else recipe.denoised_events
            clear = noise or snr_db > recipe.event_margin_db
            labelled = main if clear and rng.random() < denoised else mixed
        gain = 10 ** (rng.uniform(*recipe.gain_db) / 20)
        gain = np.float32(min(gain, 1.0 / (float(np.abs(mixed).max()) + 1e-9)))
        loud = mixed * gain
        return loud, loud if labelled is mixed else labelled * gain

    def _event(self, length: int, rng: np.random.Generator) -> Samples:
        """Return a changed recording, or one that is joined from several."""
        if rng.random() >= self._recipe.joined:
            return self._filtered(place(self._varied(length, rng), length, rng), rng)
        inner = np.sort(rng.integers(length // 8, length, size=int(rng.integers(1, 4))))
        parts = []
        for size in np.diff([0, *inner.tolist(), length]).tolist():
            if size > 2 * _FADE.size:
                part = place(self._varied(size, rng), size, rng).copy()
                part[: _FADE.size] *= _FADE
                part[-_FADE.size :] *= _FADE[::-1]
                parts.append(part)
        joined = np.concatenate(parts) if parts else self._bank.draw(length, rng)
        return self._filtered(place(joined, length, rng), rng)

    def _noise(self, length: int, rng: np.random.Generator) -> Samples:
        """Return a background."""
        kind = rng.choice(3, p=self._recipe.noise_shares)
        if kind == 2:
            return looped(self._synthetic[int(rng.integers(len(self._synthetic)))], length, rng)
        if kind == 1:
            parts = [self._bank.draw(length, rng) for _ in range(int(rng.integers(3, 8)))]
            return babble([looped(part, length, rng) for part in parts], rng)
        return self._filtered(looped(self._varied(length, rng, steady=True), length, rng), rng)

    def _varied(self, length: int, rng: np.random.Generator, *, steady: bool = False) -> Samples:
        """Return about `length` samples of a recording, some faster, slower or backwards."""
        if not steady and rng.random() < self._recipe.synthetic:
            return synthetic_sound(length, RATE, rng)
        step = -1 if rng.random() < self._recipe.backwards else 1
        if rng.random() >= self._recipe.speed_changed:
            return self._bank.draw(length, rng, steady=steady)[::step]
        most = self._recipe.largest_speed_change
        factor = float(np.exp(rng.uniform(-most, most)))
        samples = self._bank.draw(int(length * factor) + 1, rng, steady=steady)[::step]
        faster = soxr.resample(samples, RATE * factor, RATE, quality="QQ")
        return np.asarray(faster, dtype=np.float32)

    def _filtered(self, samples: Samples, rng: np.random.Generator) -> Samples:
        """Return the samples, some through an equaliser, coloured like another, or in a room."""
        equalised = rng.random() < self._recipe.equalised
        coloured = rng.random() < self._recipe.coloured
        reverberated = rng.random() < self._recipe.reverberated
        if not (equalised or coloured or reverberated):
            return samples
        size = scipy.fft.next_fast_len(samples.size, real=True)
        spectrum = scipy.fft.rfft(samples, size)
        if equalised:
            spectrum *= equaliser(spectrum.size, rng)
        if coloured:
            other = scipy.fft.rfft(self._bank.draw(2 * RATE, rng), 2 * RATE)
            spectrum *= colouring(spectrum, other, rng)
        if reverberated:
            spectrum *= scipy.fft.rfft(room_response(rng), size)
        return np.asarray(scipy.fft.irfft(spectrum, size)[: samples.size], dtype=np.float32)


def place(segment: Samples, length: int, rng: np.random.Generator) -> Samples:
    """Return `length` samples: a part of the segment, or the segment in silence, or repeated."""
    if segment.size >= length:
        return segment[:length]
    if rng.random() < 0.3:
        return looped(segment, length, rng)
    placed = np.zeros(length, dtype=np.float32)
    start = 0 if rng.random() < 0.4 else int(rng.integers(length - segment.size + 1))
    placed[start : start + segment.size] = segment
    return placed


def looped(segment: Samples, length: int, rng: np.random.Generator) -> Samples:
    """Return `length` samples of the segment, repeated and started anywhere."""
    start = int(rng.integers(segment.size))
    repeated = np.concatenate([segment[start:], np.tile(segment, -(-length // segment.size))])
    return repeated[:length]


def equaliser(bins: int, rng: np.random.Generator) -> Samples:
    """Return the gains of a smooth random filter of about +-6 dB, as of a microphone."""
    knots_db = rng.normal(0.0, 5.0, size=9)
    octaves = (2.0 ** np.arange(9) - 1.0) * (bins / 255.0)
    gains = 10 ** ((knots_db - knots_db.mean()) / 20)
    return np.interp(np.arange(bins), octaves, gains).astype(np.float32)


def colouring(
    spectrum: npt.NDArray[np.complex64], other: npt.NDArray[np.complex64], rng: np.random.Generator
) -> Samples:
    """Return the gains that move the powers of 24 bands towards those of another recording."""
    edges = np.geomspace(0.002, 1.0, 25)
    levels_db = []
    for bins in (spectrum, other):
        power = np.concatenate([[0.0], np.cumsum(np.square(np.abs(bins), dtype=np.float64))])
        first = np.round(edges * bins.size).astype(int)
        means = np.diff(power[first]) / np.maximum(1, np.diff(first)) / bins.size
        levels_db.append(10 * np.log10(means + 1e-12))
    change_db = levels_db[1] - levels_db[0]
    change_db = np.clip(change_db - np.median(change_db), -24.0, 24.0) * rng.uniform(0.3, 1.0)
    centres = np.sqrt(edges[1:] * edges[:-1]) * spectrum.size
    gains = 10 ** (np.interp(np.arange(spectrum.size), centres, change_db) / 20)
    return np.asarray(gains, dtype=np.float32)


def room_response(rng: np.random.Generator) -> Samples:
    """Return the response of a random room: the direct sound and a tail of decaying noise."""
    decay_s, wet = rng.uniform(0.05, 0.5), rng.uniform(0.1, 0.7)
    t = np.arange(int(decay_s * RATE))
    tail = rng.normal(size=t.size) * np.exp(-6.9 * t / t.size)
    response = (wet * tail / np.linalg.norm(tail)).astype(np.float32)
    response[0] += 1.0
    return response


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
