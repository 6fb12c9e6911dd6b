"""Clips of events: the last seconds of a source, the folder they are written to, and its limits.

Audio of a source is kept in memory for a minute and a half. A clip begins before its event and ends
a little after it; of an event that is longer than a clip may be, it holds the beginning. Clips are
flac files with 16 bits, at the rate of the source, in a folder per day.

Clips are deleted when they are too old, and the oldest ones when the disk is too full, except the
last few of each label. Only files that carry our name are ever deleted.
"""

import re
import shutil
import threading
import time
import unicodedata
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import soundfile

from driftscore.audio import Audio, Samples
from driftscore.errors import UsageError
from driftscore.files import writing_to

KEPT_S = 90.0
"""Audio that is kept in memory."""
LEAST_PER_LABEL = 10
"""Clips of a label that a full disk does not delete."""
_TIDY_S = 600.0  # how often old clips are looked for
_NAME = re.compile(r"driftscore_\d{8}T\d{6}Z_([a-z0-9_-]+)__([a-z0-9_]+)_\d+\.flac")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class ClipSettings:
    """Which part of the audio is kept, and for how long.

    Attributes:
        pre_roll_s: audio before the event.
        post_roll_s: audio after it.
        longest_s: the longest clip.
        keep_days: older clips are deleted; None for never.
        disk_share: the oldest clips are deleted while more of the disk is in use; None for never.

    """

    pre_roll_s: float = 3.0
    post_roll_s: float = 1.0
    longest_s: float = 30.0
    keep_days: float | None = None
    disk_share: float | None = None

    def __post_init__(self) -> None:
        for name in ("pre_roll_s", "post_roll_s"):
            if not 0 <= getattr(self, name) <= 30:
                raise UsageError(f"{name} must be from 0 to 30, got {getattr(self, name):g}")
        if not 1 <= self.longest_s <= KEPT_S:
            raise UsageError(f"longest_s must be from 1 to {KEPT_S:g}, got {self.longest_s:g}")
        if self.keep_days is not None and not self.keep_days > 0:
            raise UsageError(f"keep_days must be positive, got {self.keep_days:g}")
        if self.disk_share is not None and not 0 < self.disk_share <= 1:
            raise UsageError(f"disk_share must be from 0 to 1, got {self.disk_share:g}")


class AudioRing:
    """The last seconds of a stream, by the time from its start."""

    def __init__(self, rate: int, kept_s: float = KEPT_S) -> None:
        self.rate = rate
        self._most = round(kept_s * rate)
        self._parts: deque[Samples] = deque()
        self._kept = 0
        self._end = 0  # samples so far

    def add(self, samples: Samples) -> None:
        """Add the samples that follow."""
        self._parts.append(np.array(samples, np.float32))
        self._kept += len(samples)
        self._end += len(samples)
        while self._kept - len(self._parts[0]) >= self._most:
            self._kept -= len(self._parts.popleft())

    def cut(self, start_s: float, end_s: float) -> Audio:
        """Return what is kept of a span."""
        first = self._end - self._kept
        joined = np.concatenate([*self._parts, np.zeros(0, np.float32)])
        start, end = (max(0, round(s * self.rate) - first) for s in (start_s, end_s))
        return Audio(joined[start:end], self.rate)


def span(start_s: float, end_s: float, now_s: float, settings: ClipSettings) -> tuple[float, float]:
    """Return the part of a stream that makes the clip of an event."""
    begin = max(0.0, start_s - settings.pre_roll_s, now_s - KEPT_S)
    return begin, min(end_s + settings.post_roll_s, begin + settings.longest_s, now_s)


class EventClips:
    """The folder of clips; several threads may write to it."""

    def __init__(self, path: str, settings: ClipSettings | None = None) -> None:
        self.settings = settings or ClipSettings()
        self._home = Path(path)
        self._tidied = 0.0
        self._lock = threading.Lock()
        with writing_to(path):
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, audio: Audio, *, source: str, label: str, start: datetime, id: int) -> str:
        """Write a clip and return its path relative to the folder."""
        utc = start.astimezone(UTC)
        name = f"driftscore_{utc:%Y%m%dT%H%M%SZ}_{slug(source)}__{slug(label)}_{id}.flac"
        inside = f"{utc:%Y-%m-%d}/{name}"
        path = self._home / inside
        partial = path.with_suffix(".partial")
        samples = np.clip(audio.samples, -1.0, 1.0)
        with writing_to(path):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            try:
                soundfile.write(partial, samples, audio.rate, format="FLAC", subtype="PCM_16")
                partial.chmod(0o600)
                partial.replace(path)
            except soundfile.LibsndfileError as error:
                raise OSError(str(error)) from error
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
            return self._delete_old(clock) + self._delete_for_space()

    def _delete_old(self, now: float) -> int:
        if self.settings.keep_days is None:
            return 0
        oldest = now - self.settings.keep_days * 86_400
        return sum(_delete(path) for path in self._clips() if path.stat().st_mtime < oldest)

    def _delete_for_space(self) -> int:
        share = self.settings.disk_share
        if share is None or disk_share(self._home) <= share:
            return 0
        clips = sorted(self._clips(), key=lambda path: path.name)
        left = Counter(map(_label_of, clips))
        deleted = 0
        for path in clips:
            if left[_label_of(path)] <= LEAST_PER_LABEL:
                continue
            deleted += _delete(path)
            left[_label_of(path)] -= 1
            if disk_share(self._home) <= share:
                break
        return deleted

    def _clips(self) -> Iterator[Path]:
        """Yield the files that are ours: by their name, in a folder of a day, no links."""
        for day in self._home.iterdir():
            if _DAY.fullmatch(day.name) and day.is_dir() and not day.is_symlink():
                for path in day.iterdir():
                    if _NAME.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                        yield path


def find_clip(folder: Path, inside: str) -> Path | None:
    """Return the clip with a path that `EventClips.write` returned; None if there is none."""
    day, _, name = inside.partition("/")
    if not (_DAY.fullmatch(day) and _NAME.fullmatch(name)):
        return None
    path = folder / day / name
    usable = path.is_file() and not path.is_symlink() and not path.parent.is_symlink()
    return path if usable else None


def disk_share(folder: Path) -> float:
    """Return how much of the disk of a folder is in use."""
    usage = shutil.disk_usage(folder)
    return usage.used / max(1, usage.used + usage.free)


def slug(text: str) -> str:
    """Return a text in lower case letters, digits and underscores."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "_", plain.lower()).strip("_")[:60] or "x"


def _label_of(path: Path) -> str:
    found = _NAME.fullmatch(path.name)
    return found[2] if found else ""


def _delete(path: Path) -> int:
    path.unlink(missing_ok=True)
    with suppress(OSError):
        path.parent.rmdir()  # only if it is empty
    return 1
