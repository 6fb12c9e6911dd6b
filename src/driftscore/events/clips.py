"""Cut events out of a recording: one sound file each, with some seconds around it.

A clip is called `night_00-12-03.5_dog-bark.flac`: recording, start of the event, label. Names hold
letters, digits, `-`, `_` and `.` only, so that every system takes them. The comment of the file
says which event of which recording it is. A clip replaces an earlier one of the same event; a file
of anything else is left alone, and the new name gets a number.

The recording is read once, block by block, whatever the number of events. Clips are mono, with the
recording's own sample rate.
"""

import hashlib
import os
import re
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import soundfile

from driftscore.audio.decoding import Samples, describe
from driftscore.audio.recordings import Recording, native_blocks
from driftscore.errors import UsageError, WriteError
from driftscore.events.tracking import Event
from driftscore.storage.files import is_url, replacing, writing_to

AROUND_S = 2.0
"""Seconds before and after an event that belong to its clip."""
_MAX_STEM, _MAX_LABEL = 100, 60  # bytes
_FLAC_RATE = 655_350
"""The highest sample rate of flac, in Hz; recordings above it become wav."""


class ClipFolder:
    """The folder that clips of one run are written to.

    Parameters
    ----------
        folder: where the clips go; it is made if it does not exist.
        around_s: seconds before and after each event.
        without: labels of which no audio is kept.

    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        around_s: float = AROUND_S,
        without: Collection[str] = (),
    ) -> None:
        if is_url(os.fspath(folder)):
            raise UsageError(f"Clips are written to a folder of this machine, not to {folder}")
        if not 0 <= around_s <= 3600:
            raise UsageError(f"The seconds around a clip must be 0 to 3600, got {around_s:g}")
        self.folder = Path(folder)
        self._around_s = around_s
        self._without = frozenset(without)
        self._used: set[str] = set()

    def cut(self, recording: Recording, events: Iterable[Event]) -> list[Path | None]:
        """Write the clip of each event; return their paths, None for an event that has none."""
        events = list(events)
        paths: list[Path | None] = [None] * len(events)
        chosen = [n for n, event in enumerate(events) if event.label not in self._without]
        if not chosen:
            return paths
        with writing_to(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        source = describe(recording)
        # Leaving this stack with an error removes the files that are not complete.
        with native_blocks(recording) as (rate, blocks), ExitStack() as files:
            waiting = []
            for number in chosen:
                event = events[number]
                first = round(max(0.0, event.start_s - self._around_s) * rate)
                last = round((event.end_s + self._around_s) * rate)
                comment = _comment(source, event)
                path = self._path(clip_name(source, event), comment, rate)
                file = files.enter_context(ExitStack())
                waiting.append(_Clip(number, path, comment, rate, first, last, file))
            waiting.sort(key=lambda clip: -clip.first)
            writing: list[_Clip] = []
            start = 0
            for block in blocks:
                end = start + len(block)
                while waiting and waiting[-1].first < end:
                    writing.append(waiting.pop())
                for clip in list(writing):
                    part = block[max(0, clip.first - start) : clip.last - start]
                    if len(part):
                        clip.write(part)
                        paths[clip.number] = clip.path
                    if clip.last <= end:
                        writing.remove(clip)
                        clip.files.close()
                start = end
                if not waiting and not writing:
                    break
        return paths

    def _path(self, name: str, comment: str, rate: int) -> Path:
        """Return a path that is free, or that holds an earlier clip of the same event."""
        suffix = "wav" if rate > _FLAC_RATE else "flac"
        for number in count(1):
            path = self.folder / f"{name}{'' if number == 1 else f'-{number}'}.{suffix}"
            key = path.name.casefold()  # some systems do not distinguish a from A
            with writing_to(path):
                free = not (path.is_symlink() or path.exists())
            if key not in self._used and (free or _comment_in(path) == comment):
                self._used.add(key)
                break
        return path


def clip_name(source: str, event: Event) -> str:
    """Return the name of an event's clip, without its ending."""
    stem = _safe(Path(source).stem, _MAX_STEM) or "recording"
    tenths = round(max(0.0, event.start_s) * 10)
    hours, minutes, seconds = tenths // 36_000, tenths // 600 % 60, tenths % 600 / 10
    label = _safe(event.label, _MAX_LABEL) or "event"
    return f"{stem}_{hours:02d}-{minutes:02d}-{seconds:04.1f}_{label}"


def _safe(text: str, most: int) -> str:
    """Return a text with only letters, digits, - and _, of at most so many bytes."""
    plain = re.sub(r"[^\w-]+", "-", text).strip("-")
    return plain.encode("utf-8", "ignore")[:most].decode("utf-8", "ignore").rstrip("-")


def _comment(source: str, event: Event) -> str:
    """Return what identifies an event; of the path only a checksum, since clips are shared."""
    place = hashlib.sha256(os.path.abspath(source).encode("utf-8", "surrogateescape"))  # noqa: PTH100
    label = " ".join(event.label.split())
    return (
        f"Cut by driftscore: {label} at {event.start_s:.3f} s of {_safe(Path(source).stem, 200)} "
        f"({place.hexdigest()[:12]})"
    )


def _comment_in(path: Path) -> str:
    """Return the comment of a sound file; nothing for any other file."""
    if path.is_symlink() or not path.is_file():
        return ""
    try:
        with soundfile.SoundFile(path) as file:
            return str(file.comment)
    except (soundfile.LibsndfileError, OSError):
        return ""


@dataclass
class _Clip:
    """One file to write: the samples from number `first` up to `last` of its recording."""

    number: int
    """Of its event."""
    path: Path
    comment: str
    rate: int
    first: int
    last: int
    files: ExitStack
    """Closing it moves the complete file to its path."""
    file: soundfile.SoundFile | None = None

    def write(self, samples: Samples) -> None:
        """Add samples; the file is made with the first ones."""
        try:
            if self.file is None:
                partial = self.files.enter_context(replacing(self.path))
                kind = self.path.suffix[1:].upper()
                self.file = self.files.enter_context(
                    soundfile.SoundFile(partial, "w", self.rate, 1, subtype="PCM_16", format=kind)
                )
                self.file.comment = self.comment
            self.file.write(samples)
        except (soundfile.LibsndfileError, AssertionError) as error:  # a full disk, for one
            raise WriteError(f"Cannot write {self.path}: {error or 'is the disk full?'}") from error
