"""A named sound, and an excerpt of it: what a mix is made of.

The *file* of a sound is a path, or `noise:description` for one that the noise of that name
generates, so that either can be loaded again from the record of a mix. Positions and lengths are
in frames at the sound's rate.
"""

import hashlib
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from driftscore.audio.recordings import Audio, Samples
from driftscore.system.lazy import lazy_property


@dataclass(frozen=True, eq=False)
class Sound:
    """Samples with their rate, the file they came from, and a description in words."""

    file: str
    audio: Audio
    label: str = ""

    @property
    def sha256(self) -> str:
        """Digest of the rate and the samples: changes whenever the sound does."""
        if self.audio not in _digests:
            _digests[self.audio] = digest(self.audio.samples, self.audio.rate)
        return _digests[self.audio]

    @property
    def full(self) -> "Excerpt":
        """The complete sound as an excerpt."""
        return Excerpt(self, 0, len(self.audio.samples))


@dataclass(frozen=True, eq=False)
class Excerpt:
    """`frames` of a sound from `start` on; the sound is repeated if it ends before that."""

    sound: Sound
    start: int
    frames: int

    @lazy_property
    def samples(self) -> Samples:
        """The samples themselves."""
        source = self.sound.audio.samples
        if self.start + self.frames <= len(source):
            return source[self.start : self.start + self.frames]
        return source[np.arange(self.start, self.start + self.frames) % len(source)]

    @property
    def audio(self) -> Audio:
        """The samples with their rate."""
        return Audio(self.samples, self.sound.audio.rate)


def digest(samples: Samples, rate: int) -> str:
    """Return the hex sha256 of samples with their rate."""
    little = np.ascontiguousarray(samples, "<f4")
    return hashlib.sha256(f"{rate} ".encode() + little.tobytes()).hexdigest()


# A long recording is hashed once while it stays in memory, not once per mix.
_digests: WeakKeyDictionary[Audio, str] = WeakKeyDictionary()
