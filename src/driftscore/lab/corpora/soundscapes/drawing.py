"""Fix a soundscape: draw its words, backgrounds, clips, times and SNRs from the seed.

The background is one recorded place after another, each for some minutes, joined by cross-fades of
equal power; a recording shorter than that is repeated, also with a cross-fade. As Scaper has it,
with L the integrated loudness in LUFS, a background is scaled by ref_db - L(background) and an
event by ref_db + snr_db - L(event).

Clips are cut to their active part. Events of one label are at least 5 s apart and that far from the
quiet part; events of different labels may overlap. No label is used as a word if a background
contains it, and no other event while its own label is in the background.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from driftscore.errors import AudioError, UsageError, unknown
from driftscore.lab.conditions import canonical
from driftscore.lab.corpora.loading import load
from driftscore.lab.corpora.noises.protocol import NoiseRecording
from driftscore.lab.corpora.soundscapes.material import Material, material
from driftscore.lab.corpora.soundscapes.truth import (
    VERSION,
    Soundscape,
    SoundscapeRecipe,
    TrueEvent,
)
from driftscore.lab.mixing.loudness import FLOOR, LoudnessMeter, shared_meter
from driftscore.lab.mixing.mixings.additive import active_part
from driftscore.lab.mixing.record import MixPart, mix_part
from driftscore.lab.mixing.sounds import Excerpt, Sound
from driftscore.lab.mixing.soundscape import FADE_S, REF_DB
from driftscore.lab.seeds import generator
from driftscore.prompts import words as spelled

CROSSFADE_S = 2.0
STRETCH_S = (120.0, 300.0)
"""How long one place lasts: drawn uniformly."""

GAP_S = 5.0
_PEAK = 0.98
_TRIES = 1000


@dataclass(frozen=True)
class _Stretch:
    """A background from one frame of the soundscape to another."""

    noise: NoiseRecording
    start: int
    end: int


@dataclass(frozen=True)
class _Choice:
    """A clip for an event, cut to its active part, and its loudness."""

    label: str
    wanted: bool
    excerpt: Excerpt
    loudness: float


def draw(recipe: SoundscapeRecipe, *, home: str | None = None) -> Soundscape:
    """Fix the soundscape of a recipe, made of the recordings in `home` or the shared ones."""
    key = canonical({"version": VERSION, **asdict(recipe)})
    sounds, meter = material(recipe.split, home), shared_meter()
    words = _words(recipe, sounds, generator("soundscape words", key))
    places = [noise for noise in sounds.backgrounds if not noise.contains(words)]
    if not places:
        raise UsageError(f"Every background of split {recipe.split!r} contains one of {words}")
    frames = round(recipe.seconds * recipe.rate)
    rng = generator("soundscape background", key)
    stretches = list(_stretches(places, frames, recipe.rate, rng))
    backgrounds: list[MixPart] = []
    for stretch in stretches:
        backgrounds += _segments(stretch, sounds, recipe.rate, meter, rng)
    rng = generator("soundscape events", key)
    quiet = _quiet(recipe, rng)
    used = [stretch.noise for stretch in stretches]
    rest = [label for label in sounds.clips if label not in words]
    others = [label for label in rest if not all(noise.contains([label]) for noise in used)]
    choices = [
        *_chosen(words, recipe.events, sounds, recipe.rate, meter=meter, rng=rng, wanted=True),
        *_chosen(others, recipe.others, sounds, recipe.rate, meter=meter, rng=rng, wanted=False),
    ]
    events = _placed(choices, stretches, quiet, recipe, rng)
    return Soundscape(
        recipe, words, frames, quiet, tuple(backgrounds), events, REF_DB,
        _scale_db(events, backgrounds, sounds, recipe.rate), FADE_S, CROSSFADE_S,
    )  # fmt: skip


def _words(recipe: SoundscapeRecipe, sounds: Material, rng: np.random.Generator) -> tuple[str, ...]:
    """Return the words that are given, or draw labels that no background contains."""
    if isinstance(recipe.words, tuple):
        given = tuple(spelled(word) for word in recipe.words)
        for word in given:
            if word not in sounds.clips:
                raise unknown("label", word, sounds.clips)
        return given
    free = [n for n in sounds.clips if not any(b.contains([n]) for b in sounds.backgrounds)]
    if len(free) < recipe.words:
        raise UsageError(
            f"{len(free)} labels of split {recipe.split!r} are in no background, but "
            f"{recipe.words} words are wanted; name the words, or ask for fewer"
        )
    return tuple(sorted(str(word) for word in rng.permutation(free)[: recipe.words]))


def _stretches(
    places: Sequence[NoiseRecording], frames: int, rate: int, rng: np.random.Generator
) -> Iterator[_Stretch]:
    """Yield one background after another; each overlaps the next by a cross-fade."""
    start, overlap = 0, round(CROSSFADE_S * rate)
    order: list[int] = []
    last = -1
    while True:
        if not order:
            order = [int(number) for number in rng.permutation(len(places))]
            if order[0] == last and len(order) > 1:
                order.append(order.pop(0))
        last = order.pop(0)
        end = start + round(float(rng.uniform(*STRETCH_S)) * rate)
        if end + round(STRETCH_S[0] / 2 * rate) >= frames:
            yield _Stretch(places[last], start, frames)
            return
        yield _Stretch(places[last], start, end)
        start = end - overlap


def _segments(
    stretch: _Stretch, sounds: Material, rate: int, meter: LoudnessMeter, rng: np.random.Generator
) -> Iterator[MixPart]:
    """Yield the parts of a stretch: from a drawn position on, then the recording again."""
    sound = _sound(sounds, stretch.noise.file, rate, stretch.noise.environment)
    whole, overlap = len(sound.audio.samples), round(CROSSFADE_S * rate)
    loudness = meter(sound.audio.samples, rate)
    if whole < 4 * overlap or loudness <= FLOOR:
        raise AudioError(
            f"{sound.file} cannot be a background: it needs {4 * CROSSFADE_S:g} s at least and "
            f"more than {FLOOR:g} LUFS, and has {sound.audio.seconds:.1f} s and {loudness:.1f}"
        )
    start, first = stretch.start, int(rng.integers(whole - 4 * overlap + 1))
    while True:
        length = whole - first
        rest = stretch.end - start
        if length < rest < length + overlap:  # what remains could not be faded in and out
            length -= 2 * overlap
        taken = Excerpt(sound, first, min(length, rest))
        yield mix_part("background", taken, start, REF_DB - loudness)
        if start + taken.frames >= stretch.end:
            return
        start, first = start + taken.frames - overlap, 0


def _quiet(recipe: SoundscapeRecipe, rng: np.random.Generator) -> tuple[float, float]:
    """Return when the quiet part starts and ends, in seconds."""
    start = round(float(rng.uniform(0, recipe.seconds - recipe.quiet_s)), 3)
    return (start, start + recipe.quiet_s)


def _chosen(
    labels: Sequence[str],
    count: int,
    sounds: Material,
    rate: int,
    *,
    wanted: bool,
    meter: LoudnessMeter,
    rng: np.random.Generator,
) -> Iterator[_Choice]:
    """Yield clips for so many events: labels in turn, and a clip again only after all others.

    A clip whose loudness cannot be measured is not used: it would have no SNR.
    """
    if count and not labels:
        raise UsageError("There is no label left for events of no word; ask for fewer words")
    waiting: list[str] = []
    unused: dict[str, list[str]] = {}
    too_quiet = 0
    while count:
        waiting = waiting or [str(label) for label in rng.permutation(labels)]
        label = waiting.pop(0)
        if not unused.get(label):
            unused[label] = [str(file) for file in rng.permutation(sounds.clips[label])]
        excerpt = active_excerpt(_sound(sounds, unused[label].pop(0), rate, label))
        loudness = meter(excerpt.samples, rate)
        if loudness > FLOOR:
            yield _Choice(label, wanted, excerpt, loudness)
            count -= 1
        elif (too_quiet := too_quiet + 1) < _TRIES:
            waiting.insert(0, label)
        else:
            raise AudioError(f"The clips of {label!r} are too quiet: {FLOOR:g} LUFS or less")


def active_excerpt(sound: Sound) -> Excerpt:
    """Return a clip from its first to its last active block: without the silence around it."""
    active = np.flatnonzero(active_part(sound.audio.samples, sound.audio.rate))
    if not len(active):
        raise AudioError(f"{sound.file} is silent: every sample is zero")
    return Excerpt(sound, int(active[0]), int(active[-1] - active[0]) + 1)


def _placed(
    choices: Sequence[_Choice],
    stretches: Sequence[_Stretch],
    quiet_s: tuple[float, float],
    recipe: SoundscapeRecipe,
    rng: np.random.Generator,
) -> tuple[TrueEvent, ...]:
    """Return the events in order of time, each at a time and an SNR that are drawn."""
    rate, frames = recipe.rate, stretches[-1].end
    gap = round(GAP_S * rate)
    no_event = (round(quiet_s[0] * rate), round(quiet_s[1] * rate))
    taken: dict[str, list[tuple[int, int]]] = {}
    events = []
    for choice in choices:
        snr_db, length = float(rng.uniform(*recipe.snr_db)), choice.excerpt.frames
        closed = [no_event] if recipe.quiet_s else []
        closed += taken.get(choice.label, [])
        closed += [(s.start, s.end) for s in stretches if s.noise.contains([choice.label])]
        for _ in range(_TRIES):
            start = int(rng.integers(max(1, frames - length)))
            if all(start + length + gap <= low or high + gap <= start for low, high in closed):
                break
        else:
            raise UsageError(
                f"No room for another {choice.label!r} in {recipe.seconds:g} s; "
                "ask for fewer events or more seconds"
            )
        taken.setdefault(choice.label, []).append((start, start + length))
        gain_db = REF_DB + snr_db - choice.loudness
        part = mix_part("event", choice.excerpt, start, gain_db)
        times = (start / rate, (start + length) / rate)
        events.append(TrueEvent(choice.label, *times, choice.wanted, snr_db, part))
    return tuple(sorted(events, key=lambda event: (event.start_s, event.label)))


def _scale_db(
    events: Sequence[TrueEvent], backgrounds: Sequence[MixPart], sounds: Material, rate: int
) -> float:
    """Return the gain, 0 dB or less, with which the loudest moment stays within full scale.

    An upper bound: two backgrounds in a cross-fade and, at every moment, all events that sound.
    """

    def peak(part: MixPart) -> float:
        samples = load(str(sounds.home / part.file), rate).samples
        return float(np.abs(samples).max()) * 10 ** (part.gain_db / 20)

    behind = 2**0.5 * max(map(peak, {part.file: part for part in backgrounds}.values()))
    peaks = [peak(event.part) for event in events]
    together = [
        sum(p for p, e in zip(peaks, events, strict=True) if e.start_s <= at.start_s < e.end_s)
        for at in events
    ]
    loudest = behind + max(together, default=0.0)
    return min(0.0, float(20 * np.log10(_PEAK / loudest)))


def _sound(sounds: Material, file: str, rate: int, label: str) -> Sound:
    """Return a recording under its relative name, so that records are the same on any machine."""
    return Sound(file, load(str(sounds.home / file), rate), label)
