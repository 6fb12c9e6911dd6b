"""Noise corpora, one a file: where noise comes from, and how a stretch of it is drawn.

A noise's file defines `ABOUT`, `recordings(home)`, `missing(home)` and

    sample(seconds, rate, rng, *, home=None, avoid=()) -> Stretch

which draws a recording that holds none of the labels in `avoid`, then a position in it. A
recording longer than `seconds` gives a stretch that lies wholly inside; a shorter one is
repeated end to end from its beginning. One that is silent, or shorter than a loudness
block (0.4 s), is refused.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from driftscore import registry
from driftscore.errors import AudioError, UsageError
from driftscore.lab import sounds
from driftscore.lab.datasets import home_of
from driftscore.lab.loudness import BLOCK_S
from driftscore.lab.sounds import Sound, Stretch
from driftscore.prompts import words

KIND = registry.Kind("noise", __name__, "sample")
_TRIES = 20


@dataclass(frozen=True)
class Recording:
    """One recording: its file, its place in words, and the labels that it holds itself."""

    file: str
    id: str
    environment: str
    avoid: tuple[str, ...] = ()

    def holds(self, labels: Iterable[str]) -> bool:
        """Return whether any of `labels` is one to avoid, however it is spelt."""
        return not {words(label) for label in labels}.isdisjoint(map(words, self.avoid))


def noise_names() -> tuple[str, ...]:
    """Return the names of all noises."""
    return registry.names(KIND)


def find_noise(name: str) -> Any:
    """Return the noise's module, or say which name is nearest."""
    return registry.find(KIND, name)


def usable(recordings: Sequence[Recording], avoid: Iterable[str]) -> list[Recording]:
    """Return the recordings that hold none of the labels in `avoid`, or say that none is left."""
    labels = tuple(avoid)
    kept = [recording for recording in recordings if not recording.holds(labels)]
    if not kept:
        raise UsageError(
            f"Every one of the {len(recordings)} noise recordings holds {' or '.join(labels)} "
            "itself; add another recording, or leave the label out"
        )
    return kept


def sample_recording(
    module: ModuleType,
    seconds: float,
    rate: int,
    rng: np.random.Generator,
    *,
    home: str | Path | None,
    avoid: Iterable[str],
) -> Stretch:
    """Draw a stretch from a corpus of files: what `sample` of such a corpus is made of."""
    kept = usable(_listed(module, home_of(module, home)), avoid)
    chosen = kept[int(rng.integers(len(kept)))]
    sound = Sound(chosen.file, sounds.load(chosen.file, rate), chosen.environment)
    return draw_stretch(sound, seconds, rng)


def draw_stretch(sound: Sound, seconds: float, rng: np.random.Generator) -> Stretch:
    """Draw a stretch of a sound that is not silent all through."""
    check_sound(sound)
    frames = round(seconds * sound.audio.rate)
    if frames < 1:
        raise UsageError(f"Noise is drawn for more than no time, not for {seconds!r} s")
    room = len(sound.audio.samples) - frames
    for _ in range(_TRIES):
        stretch = Stretch(sound, int(rng.integers(room + 1)) if room > 0 else 0, frames)
        if stretch.samples.any():
            return stretch
    raise AudioError(f"{sound.file} is silent in {_TRIES} stretches of {seconds:g} s drawn from it")


def check_sound(sound: Sound) -> None:
    """Refuse a recording that cannot be noise."""
    if sound.audio.seconds < BLOCK_S:
        raise AudioError(
            f"{sound.file} is {sound.audio.seconds:.3f} s long; noise needs at least one loudness "
            f"block of {BLOCK_S:g} s"
        )
    if not sound.audio.samples.any():
        raise AudioError(f"{sound.file} is silent: every sample is zero")


@lru_cache(maxsize=32)
def _listed(module: ModuleType, home: Path) -> tuple[Recording, ...]:
    """Return a corpus's recordings, listed once: TAU alone has eight thousand files."""
    return tuple(module.recordings(home))
