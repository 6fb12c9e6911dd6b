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
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import soundfile

from driftscore.audio import Recording, native_blocks
from driftscore.decoding import Samples, describe
from driftscore.errors import UsageError, WriteError
from driftscore.events import Event
from driftscore.files import is_url, replacing, writing_to

AROUND_S = 2.0
"""Seconds before and after an event that belong to its clip."""
FORMATS = ("flac", "wav")
_MOST_STEM, _MOST_LABEL = 100, 60  # bytes
_FLAC_RATE = 655_350
"""The highest sample rate of flac, in Hz; recordings above it become wav."""


class ClipFolder:
    """The folder that clips of one run are written to.

    Parameters
    ----------
        folder: where the clips go; it is made if it does not exist.
        around_s: seconds before and after each event.
        format: "flac" or "wav".
        without: labels of which no audio is kept.

    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        around_s: float = AROUND_S,
        format: str = "flac",
        without: Collection[str] = (),
    ) -> None:
        if is_url(os.fspath(folder)):
            raise UsageError(f"Clips are written to a folder of this machine, not to {folder}")
        if format not in FORMATS:
            raise UsageError(f"Clips are {' or '.join(FORMATS)}, not {format!r}")
        if not 0 <= around_s <= 3600:
            raise UsageError(f"The seconds around a clip must be 0 to 3600, got {around_s:g}")
        self.folder = Path(folder)
        self._around_s = around_s
        self._format = format
        self._without = frozenset(without)
        self._used: set[str] = set()

    def cut(self, recording: Recording, events: Iterable[Event]) -> list[Path | None]:
        """Write the clip of each event; return their paths, None for an event that has none."""
        given = list(events)
        kept = [event for event in given if event.label not in self._without]
        if not kept:
            return [None] * len(given)
        with writing_to(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with native_blocks(recording) as (rate, blocks):
            clips = {id(event): self._clip(recording, event, rate) for event in kept}
            _write(sorted(clips.values(), key=lambda clip: clip.first), blocks)
        found = (clips.get(id(event)) for event in given)
        return [clip.path if clip is not None and clip.opened else None for clip in found]

    def _clip(self, recording: Recording, event: Event, rate: int) -> "_Clip":
        source = describe(recording)
        first = round(max(0.0, event.start_s - self._around_s) * rate)
        last = round((event.end_s + self._around_s) * rate)
        comment = _comment(source, event)
        path = self._path(clip_name(source, event), comment, rate)
        return _Clip(path, comment, rate, first, last)

    def _path(self, name: str, comment: str, rate: int) -> Path:
        """Return a path that is free, or that holds an earlier clip of the same event."""
        suffix = "wav" if rate > _FLAC_RATE else self._format
        number = 1
        while True:
            path = self.folder / (
                f"{name}.{suffix}" if number == 1 else f"{name}-{number}.{suffix}"
            )
            key = path.name.casefold()  # some systems do not distinguish a from A
            if key not in self._used and (not _exists(path) or _comment_in(path) == comment):
                self._used.add(key)
                return path
            number += 1


def clip_name(source: str, event: Event) -> str:
    """Return the name of an event's clip, without its ending."""
    stem = _safe(Path(source).stem, _MOST_STEM) or "recording"
    tenths = round(max(0.0, event.start_s) * 10)
    hours, minutes, seconds = tenths // 36_000, tenths // 600 % 60, tenths % 600 / 10
    label = _safe(event.label, _MOST_LABEL) or "event"
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


def _exists(path: Path) -> bool:
    try:
        return path.is_symlink() or path.exists()
    except OSError as error:
        raise WriteError(f"Cannot write {path}: {error.strerror or error}") from error


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

    path: Path
    comment: str
    rate: int
    first: int
    last: int
    opened: bool = False
    _stack: ExitStack = field(default_factory=ExitStack)
    _file: soundfile.SoundFile | None = None

    def write(self, samples: Samples) -> None:
        """Add samples; the file is made with the first ones."""
        try:
            if self._file is None:
                self._open()
            assert self._file is not None  # noqa: S101 (_open has set it)
            self._file.write(samples)
        except (soundfile.LibsndfileError, AssertionError) as error:  # a full disk, for one
            raise WriteError(f"Cannot write {self.path}: {error or 'is the disk full?'}") from error

    def close(self) -> None:
        """Move the complete file into place."""
        self._file = None
        self._stack.close()

    def drop(self) -> None:
        """Remove what was written after an error."""
        with suppress(Exception):  # the error that led here is the one to report
            self._stack.__exit__(*sys.exc_info())

    def _open(self) -> None:
        partial = self._stack.enter_context(replacing(self.path))
        kind = self.path.suffix[1:].upper()
        file = soundfile.SoundFile(partial, "w", self.rate, 1, subtype="PCM_16", format=kind)
        self._file = self._stack.enter_context(file)
        self._file.comment = self.comment
        self.opened = True


def _write(clips: Sequence[_Clip], blocks: Iterable[Samples]) -> None:
    """Write all clips, sorted by their start, in one pass over the blocks of a recording."""
    waiting, writing = list(reversed(clips)), list[_Clip]()
    place = 0
    try:
        for block in blocks:
            end = place + len(block)
            while waiting and waiting[-1].first < end:
                writing.append(waiting.pop())
            for clip in writing:
                part = block[max(0, clip.first - place) : clip.last - place]
                if len(part):
                    clip.write(part)
            for clip in [clip for clip in writing if clip.last <= end]:
                writing.remove(clip)
                clip.close()
            place = end
            if not waiting and not writing:
                return
        while writing:
            writing.pop().close()
    except BaseException:
        for clip in writing:
            clip.drop()
        raise
