"""Recordings of the page, in memory only, for as long as someone works with them.

A recording is kept as mono samples at the model's rate under a random id. The store is bounded in
recordings and in bytes (the one that was not used for longest goes first), and what is not used for
`expiry_s` is dropped. Nothing is written to disk.
"""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from driftscore.audio import Audio
from driftscore.errors import UsageError

MOST_CLIPS = 32
MOST_BYTES = 256_000_000
EXPIRY_S = 30 * 60.0
_STEP_S = 0.5  # places at which a part of a recording may start by default


class ClipGoneError(UsageError):
    """A recording of the page that expired, or made room for others."""


@dataclass(frozen=True, eq=False)
class PageClip:
    """A recording that someone gave to the page."""

    id: str
    name: str
    audio: Audio


class ClipStore:
    """The recordings of the page: a bounded store in memory whose content expires.

    Parameters
    ----------
        most_clips: recordings kept at the same time.
        most_bytes: bytes of samples kept at the same time.
        expiry_s: seconds after its last use at which a recording is dropped.
        clock: returns the time in seconds.

    """

    def __init__(
        self,
        *,
        most_clips: int = MOST_CLIPS,
        most_bytes: int = MOST_BYTES,
        expiry_s: float = EXPIRY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most_clips, self.most_bytes = most_clips, most_bytes
        self.expiry_s, self.clock = expiry_s, clock
        self._clips: OrderedDict[str, tuple[PageClip, float]] = OrderedDict()  # oldest use first
        self._lock = threading.Lock()

    def add(self, audio: Audio, name: str = "") -> PageClip:
        """Keep a recording and return it with its id; others may have to go."""
        size = audio.samples.nbytes
        if size > self.most_bytes:
            raise UsageError(
                f"The recording takes {size / 1e6:.0f} MB of memory as samples, and the page may "
                f"keep {self.most_bytes / 1e6:.0f} MB; give a shorter one"
            )
        clip = PageClip(secrets.token_urlsafe(16), name, audio)
        with self._lock:
            self._drop_expired()
            self._clips[clip.id] = (clip, self.clock())
            while len(self._clips) > self.most_clips or self._bytes() > self.most_bytes:
                self._clips.popitem(last=False)
        return clip

    def get(self, clip_id: str) -> PageClip:
        """Return a recording by its id; this counts as a use of it."""
        with self._lock:
            self._drop_expired()
            if clip_id not in self._clips:
                minutes = self.expiry_s / 60
                raise ClipGoneError(
                    "The server no longer has this recording: it is kept in memory only, until it "
                    f"is unused for {minutes:.0f} minutes or others need the room; give it again"
                )
            clip, _ = self._clips[clip_id]
            self._clips[clip_id] = (clip, self.clock())
            self._clips.move_to_end(clip_id)
        return clip

    def remove(self, clip_id: str) -> None:
        """Forget a recording; one that is gone already is no error."""
        with self._lock:
            self._clips.pop(clip_id, None)

    def __len__(self) -> int:
        with self._lock:
            self._drop_expired()
            return len(self._clips)

    def _bytes(self) -> int:
        return sum(clip.audio.samples.nbytes for clip, _ in self._clips.values())

    def _drop_expired(self) -> None:
        limit = self.clock() - self.expiry_s
        while self._clips and next(iter(self._clips.values()))[1] <= limit:
            self._clips.popitem(last=False)


def part(audio: Audio, start_s: float, seconds: float) -> Audio:
    """Return the part of a recording that begins at `start_s`, moved back at its end."""
    length = round(seconds * audio.rate)
    latest = max(0, len(audio.samples) - length)
    start = min(max(0, round(start_s * audio.rate)), latest)
    return Audio(audio.samples[start : start + length], audio.rate)


def loudest_start_s(audio: Audio, seconds: float) -> float:
    """Return where the part with the most energy begins, in steps of half a second."""
    step, length = round(_STEP_S * audio.rate), round(seconds * audio.rate)
    if len(audio.samples) <= length:
        return 0.0
    energy = np.concatenate([[0.0], np.cumsum(np.square(audio.samples, dtype=np.float64))])
    starts = np.arange(0, len(audio.samples) - length + 1, step)
    return float(starts[(energy[starts + length] - energy[starts]).argmax()] / audio.rate)
