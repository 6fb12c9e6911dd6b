"""A recording -> mono samples with their rate -> fixed windows.

Samples are float32 in [-1, 1] (louder is allowed), one channel, and always come with their rate in
Hz. A window has the model's length, the next one starts half a length later, and the last one ends
where the recording ends; a recording shorter than a window is one short window, which the backbone
pads in its own way. Recordings are resampled as a stream, so memory stays flat.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soxr
from numpy.typing import NDArray

from driftscore.audio.decoding import (
    Blocks,
    Encoded,
    Samples,
    check_bounds,
    decoded,
    describe,
    is_encoded,
    max_hours,
    mono,
    open_sound,
)
from driftscore.errors import AudioError, UsageError
from driftscore.storage.files import MAC_PREFIX, is_url, list_url
from driftscore.system.process import silenced

__all__ = ["MIN_SECONDS", "SUFFIXES", "Audio", "Recording", "Samples", "Window", "check_length",
           "describe", "expand", "native_blocks", "read", "read_blocks", "read_part",
           "resampled_blocks", "sounding_windows", "unreadable", "windows"]  # fmt: skip

Numbers = NDArray[np.floating] | NDArray[np.integer]

_LIBSNDFILE = ("wav", "wave", "flac", "ogg", "oga", "opus", "mp3", "aif", "aiff", "au", "caf",
               "w64")  # fmt: skip
_FFMPEG = ("m4a", "mp4", "aac", "wma", "webm", "mka", "mkv", "mov", "amr", "3gp", "ac3")
SUFFIXES = frozenset(f".{ending}" for ending in _LIBSNDFILE + _FFMPEG)
"""File endings taken from a folder; a file named outright may have any ending."""
MIN_SECONDS = 0.025
"""The shortest recording that is embedded: one frame of the spectrograms that models use."""


@dataclass(frozen=True, eq=False)
class Audio:
    """Mono samples with their rate in Hz.

    `samples` may be given as frames or as a 2-D array with its channels on the shorter
    axis, as floats or as integers (scaled by the range of their type); it is kept as mono float32.
    """

    samples: Samples
    rate: int

    def __post_init__(self) -> None:
        if not isinstance(self.rate, (int, np.integer)) or self.rate <= 0:
            raise UsageError(f"A sample rate must be a positive integer in Hz, got {self.rate!r}")
        object.__setattr__(self, "rate", int(self.rate))
        object.__setattr__(self, "samples", mono(np.asarray(self.samples)))

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return len(self.samples) / self.rate

    @staticmethod
    def of(value: object) -> "Audio":
        """Make `Audio` of an array with its rate: a pair, or a dict as transformers takes it."""
        if isinstance(value, Audio):
            return value
        if isinstance(value, Mapping) and "sampling_rate" in value:
            samples = value.get("raw", value.get("array"))
            if samples is not None:
                return Audio(samples, value["sampling_rate"])
        if isinstance(value, tuple) and len(value) == 2:
            samples, rate = value
            return Audio(samples, rate)
        if isinstance(value, np.ndarray):
            raise UsageError("An array needs its sample rate: give Audio(samples, rate)")
        raise UsageError(
            f"Cannot read sound from a {type(value).__name__}; give a path, an open file, "
            "Audio(samples, rate) or a (samples, rate) pair"
        )


Recording = Encoded | Audio | tuple[Numbers, int] | Mapping[str, object]
"""What can be embedded: a path, a URL, the bytes of a sound file, an open binary file, `Audio`, a
pair of samples and rate, or a dict of `array` (or `raw`) and `sampling_rate`."""


class Window(NamedTuple):
    """A part of a recording: its mono samples, and where they start and end in seconds."""

    samples: Samples
    start_s: float
    end_s: float


def windows(recording: Recording, *, rate: int, seconds: float) -> Iterator[Window]:
    """Yield the fixed windows of a recording, mono, at `rate`, in order of time."""
    length = round(rate * seconds)
    buffer = np.zeros(0, np.float32)  # decoded samples that may still be needed
    start = 0  # position of buffer[0] in the recording
    due = 0  # position of the next window
    for block in resampled_blocks(recording, rate):
        buffer = np.concatenate([buffer, block])
        while due + length <= start + len(buffer):
            samples = buffer[due - start : due - start + length].copy()
            yield Window(samples, due / rate, (due + length) / rate)
            due += length // 2
        # Keep one window's length behind the end: the right-aligned last one may need it.
        spare = min(due - start, len(buffer) - length)
        if spare > 0:
            buffer, start = buffer[spare:], start + spare
    end = start + len(buffer)
    if end == 0:
        raise AudioError(f"{describe(recording)} is empty: it has no samples")
    if due == 0 or due - length // 2 + length < end:
        last = buffer[-length:].copy()
        yield Window(last, (end - len(last)) / rate, end / rate)


def check_length(recording: Recording, seconds: float) -> None:
    """Refuse a recording in which there is nothing to embed: less than a frame of a spectrum."""
    if seconds < MIN_SECONDS:
        raise AudioError(
            f"{describe(recording)} is too short: {1000 * seconds:.2g} ms; a recording has at "
            f"least {1000 * MIN_SECONDS:g} ms"
        )


def sounding_windows(recording: Recording, *, rate: int, seconds: float) -> Iterator[Window]:
    """Yield the windows that are not digital silence; a recording without any is an error."""
    silent = True
    for window in windows(recording, rate=rate, seconds=seconds):
        check_length(recording, window.end_s)
        if window.samples.any():
            silent = False
            yield window
    if silent:
        raise AudioError(f"{describe(recording)} is silent: every sample is zero")


def read(recording: Recording, *, rate: int | None = None, seconds: float | None = None) -> Audio:
    """Read a recording as mono, at its own rate or resampled to `rate`; its first `seconds`."""
    with native_blocks(recording) as blocks:
        return read_blocks(blocks, rate=rate, seconds=seconds, name=describe(recording))


def read_blocks(
    opened: Blocks, *, rate: int | None = None, seconds: float | None = None, name: str
) -> Audio:
    """Join the blocks of an open recording, at its own rate or resampled to `rate`."""
    native, blocks = opened
    target = rate or native
    parts: list[Samples] = []
    for part in _resample(blocks, native, target):
        parts.append(part)
        if seconds is not None and sum(map(len, parts)) >= seconds * target:
            parts = [np.concatenate(parts)[: round(seconds * target)]]
            break
    if not sum(map(len, parts)):
        raise AudioError(f"{name} is empty: it has no samples")
    return Audio(np.concatenate(parts), target)


def read_part(
    path: str | os.PathLike[str], start_s: float, end_s: float, *, full_length: bool = False
) -> Audio:
    """Read a part of a file at its own rate; formats that can be sought in are quick.

    With `full_length` a part that reaches beyond the end of these is moved back.
    """
    try:
        with silenced(), open_sound(path) as file:
            rate, length = file.samplerate, round((end_s - start_s) * file.samplerate)
            latest = max(0, file.frames - length) if full_length else file.frames
            file.seek(min(latest, max(0, round(start_s * rate))))
            samples = file.read(length, dtype="float32", always_2d=True)
            return Audio(samples.mean(axis=1, dtype=np.float64), rate)
    except RuntimeError:  # of libsndfile: a format that only ffmpeg reads
        pass
    parts: list[Samples] = [np.zeros(0, np.float32)]
    with native_blocks(path) as (rate, blocks):
        done = 0
        for block in blocks:
            first, last = round(start_s * rate) - done, round(end_s * rate) - done
            parts.append(block[max(0, first) : max(0, last)])
            done += len(block)
            if done >= end_s * rate:
                break
    return Audio(np.concatenate(parts), rate)


def expand(
    paths: Iterable[str | os.PathLike[str]], left_out: Counter[str] | None = None
) -> list[str]:
    """Return the files of paths, folders (searched recursively) and globs, in a fixed order.

    A path that does not exist and a URL that cannot be reached are kept: reading them reports the
    error in a row of their own. `left_out` counts the other files of folders by their endings.
    """
    left_out = Counter() if left_out is None else left_out
    files: list[str] = []
    for name in [os.fspath(path) for path in paths]:
        if not name:
            raise UsageError("The name of a recording is empty")
        path, is_pattern = Path(name), any(sign in name for sign in _GLOB)
        listed: list[str] | None = None  # None for a file
        if is_url(name):
            with suppress(Exception):  # each store has errors of its own
                listed = list_url(name, SUFFIXES)
        else:
            with suppress(OSError):  # a name that is too long, or in a folder without permission
                listed = sorted(_below(name, left_out)) if path.is_dir() else None
                is_pattern = is_pattern and not path.exists()
            if is_pattern and listed is None:
                listed = _matching(path)
        if listed == [] and is_pattern:
            raise UsageError(f"No file matches {name}")
        if listed == []:
            some = ".wav, .flac, .ogg, .opus, .mp3, .m4a and the like"
            raise UsageError(f"The folder {name} has no sound files ({some})")
        files += [name] if listed is None else listed
    return list(dict.fromkeys(files))


_GLOB = "*?["
_MAX_WILDCARDS = 20
"""Wildcards that a pattern may have: each one more may take many times as long."""


def _matching(path: Path) -> list[str]:
    """Return the files that match a pattern."""
    if sum(map(str(path).count, _GLOB)) > _MAX_WILDCARDS:
        raise UsageError(f"A pattern may have {_MAX_WILDCARDS} wildcards; this has more: {path}")
    anchor = Path(path.anchor)
    try:
        matches = anchor.glob(str(path.relative_to(anchor)))
        return sorted(str(p) for p in matches if p.is_file() and not p.name.startswith(MAC_PREFIX))
    except (ValueError, NotImplementedError, OSError, RecursionError) as error:
        raise UsageError(f"The pattern {path} cannot be used: {error}") from error


def _below(folder: str, left_out: Counter[str]) -> Iterator[str]:
    """Yield the sound files of a folder and of those in it, and folders that cannot be listed.

    Such a folder becomes a row with an error, so that what is in it is not skipped silently.
    """
    failed: list[str] = []
    walk = os.walk(Path(folder), onerror=lambda error: failed.append(str(error.filename)))
    for here, folders, names in walk:
        if links := sum(os.path.islink(f"{here}{os.sep}{name}") for name in folders):  # noqa: PTH114
            left_out["link to a folder"] += links
        for name in names:
            stem, dot, ending = name.rpartition(".")  # quicker than splitext; .wav has no stem
            is_sound = dot + ending.lower() in SUFFIXES and stem.strip(".")
            if name.startswith(MAC_PREFIX):
                continue
            if is_sound:
                yield f"{here}{os.sep}{name}"
            elif stem.strip(".") or not dot:  # no hidden file
                left_out[dot + ending.lower() if dot else "no extension"] += 1
    yield from failed


def resampled_blocks(recording: Recording, rate: int) -> Iterator[Samples]:
    """Yield the mono samples of a recording at `rate`, block by block."""
    with native_blocks(recording) as (native, blocks):
        yield from _resample(blocks, native, rate)


def _resample(blocks: Iterator[Samples], native: int, rate: int) -> Iterator[Samples]:
    """Resample a stream of mono blocks; the result does not depend on the block size."""
    if native == rate:
        yield from blocks
        return
    stream = soxr.ResampleStream(native, rate, 1, dtype="float32", quality="HQ")
    for block in blocks:
        yield stream.resample_chunk(block)
    yield stream.resample_chunk(np.zeros(0, np.float32), last=True)


@contextmanager
def native_blocks(recording: Recording) -> Iterator[Blocks]:
    """Yield the recording's own rate and its mono blocks."""
    max_hours()  # a wrong limit is wrong usage, and not the error of a recording
    try:
        if is_encoded(recording):
            with decoded(recording) as opened:
                yield opened
        else:
            audio = Audio.of(recording)
            check_bounds(describe(recording), rate=audio.rate)
            yield audio.rate, iter([audio.samples])
    except AudioError:
        raise
    except Exception as error:  # of a decoder, a file object or a store: one bad recording
        raise unreadable(recording, error) from error


def unreadable(recording: object, error: Exception) -> AudioError:
    """Return the error of a recording that cannot be read, whatever was raised."""
    name, what = describe(recording), " ".join(str(error).split()) or type(error).__name__
    return AudioError(what if name in what else f"{name} cannot be read: {what}")
