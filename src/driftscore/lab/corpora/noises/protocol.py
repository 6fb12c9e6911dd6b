"""What a noise defines, and how an excerpt of it is drawn.

A noise is a module (or any object) with

    ABOUT                                            title, licence, citation, official files
    recordings(home) -> [NoiseRecording]             what excerpts are drawn from; none is missing
    missing(home) -> [str]                           everything that the folder lacks
    default_home() -> Path                           optional: its folder, unless in the data home
    sample(seconds, rate, rng, *, home, avoid=())    optional: draws an Excerpt in its own way
    make(description, rate) -> Audio                 optional: generates a sound from its name

A recording that contains a label to avoid is not used. From a recording longer than `seconds` an
excerpt that lies completely inside is drawn; a shorter one is repeated from its beginning. A
recording that is silent, or shorter than a loudness block, is an error.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from driftscore.errors import AudioError, UsageError
from driftscore.lab.corpora.folders import Corpus, load
from driftscore.lab.mixing.loudness import BLOCK_S
from driftscore.lab.mixing.sounds import Excerpt, Sound
from driftscore.text.prompts import words

_TRIES = 20


@dataclass(frozen=True)
class NoiseRecording:
    """One noise recording: its file, its environment in words, and the labels audible in it."""

    file: str
    id: str
    environment: str
    avoid: tuple[str, ...] = ()

    def contains(self, labels: Iterable[str]) -> bool:
        """Return whether any of `labels` is one to avoid, in any spelling."""
        return not {words(label) for label in labels}.isdisjoint(map(words, self.avoid))


class Noise(Corpus):
    """A noise by its name; without a `home` it is read from its default folder."""

    def recordings(self) -> list[NoiseRecording]:
        """Return the recordings that excerpts are drawn from; a missing file is an error."""
        return list(self.plugin.recordings(self.complete()))

    def sample(
        self, seconds: float, rate: int, rng: np.random.Generator, *, avoid: Iterable[str] = ()
    ) -> Excerpt:
        """Draw an excerpt of `seconds` at `rate` without any of the labels in `avoid`."""
        folder = self.folder
        if hasattr(self.plugin, "sample"):
            return self.plugin.sample(seconds, rate, rng, home=folder, avoid=avoid)
        candidates = usable(_recordings(replace(self, home=folder)), avoid)
        chosen = candidates[int(rng.integers(len(candidates)))]
        sound = Sound(chosen.file, load(chosen.file, rate), chosen.environment)
        return draw_excerpt(sound, seconds, rng)


@lru_cache(maxsize=32)
def _recordings(noise: Noise) -> list[NoiseRecording]:
    """Return the recordings of a noise, listed once: TAU alone has eight thousand files."""
    return noise.recordings()


def usable(recordings: Sequence[NoiseRecording], avoid: Iterable[str]) -> list[NoiseRecording]:
    """Return the recordings without any of the labels in `avoid`; none left is an error."""
    labels = tuple(avoid)
    allowed = [recording for recording in recordings if not recording.contains(labels)]
    if not allowed:
        raise UsageError(
            f"All {len(recordings)} noise recordings contain {' or '.join(labels)}; "
            "add another recording, or leave the label out"
        )
    return allowed


def draw_excerpt(sound: Sound, seconds: float, rng: np.random.Generator) -> Excerpt:
    """Draw an excerpt of a sound that is not completely silent."""
    if sound.audio.seconds < BLOCK_S:
        raise AudioError(too_short(sound.file, sound.audio.seconds))
    if not sound.audio.samples.any():
        raise AudioError(f"{sound.file} is silent: every sample is zero")
    frames = frames_of(seconds, sound.audio.rate)
    room = len(sound.audio.samples) - frames
    for _ in range(_TRIES):
        excerpt = Excerpt(sound, int(rng.integers(room + 1)) if room > 0 else 0, frames)
        if excerpt.samples.any():
            return excerpt
    raise AudioError(f"{sound.file} is silent in {_TRIES} excerpts of {seconds:g} s drawn from it")


def frames_of(seconds: float, rate: int) -> int:
    """Return the number of frames in `seconds`, at least one."""
    if (frames := round(seconds * rate)) < 1:
        raise UsageError(f"seconds must be positive, got {seconds!r}")
    return frames


def too_short(file: str, seconds: float) -> str:
    """Return the message about a noise recording that is too short."""
    return (
        f"{file} is {seconds:.3f} s long; noise needs at least one loudness block of {BLOCK_S:g} s"
    )
