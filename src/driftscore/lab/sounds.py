"""A named sound, and a stretch of it: what a mix is made of.

A sound's *file* is a path, or `noise:what` for one that a noise file of that name makes
from its description, so that either can be had again from a mix's record. Positions and
lengths are in frames at the sound's rate.
"""

import hashlib
import importlib
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np

from driftscore.audio import Audio, Samples, read

_KEPT_BYTES = 256 * 2**20


@dataclass(frozen=True, eq=False)
class Sound:
    """Samples with their rate, the file they came from, and what they are in words."""

    file: str
    audio: Audio
    label: str = ""

    @property
    def sha256(self) -> str:
        """Digest of the rate and the samples: changes whenever the sound does."""
        if self.audio not in _digests:
            _digests[self.audio] = digest(self.audio.samples, self.audio.rate)
        return _digests[self.audio]


@dataclass(frozen=True, eq=False)
class Stretch:
    """`frames` of a sound from `start` on; at its end it begins again, as often as needed."""

    sound: Sound
    start: int
    frames: int

    @cached_property
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


def load(file: str, rate: int) -> Audio:
    """Return a sound at `rate`; the ones used last stay in memory."""
    with _lock:
        if (kept := _recent.get((file, rate))) is not None:
            _recent.move_to_end((file, rate))
            return kept
    audio = _made(file, rate) or read(file, rate=rate)
    with _lock:
        _recent[file, rate] = audio
        while len(_recent) > 1 and sum(a.samples.nbytes for a in _recent.values()) > _KEPT_BYTES:
            _recent.popitem(last=False)
    return audio


# A long recording is hashed once while it stays in memory, not once a mix.
_digests: WeakKeyDictionary[Audio, str] = WeakKeyDictionary()
_recent: OrderedDict[tuple[str, int], Audio] = OrderedDict()
_lock = Lock()


def _made(file: str, rate: int) -> Audio | None:
    """Make the sound that `noise:what` describes; None for a path."""
    name, colon, what = file.partition(":")
    if not colon or len(name) < 2 or not name.isidentifier():  # C:\\noise.wav is a path
        return None
    try:
        module = importlib.import_module(f"driftscore.lab.noises.{name}")
    except ModuleNotFoundError:
        return None
    audio: Audio | None = module.make(what, rate) if hasattr(module, "make") else None
    return audio
