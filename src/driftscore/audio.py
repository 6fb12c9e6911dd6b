"""A sound file -> mono samples with their rate -> fixed windows; the only reader of sound.

Samples are float32 in [-1, 1] (louder is allowed), one channel, and never travel without
their rate in Hz. Files are read in blocks and resampled as a stream, so memory does not
grow with the length of a recording. A window is the model's length, the next one starts
half a length later, and the last one ends where the recording ends; a recording shorter
than a window is one short window, which the backbone pads in its own way.
"""

import io
import os
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard, cast

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from driftscore.errors import AudioError, DriftscoreError, UsageError
from driftscore.files import is_url, list_url, local_path, open_url

Samples = NDArray[np.float32]
Source = Any
"""A path, a URL, an open binary file, `Audio`, or what `Audio.of` takes (array with its rate)."""

BLOCK_SECONDS = 5
_LIBSNDFILE = (
    "wav",
    "wave",
    "flac",
    "ogg",
    "oga",
    "opus",
    "mp3",
    "aif",
    "aiff",
    "au",
    "caf",
    "w64",
)
_FFMPEG = ("m4a", "mp4", "aac", "wma", "webm", "mka", "mkv", "mov", "amr", "3gp", "ac3")
SUFFIXES = frozenset(f".{ending}" for ending in _LIBSNDFILE + _FFMPEG)
"""File endings taken from a folder; a file named outright may have any ending."""


@dataclass(frozen=True, eq=False)
class Audio:
    """Mono samples with their rate in Hz.

    `samples` may be given as frames or as a 2-D array with its channels on the shorter
    axis, as floats or as integers (scaled by their type's range); it is kept as mono float32.
    """

    samples: Samples
    rate: int

    def __post_init__(self) -> None:
        if not isinstance(self.rate, (int, np.integer)) or self.rate <= 0:
            raise UsageError(f"A sample rate is a positive whole number of Hz, not {self.rate!r}")
        object.__setattr__(self, "rate", int(self.rate))
        object.__setattr__(self, "samples", _mono(np.asarray(self.samples)))

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return len(self.samples) / self.rate

    @staticmethod
    def of(value: Any) -> "Audio":
        """Make `Audio` of an array with its rate: a pair, or a dict as transformers takes it."""
        if isinstance(value, Audio):
            return value
        if isinstance(value, dict) and "sampling_rate" in value:
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


@dataclass(frozen=True)
class Window:
    """A stretch of a recording: its samples and where they lie, in seconds."""

    audio: Audio
    start_s: float
    end_s: float

    @property
    def silent(self) -> bool:
        """Whether every sample is zero: digital silence, which has no embedding."""
        return not self.audio.samples.any()


def windows(source: Source, *, rate: int, seconds: float) -> Iterator[Window]:
    """Yield the fixed windows of a recording, mono, at `rate`, in order of time."""
    length = round(rate * seconds)
    hop = length // 2
    held = np.zeros(0, np.float32)  # what is decoded and may still be needed
    start = 0  # position of held[0] in the recording
    due = 0  # position of the next window
    for block in _resampled(source, rate):
        held = np.concatenate([held, block])
        while due + length <= start + len(held):
            yield _window(held[due - start : due - start + length], due, rate)
            due += hop
        # Keep one window's length behind the end: the right-aligned last one may need it.
        spare = min(due - start, len(held) - length)
        if spare > 0:
            held, start = held[spare:], start + spare
    end = start + len(held)
    if end == 0:
        raise AudioError(f"{describe(source)} is empty: it holds no samples")
    if end <= length:
        if due == 0:
            yield _window(held, 0, rate)
    elif due - hop + length < end:
        yield _window(held[-length:], end - length, rate)


def sounding_windows(source: Source, *, rate: int, seconds: float) -> Iterator[Window]:
    """Yield the windows that hold any sound; a recording with none is an error."""
    silent = True
    for window in windows(source, rate=rate, seconds=seconds):
        if not window.silent:
            silent = False
            yield window
    if silent:
        raise AudioError(f"{describe(source)} is silent: every sample is zero")


def read(source: Source, *, rate: int | None = None) -> Audio:
    """Read a whole recording as mono, at its own rate or resampled to `rate`."""
    with _decoded(source) as (native, blocks):
        wanted = rate or native
        parts = list(_resample(blocks, native, wanted))
    if not sum(map(len, parts)):
        raise AudioError(f"{describe(source)} is empty: it holds no samples")
    return Audio(np.concatenate(parts), wanted)


def describe(source: Source) -> str:
    """Return how to call a source in a message or in a row: its path, or what it is."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    if isinstance(name := getattr(source, "name", None), str):
        return name
    return f"<{type(source).__name__.lower()}>"


def expand(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the files meant by paths, folders (searched through) and globs, in a fixed order.

    A path that does not exist is kept: reading it says so in its own row.
    """
    found: list[str] = []
    for given in [os.fspath(path) for path in paths]:
        meant = list_url(given, SUFFIXES) if is_url(given) else _listed(given)
        if meant == [] and any(sign in given for sign in _GLOB):
            raise UsageError(f"No file matches {given}")
        if meant == []:
            some = ".wav, .flac, .ogg, .opus, .mp3, .m4a and the like"
            raise UsageError(f"The folder {given} holds no sound files ({some})")
        found += [given] if meant is None else meant
    return list(dict.fromkeys(found))


_GLOB = "*?["


def _listed(given: str) -> list[str] | None:
    """Return the files that a folder or a glob means, None for a file."""
    path = Path(given)
    if path.is_dir():
        return sorted(_below(given))
    if any(sign in given for sign in _GLOB) and not path.exists():
        anchor = Path(path.anchor)
        return sorted(str(p) for p in anchor.glob(str(path.relative_to(anchor))) if p.is_file())
    return None


def _below(folder: str) -> Iterator[str]:
    """Yield the sound files of a folder and of those in it."""
    for here, _, names in os.walk(Path(folder)):
        for name in names:
            if os.path.splitext(name)[1].lower() in SUFFIXES:  # noqa: PTH122 (100,000 of them)
                yield f"{here}{os.sep}{name}"


def _window(samples: Samples, position: int, rate: int) -> Window:
    audio = Audio(samples.copy(), rate)
    return Window(audio, position / rate, (position + len(samples)) / rate)


def _mono(samples: NDArray[Any]) -> Samples:
    """Mix to one float32 channel, and refuse what is not sound."""
    if samples.dtype.kind == "i":
        samples = samples.astype(np.float32) / -float(np.iinfo(samples.dtype).min)
    elif samples.dtype == np.uint8:
        samples = (samples.astype(np.float32) - 128) / 128
    elif samples.dtype.kind != "f":
        raise UsageError(f"Samples are numbers, not {samples.dtype}")
    if samples.ndim == 2:
        channels = int(np.argmin(samples.shape))
        samples = samples.mean(axis=channels, dtype=np.float64)
    if samples.ndim != 1:
        raise UsageError(f"Samples have one or two axes, not {samples.ndim}")
    mono = np.ascontiguousarray(samples, dtype=np.float32)
    if not np.isfinite(mono).all():
        raise AudioError("The samples hold NaN or infinite values; export the recording again")
    return mono


def _resampled(source: Source, rate: int) -> Iterator[Samples]:
    with _decoded(source) as (native, blocks):
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
def _decoded(source: Source) -> Iterator[tuple[int, Iterator[Samples]]]:
    """Yield a source's own rate and its mono blocks."""
    name = describe(source)
    with ExitStack() as opened:
        if isinstance(source, bytes):
            source = io.BytesIO(source)
        elif is_url(source):
            source = local_path(source) or opened.enter_context(_open_url(source))
        if isinstance(source, (str, os.PathLike)):
            yield opened.enter_context(_decoded_file(Path(source)))
        elif _is_file(source):
            yield opened.enter_context(_decoded_handle(source, name))
        else:
            audio = Audio.of(source)
            yield audio.rate, iter([audio.samples])


def _is_file(source: object) -> TypeGuard[BinaryIO]:
    return hasattr(source, "read") and hasattr(source, "seek")


def _open_url(url: str) -> BinaryIO:
    try:
        return open_url(url)
    except DriftscoreError:
        raise
    except FileNotFoundError as error:
        raise AudioError(f"{url} cannot be opened: No such file") from error
    except Exception as error:  # each store has errors of its own; one bad file is one bad row
        raise AudioError(f"{url} cannot be opened: {error}") from error


@contextmanager
def _decoded_handle(handle: BinaryIO, name: str) -> Iterator[tuple[int, Iterator[Samples]]]:
    try:
        with soundfile.SoundFile(handle) as sound:
            yield sound.samplerate, _blocks(sound, name)
    except soundfile.LibsndfileError as error:
        raise _unreadable(name, error) from error


@contextmanager
def _decoded_file(path: Path) -> Iterator[tuple[int, Iterator[Samples]]]:
    """Open a file with libsndfile, or with ffmpeg if libsndfile does not know its format."""
    if path.is_dir():
        raise AudioError(f"{path} is a folder, not a recording")
    try:
        if path.stat().st_size == 0:
            raise AudioError(f"{path} is empty: the file has no bytes")
        with open(path, "rb"):
            pass
    except OSError as error:
        raise AudioError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        sound = soundfile.SoundFile(path)
    except soundfile.LibsndfileError as error:
        if shutil.which("ffmpeg") is None:
            raise _unreadable(str(path), error) from error
        with _ffmpeg(path) as result:
            yield result
        return
    with sound:
        try:
            yield sound.samplerate, _blocks(sound, str(path))
        except soundfile.LibsndfileError as error:
            raise AudioError(f"{path} is damaged: {error.error_string}") from error


def _unreadable(name: str, error: soundfile.LibsndfileError) -> AudioError:
    if shutil.which("ffmpeg") is None:
        return AudioError(
            f"{name} is not a sound file that libsndfile can read "
            f"({error.error_string.strip('.')}); if it is sound, install ffmpeg, or convert it "
            "to wav or flac"
        )
    return AudioError(f"{name} is not a sound file that libsndfile or ffmpeg can read")


def _blocks(sound: soundfile.SoundFile, name: str) -> Iterator[Samples]:
    """Yield a file's mono blocks, and refuse one that ends before its header says."""
    missing = _missing_bytes(sound.extra_info)
    if missing:
        raise AudioError(f"{name} is truncated: {missing} bytes of sound are missing at its end")
    seen = 0
    while True:
        block = sound.read(sound.samplerate * BLOCK_SECONDS, dtype="float32", always_2d=True)
        if not len(block):
            break
        seen += len(block)
        yield _checked(block, name)
    if seen < sound.frames < 2**62:  # an unknown length is reported as 2**63 - 1
        raise AudioError(
            f"{name} is truncated: {seen / sound.samplerate:.2f} s of "
            f"{sound.frames / sound.samplerate:.2f} s could be read"
        )


def _checked(block: NDArray[Any], name: str) -> Samples:
    try:
        # Frames are rows here, whatever the shape: a short last block may be wider than long.
        return _mono(block.mean(axis=1, dtype=np.float64) if block.shape[1] > 1 else block[:, 0])
    except AudioError as error:
        raise AudioError(f"{name}: {error}") from error


def _missing_bytes(log: str) -> int:
    """Return how many bytes a wav lacks by libsndfile's log, 0 for a streamed header."""
    for line in log.splitlines():
        if line.strip().startswith("data") and "should be" in line:
            stated, _, found = line.partition(":")[2].partition("(should be")
            promised, present = int(stated), int(found.strip(" )"))
            # Programs that stream a wav write 0 or a huge size and never return to correct it.
            return max(0, promised - present) if promised < 0x7FFFF000 else 0
    return 0


@contextmanager
def _ffmpeg(path: Path) -> Iterator[tuple[int, Iterator[Samples]]]:
    """Decode through ffmpeg as a Sun AU stream: its header carries the rate and the channels."""
    command = ["ffmpeg", "-nostdin", "-v", "error", "-i", str(path.resolve())]
    command += ["-vn", "-map", "0:a:0", "-c:a", "pcm_f32be", "-f", "au", "pipe:1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        out = cast(BinaryIO, process.stdout)
        head = out.read(24)
        if len(head) < 24:
            process.wait()
            raise AudioError(f"{path} is not a sound file that libsndfile or ffmpeg can read")
        _, offset, _, _, rate, channels = struct.unpack(">4s5I", head)
        out.read(offset - 24)
        try:
            yield rate, _au_blocks(process, rate, channels, str(path))
        finally:
            process.kill()


def _au_blocks(
    process: subprocess.Popen[bytes], rate: int, channels: int, name: str
) -> Iterator[Samples]:
    out = cast(BinaryIO, process.stdout)
    frame = 4 * channels
    while raw := out.read(rate * BLOCK_SECONDS * frame):
        block = np.frombuffer(raw[: len(raw) // frame * frame], ">f4").reshape(-1, channels)
        yield _checked(block.astype(np.float32), name)
    if process.wait() != 0:
        raise AudioError(f"{name} is damaged: ffmpeg stopped before its end")
