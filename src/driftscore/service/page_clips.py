"""Recordings of the page, in memory only, for as long as someone works with them.

A recording is kept as mono samples at the model's rate under a random id. The store is bounded in
recordings and in bytes (the one that was not used for longest goes first), and what is not used for
`expiry_s` is dropped. Nothing is written to disk.
"""

import secrets
import threading
import time
from collections import OrderedDict

import numpy as np
from starlette.exceptions import HTTPException

from driftscore.audio.recordings import Audio
from driftscore.errors import UsageError

_STEP_S = 0.5  # between the starts of parts that are compared


class ClipStore:
    """The recordings of the page: a bounded store in memory whose content expires."""

    max_clips = 32
    max_bytes = 256_000_000
    """Of samples."""
    expiry_s = 30 * 60.0
    """Seconds after its last use at which a recording is dropped."""

    def __init__(self) -> None:
        self._clips: OrderedDict[str, tuple[Audio, float]] = OrderedDict()  # oldest use first
        self._lock = threading.Lock()

    def add(self, audio: Audio) -> str:
        """Keep a recording and return its id; others may have to go."""
        size = audio.samples.nbytes
        if size > self.max_bytes:
            raise UsageError(
                f"The recording takes {size / 1e6:.0f} MB of memory as samples, and the page may "
                f"keep {self.max_bytes / 1e6:.0f} MB; give a shorter one"
            )
        clip_id = secrets.token_urlsafe(16)
        with self._lock:
            self._drop_expired()
            self._clips[clip_id] = (audio, time.monotonic())
            sizes = [one.samples.nbytes for one, _ in self._clips.values()]
            while len(sizes) > self.max_clips or sum(sizes) > self.max_bytes:
                self._clips.popitem(last=False)
                sizes.pop(0)
        return clip_id

    def get(self, clip_id: str) -> Audio:
        """Return a recording by its id; this counts as a use of it."""
        with self._lock:
            self._drop_expired()
            if clip_id not in self._clips:
                raise HTTPException(
                    404,
                    "The server no longer has this recording: it is kept in memory only, until it "
                    f"is unused for {self.expiry_s / 60:.0f} minutes or others need the room; give "
                    "it again",
                )
            audio, _ = self._clips.pop(clip_id)
            self._clips[clip_id] = (audio, time.monotonic())
        return audio

    def remove(self, clip_id: str) -> None:
        """Forget a recording; one that is gone already is no error."""
        with self._lock:
            self._clips.pop(clip_id, None)

    def __len__(self) -> int:
        with self._lock:
            self._drop_expired()
            return len(self._clips)

    def _drop_expired(self) -> None:
        limit = time.monotonic() - self.expiry_s
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
