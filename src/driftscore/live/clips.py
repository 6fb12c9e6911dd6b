"""Clips of events: the last seconds of a source, the folder they are written to, and its limits.

The last `MAX_CLIP_S` of a source are kept in memory. A clip begins before its event and ends
a little after it; of an event that is longer than a clip may be, it holds the beginning. Clips are
flac files with 16 bits, at the rate of the source, in a folder per day.

Clips are deleted when they are too old, and the oldest ones when the disk is too full, except the
last few of each label. Only files that carry our name are ever deleted.
"""

import io
import re
import shutil
import threading
import time
import unicodedata
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

import numpy as np
import soundfile

from driftscore.audio.recordings import Audio, Samples
from driftscore.decisions.records import StoredEvent
from driftscore.decisions.store import MAX_CLIP_S, clip_label
from driftscore.errors import UsageError
from driftscore.storage.files import writing_to

PRE_ROLL_S, POST_ROLL_S = 3.0, 1.0
"""Audio before and after an event that belongs to its clip."""
MAX_LENGTH_S = 30.0
"""The longest clip."""
MIN_PER_LABEL = 10
"""Clips of a label that a full disk does not delete."""
_TIDY_S = 600.0  # how often old clips are looked for


class AudioRing:
    """The last seconds of a stream, by the time from its start, in one array of fixed length."""

    def __init__(self, rate: int, seconds: float = MAX_CLIP_S) -> None:
        self.rate = rate
        self._samples: Samples = np.zeros(round(seconds * rate), np.float32)
        self._end = 0  # samples so far

    def add(self, samples: Samples) -> None:
        """Add the samples that follow."""
        size = len(self._samples)
        self._end += len(samples)
        last = samples[-size:]
        first = (self._end - len(last)) % size
        head = last[: size - first]
        self._samples[first : first + len(head)] = head
        self._samples[: len(last) - len(head)] = last[len(head) :]

    def cut(self, start_s: float, end_s: float) -> Audio:
        """Return what is left of a span."""
        size = len(self._samples)
        first = max(0, self._end - size, round(start_s * self.rate))
        length = max(0, min(self._end, round(end_s * self.rate)) - first)
        head = self._samples[first % size :][:length]
        return Audio(np.concatenate([head, self._samples[: length - len(head)]]), self.rate)


def span(
    start_s: float, end_s: float, now_s: float, pre_roll_s: float = PRE_ROLL_S
) -> tuple[float, float]:
    """Return the part of a stream that makes the clip of an event."""
    begin = max(0.0, start_s - pre_roll_s, now_s - MAX_CLIP_S)
    return begin, min(end_s + POST_ROLL_S, begin + MAX_LENGTH_S, now_s)


@dataclass(eq=False)
class EventClips:
    """The folder of clips; several threads may write to it."""

    path: str
    pre_roll_s: float = PRE_ROLL_S
    """Seconds before an event that belong to its clip."""
    keep_days: float | None = None
    """Older clips are deleted; None for never."""
    disk_share: float = 0.0
    """The oldest clips are deleted while more of the disk is in use; 0 for never."""

    def __post_init__(self) -> None:
        if not 0 <= self.pre_roll_s <= 30:
            raise UsageError(f"pre_roll_s must be from 0 to 30, got {self.pre_roll_s:g}")
        if not 0 <= self.disk_share <= 1:
            raise UsageError(f"disk_share must be from 0 to 1, got {self.disk_share:g}")
        if self.keep_days is not None and not self.keep_days > 0:
            raise UsageError(f"keep_days must be positive, got {self.keep_days:g}")
        self._home = Path(self.path)
        self._tidied = 0.0
        self._lock = threading.Lock()
        with writing_to(self.path):
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, audio: Audio, event: StoredEvent) -> str:
        """Write the clip of an event and return its path relative to the folder."""
        utc = event.start.astimezone(UTC)
        names = f"{slug(event.source)}__{slug(event.label)}"
        inside = f"{utc:%Y-%m-%d}/driftscore_{utc:%Y%m%dT%H%M%SZ}_{names}_{event.id}.flac"
        path = self._home / inside
        partial = path.with_suffix(".partial")
        samples = np.clip(audio.samples, -1.0, 1.0)
        with writing_to(path):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            encoded = io.BytesIO()  # libsndfile does not say that a disk is full
            soundfile.write(encoded, samples, audio.rate, format="FLAC", subtype="PCM_16")
            try:
                partial.write_bytes(encoded.getvalue())
                partial.chmod(0o600)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
        return inside

    def tidy(self, *, now: float | None = None) -> int:
        """Delete clips that are too old or too many; return how many. Often called, seldom done."""
        with self._lock:
            clock = time.time() if now is None else now
            if now is None and clock - self._tidied < _TIDY_S:
                return 0
            self._tidied = clock
            deleted, days, share = 0, self.keep_days, self.disk_share
            clips = {}
            for path in self._home.glob("*/*.flac"):
                if label := clip_label(self._home, f"{path.parent.name}/{path.name}"):
                    clips[path] = label
            left = Counter(clips.values())
            for path, label in sorted(clips.items()):
                old = days is not None and path.stat().st_mtime < clock - days * 86_400
                much = share > 0 and left[label] > MIN_PER_LABEL
                if old or (much and disk_share(self._home) > share):
                    path.unlink(missing_ok=True)
                    with suppress(OSError):
                        path.parent.rmdir()  # only if it is empty
                    left[label] -= 1
                    deleted += 1
            return deleted


def disk_share(folder: Path) -> float:
    """Return how much of the disk of a folder is in use."""
    usage = shutil.disk_usage(folder)
    return usage.used / max(1, usage.used + usage.free)


def slug(text: str) -> str:
    """Return a text in lower case letters, digits and underscores."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "_", plain.lower()).strip("_")[:60] or "x"
