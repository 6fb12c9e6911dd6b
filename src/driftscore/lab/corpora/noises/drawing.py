"""Draw excerpts from noise recordings.

A recording that contains a label to avoid is not used. From a recording longer than `seconds` an
excerpt that lies completely inside is drawn; a shorter one is repeated from its beginning. A
recording that is silent, or shorter than a loudness block, is an error.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from driftscore.errors import AudioError, UsageError
from driftscore.lab.corpora.loading import load
from driftscore.lab.corpora.noises.protocol import NoiseRecording, Sample
from driftscore.lab.mixing.loudness import BLOCK_S
from driftscore.lab.mixing.sounds import Excerpt, Sound

Listing = Callable[[Path], Sequence[NoiseRecording]]
_TRIES = 20


def sampler(recordings: Listing) -> Sample:
    """Return the function that draws an excerpt from a corpus whose files `recordings` lists."""

    def sample(
        seconds: float,
        rate: int,
        rng: np.random.Generator,
        *,
        home: Path,
        avoid: Iterable[str] = (),
    ) -> Excerpt:
        kept = usable(_listed(recordings, Path(home)), avoid)
        chosen = kept[int(rng.integers(len(kept)))]
        sound = Sound(chosen.file, load(chosen.file, rate), chosen.environment)
        return draw_excerpt(sound, seconds, rng)

    return sample


def usable(recordings: Sequence[NoiseRecording], avoid: Iterable[str]) -> list[NoiseRecording]:
    """Return the recordings without any of the labels in `avoid`; none left is an error."""
    labels = tuple(avoid)
    kept = [recording for recording in recordings if not recording.contains(labels)]
    if not kept:
        raise UsageError(
            f"All {len(recordings)} noise recordings contain {' or '.join(labels)}; "
            "add another recording, or leave the label out"
        )
    return kept


def draw_excerpt(sound: Sound, seconds: float, rng: np.random.Generator) -> Excerpt:
    """Draw an excerpt of a sound that is not completely silent."""
    check_sound(sound)
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


def check_sound(sound: Sound) -> None:
    """Raise an error for a recording that cannot be used as noise."""
    if sound.audio.seconds < BLOCK_S:
        raise AudioError(too_short(sound.file, sound.audio.seconds))
    if not sound.audio.samples.any():
        raise AudioError(f"{sound.file} is silent: every sample is zero")


def too_short(file: str, seconds: float) -> str:
    """Return the message about a noise recording that is too short."""
    return (
        f"{file} is {seconds:.3f} s long; noise needs at least one loudness block of {BLOCK_S:g} s"
    )


@lru_cache(maxsize=32)
def _listed(recordings: Listing, home: Path) -> tuple[NoiseRecording, ...]:
    """Return the recordings of a corpus, listed once: TAU alone has eight thousand files."""
    return tuple(recordings(home))
