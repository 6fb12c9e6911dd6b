"""Fix a soundscape: draw its words, backgrounds, clips, times and SNRs from the seed.

The background is one recorded place after another, each for some minutes, joined by cross-fades of
equal power; a recording shorter than that is repeated, also with a cross-fade. As Scaper has it,
with L the integrated loudness in LUFS, a background is scaled by ref_db - L(background) and an
event by ref_db + snr_db - L(event).

Clips are cut to their active part. Events of one label are at least 5 s apart and that far from the
quiet part; events of different labels may overlap. No label is used as a word if a background
contains it, and no other event while its own label is in the background.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from driftscore.errors import AudioError, UsageError, unknown
from driftscore.lab.conditions import canonical, generator
from driftscore.lab.corpora.datasets.protocol import Dataset
from driftscore.lab.corpora.folders import load
from driftscore.lab.corpora.noises.protocol import Noise, NoiseRecording
from driftscore.lab.corpora.soundscapes.truth import (
    VERSION,
    Soundscape,
    SoundscapeRecipe,
    TrueEvent,
)
from driftscore.lab.mixing.loudness import FLOOR, shared_meter
from driftscore.lab.mixing.mixings.additive import active_part
from driftscore.lab.mixing.record import MixPart, mix_part
from driftscore.lab.mixing.sounds import Excerpt, Sound
from driftscore.lab.mixing.soundscape import FADE_S, REF_DB
from driftscore.text.prompts import words as spelled

CROSSFADE_S = 2.0
STRETCH_S = (120.0, 300.0)
"""How long one place lasts: drawn uniformly."""

GAP_S = 5.0
_PEAK = 0.98
_TRIES = 1000


class Material:
    """Clips by label (`sea waves`) and backgrounds, each file by a name that is the same anywhere.

    The truth of a soundscape has these names; `paths` says where the files are on this machine.
    """

    def __init__(
        self,
        clips: Mapping[str, Sequence[str]],
        backgrounds: Sequence[NoiseRecording],
        paths: Mapping[str, Path],
    ) -> None:
        if not clips or not backgrounds:
            raise UsageError(
                f"There are {len(clips)} labels with clips and {len(backgrounds)} backgrounds; "
                "a soundscape needs both"
            )
        self.clips = {label: tuple(sorted(clips[label])) for label in sorted(clips)}
        self.backgrounds = tuple(sorted(backgrounds, key=lambda noise: noise.file))
        self.paths = paths

    @staticmethod
    def of(dataset: Dataset, noise: Noise) -> "Material":
        """Return the clips with one label of a dataset, and the recordings of a noise."""
        clips: dict[str, list[str]] = {}
        paths = {}
        for clip in dataset.clips():
            if len(clip.labels) == 1:
                name = f"clips/{clip.id}"
                clips.setdefault(spelled(clip.labels[0]), []).append(name)
                paths[name] = clip.path
        backgrounds = []
        for recording in noise.recordings():
            name = f"noise/{recording.id}"
            paths[name] = Path(recording.file)
            backgrounds.append(replace(recording, file=name))
        return Material(clips, backgrounds, paths)

    def sound(self, name: str, rate: int, label: str = "") -> Sound:
        """Return a recording by its name."""
        if name not in self.paths:
            raise UsageError(f"{name} is not among the recordings of this dataset and noise")
        return Sound(name, load(str(self.paths[name]), rate), label)


class _Stretch(NamedTuple):
    """A background from one frame of the soundscape to another."""

    noise: NoiseRecording
    start: int
    end: int


def draw(recipe: SoundscapeRecipe, material: Material) -> Soundscape:
    """Fix the soundscape of a recipe, made of these recordings."""
    key = canonical({"version": VERSION, **asdict(recipe)})
    if isinstance(recipe.words, tuple):
        words = tuple(spelled(word) for word in recipe.words)
        for word in words:
            if word not in material.clips:
                raise unknown("label", word, material.clips)
    else:  # labels that no background contains
        free = [n for n in material.clips if not any(b.contains([n]) for b in material.backgrounds)]
        if len(free) < recipe.words:
            raise UsageError(
                f"{len(free)} labels are in no background, but {recipe.words} words are needed; "
                "name the words, or ask for fewer"
            )
        order = generator("soundscape words", key).permutation(free)
        words = tuple(sorted(str(word) for word in order[: recipe.words]))
    stretches, backgrounds = _background(recipe, words, material, key)
    quiet, events = _events(recipe, words, material, stretches, key)

    def peak(part: MixPart) -> float:
        samples = material.sound(part.file, recipe.rate).audio.samples
        return float(np.abs(samples).max()) * 10 ** (part.gain_db / 20)

    # An upper bound: two backgrounds in a cross-fade and, at every moment, all events that sound.
    peaks = [peak(event.part) for event in events]
    together = [
        sum(p for p, e in zip(peaks, events, strict=True) if e.start_s <= at.start_s < e.end_s)
        for at in events
    ]
    behind = 2**0.5 * max(map(peak, {part.file: part for part in backgrounds}.values()))
    loudest = behind + max(together, default=0.0)
    scale_db = min(0.0, float(20 * np.log10(_PEAK / loudest)))
    return Soundscape(
        recipe, words, stretches[-1].end, quiet, tuple(backgrounds), events, REF_DB, scale_db,
        FADE_S, CROSSFADE_S,
    )  # fmt: skip


def _background(
    recipe: SoundscapeRecipe, words: tuple[str, ...], material: Material, key: str
) -> tuple[list[_Stretch], list[MixPart]]:
    """Return one background after another, each overlapping the next, and the parts of all.

    A stretch begins at a drawn position of its recording, which is then repeated.
    """
    usable = [noise for noise in material.backgrounds if not noise.contains(words)]
    if not usable:
        raise UsageError(f"Every background contains one of {', '.join(words)}")
    rng, meter = generator("soundscape background", key), shared_meter()
    rate, overlap = recipe.rate, round(CROSSFADE_S * recipe.rate)
    frames, start, last = round(recipe.seconds * rate), 0, -1
    stretches: list[_Stretch] = []
    order: list[int] = []
    while not stretches or stretches[-1].end < frames:
        if not order:
            order = [int(number) for number in rng.permutation(len(usable))]
            if order[0] == last and len(order) > 1:
                order.append(order.pop(0))
        last = order.pop(0)
        end = start + round(float(rng.uniform(*STRETCH_S)) * rate)
        if end + round(STRETCH_S[0] / 2 * rate) >= frames:
            end = frames
        stretches.append(_Stretch(usable[last], start, end))
        start = end - overlap
    parts = []
    for noise, start, end in stretches:
        sound = material.sound(noise.file, rate, noise.environment)
        length_of_sound, loudness = len(sound.audio.samples), meter(sound.audio.samples, rate)
        if length_of_sound < 4 * overlap or loudness <= FLOOR:
            raise AudioError(
                f"{sound.file} cannot be a background: it needs {4 * CROSSFADE_S:g} s at least and "
                f"more than {FLOOR:g} LUFS, and has {sound.audio.seconds:.1f} s and {loudness:.1f}"
            )
        first = int(rng.integers(length_of_sound - 4 * overlap + 1))
        while True:
            length, rest = length_of_sound - first, end - start
            if length < rest < length + overlap:  # what remains could not be faded in and out
                length -= 2 * overlap
            taken = Excerpt(sound, first, min(length, rest))
            parts.append(mix_part("background", taken, start, REF_DB - loudness))
            if start + taken.frames >= end:
                break
            start, first = start + taken.frames - overlap, 0
    return stretches, parts


def _events(
    recipe: SoundscapeRecipe,
    words: tuple[str, ...],
    material: Material,
    stretches: Sequence[_Stretch],
    key: str,
) -> tuple[tuple[float, float], tuple[TrueEvent, ...]]:
    """Return the quiet part and the events in order of time: clips at drawn times and SNRs.

    Labels come in turn, and a clip again only after all others of its label. A clip whose loudness
    cannot be measured is not used: it would have no SNR.
    """
    rng, meter = generator("soundscape events", key), shared_meter()
    quiet_start = round(float(rng.uniform(0, recipe.seconds - recipe.quiet_s)), 3)
    quiet_s = (quiet_start, quiet_start + recipe.quiet_s)
    rate, frames, gap = recipe.rate, stretches[-1].end, round(GAP_S * recipe.rate)
    others = [
        label
        for label in material.clips
        if label not in words and not all(s.noise.contains([label]) for s in stretches)
    ]
    choices = []
    for labels, events_left in ((words, recipe.events), (others, recipe.others)):
        if events_left and not labels:
            raise UsageError("There is no label left for events of no word; ask for fewer words")
        waiting: list[str] = []
        unused: dict[str, list[str]] = {}
        too_quiet = 0
        while events_left:
            waiting = waiting or [str(label) for label in rng.permutation(labels)]
            label = waiting.pop(0)
            if not unused.get(label):
                unused[label] = [str(file) for file in rng.permutation(material.clips[label])]
            sound = material.sound(unused[label].pop(0), rate, label)
            active = np.flatnonzero(active_part(sound.audio.samples, rate))
            if not len(active):
                raise AudioError(f"{sound.file} is silent: every sample is zero")
            # Without the silence around the clip.
            excerpt = Excerpt(sound, int(active[0]), int(active[-1] - active[0]) + 1)
            loudness = meter(excerpt.samples, rate)
            if loudness > FLOOR:
                choices.append((label, excerpt, loudness))
                events_left -= 1
            elif (too_quiet := too_quiet + 1) < _TRIES:
                waiting.insert(0, label)
            else:
                raise AudioError(f"The clips of {label!r} are too quiet: {FLOOR:g} LUFS or less")
    taken: dict[str, list[tuple[int, int]]] = {}
    events = []
    for label, excerpt, loudness in choices:
        snr_db, length = float(rng.uniform(*recipe.snr_db)), excerpt.frames
        closed = [(round(quiet_s[0] * rate), round(quiet_s[1] * rate))] if recipe.quiet_s else []
        closed += taken.get(label, [])
        closed += [(s.start, s.end) for s in stretches if s.noise.contains([label])]
        for _ in range(_TRIES):
            start = int(rng.integers(max(1, frames - length)))
            if all(start + length + gap <= low or high + gap <= start for low, high in closed):
                break
        else:
            raise UsageError(
                f"No room for another {label!r} in {recipe.seconds:g} s; "
                "ask for fewer events or more seconds"
            )
        taken.setdefault(label, []).append((start, start + length))
        part = mix_part("event", excerpt, start, REF_DB + snr_db - loudness)
        times = (start / rate, (start + length) / rate)
        events.append(TrueEvent(label, *times, label in words, snr_db, part))
    return quiet_s, tuple(sorted(events, key=lambda event: (event.start_s, event.label)))
