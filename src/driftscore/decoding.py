"""A file, a URL or an open file -> its sample rate and its mono samples, block by block.

Samples are float32 in [-1, 1] (louder is allowed), one channel. Files are read in blocks, so memory
does not grow with the length of a recording. libsndfile reads the common formats; ffmpeg, if it is
installed, reads the others. Only what is in the file itself is decoded: ffmpeg may use no playlist
format, and no protocol but that of files. Work is bounded by what a recording may be.
"""

import io
import os
import re
import shutil
import stat
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Timer
from typing import Any, BinaryIO, TypeGuard, cast

import numpy as np
import soundfile
from numpy.typing import NDArray

from driftscore.errors import AudioError, DriftscoreError, LimitError, UsageError
from driftscore.files import is_url, local_path, open_url
from driftscore.silence import silenced

Samples = NDArray[np.float32]
Blocks = tuple[int, Iterator[Samples]]
"""A sample rate in Hz and mono blocks at that rate."""
Encoded = str | os.PathLike[str] | bytes | BinaryIO
"""A sound file: its path, its URL, its content, or an open file."""

BLOCK_SECONDS = 5
BOUNDED_BLOCK = 4_000_000
"""Samples of all channels that are read at once of a recording with bounds."""
LOUDEST = 4096.0
"""Floats beyond this are samples that were not scaled to [-1, 1], such as 16-bit integers."""

RATES = (500, 10_000_000)
"""The sample rates that a file may have, in Hz; a wrong header may ask for anything."""
MOST_CHANNELS = 512
MOST_HOURS = 25.0
"""The longest file that is read; the environment variable DRIFTSCORE_MAX_HOURS changes it."""
UNKNOWN_FRAMES = 2**62
"""From here on a length is unknown: libsndfile reports it as 2**63 - 1."""
FFMPEG_WAITS_S = 60.0
"""The longest that ffmpeg may take for the next few seconds of sound."""
DEMUXERS = (
    "aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,dsf,dts,dtshd,eac3,flac,flv,gsm,matroska,mlp,"
    "mov,mp3,mpc,mpc8,mpeg,mpegts,mxf,nut,ogg,oma,qcp,rm,shn,tak,truehd,tta,voc,w64,wav,wtv,wv,xwma"
)
"""What ffmpeg may read: formats that hold their sound. hls, dash and concat name other files."""


@dataclass(frozen=True)
class DecodingBounds:
    """How much of a stranger's recording is decoded, whatever its header says."""

    seconds: float
    decoded_bytes: int
    """4 bytes per sample and channel."""

    def check(self, name: str, *, rate: int, channels: int, frames: int) -> None:
        """Refuse a recording that is too long or too large."""
        if frames > self.seconds * rate:
            raise LimitError(f"{name} is longer than {self.seconds:g} s, the most that is allowed")
        if 4 * frames * channels > self.decoded_bytes:
            raise LimitError(
                f"{name} takes more than {self.decoded_bytes / 1e6:g} MB when it is decoded, the "
                "most that is allowed; use fewer channels or a lower sample rate"
            )


def mono(samples: NDArray[np.generic]) -> Samples:
    """Mix to one float32 channel; refuse what is not sound."""
    if samples.dtype.kind == "i":
        samples = samples.astype(np.float32) / -float(np.iinfo(str(samples.dtype)).min)
    elif samples.dtype == np.uint8:
        samples = (samples.astype(np.float32) - 128) / 128
    elif samples.dtype.kind != "f":
        raise UsageError(f"Samples must be numbers, got {samples.dtype}")
    if samples.ndim == 2 and samples.size:
        channels = int(np.argmin(samples.shape))
        samples = samples.mean(axis=channels, dtype=np.float64)
    if samples.ndim not in (1, 2):
        raise UsageError(f"Samples must have one or two axes, got {samples.ndim}")
    with np.errstate(over="ignore"):  # what becomes infinite is refused below
        mixed = np.ascontiguousarray(samples.reshape(-1), dtype=np.float32)
    if not np.isfinite(mixed).all():
        raise AudioError("The samples hold NaN or infinite values; export the recording again")
    if mixed.size and (peak := float(np.abs(mixed).max())) > LOUDEST:
        raise AudioError(
            f"The samples reach {peak:g}, but floats must lie within [-1, 1]; divide them by the "
            "full scale, or give integers with their own type"
        )
    return mixed


@contextmanager
def decoded(recording: Encoded) -> Iterator[Blocks]:
    """Open a sound file and yield its own rate and its mono blocks."""
    name = describe(recording)
    with ExitStack() as opened:
        source: Encoded = recording
        if isinstance(source, bytes):
            source = io.BytesIO(source)
        elif is_url(source):
            source = local_path(source) or opened.enter_context(_open_url(source))
        if isinstance(source, (str, os.PathLike)):
            yield opened.enter_context(_decoded_file(Path(source)))
        else:
            yield opened.enter_context(_decoded_handle(source, name))


@contextmanager
def decoded_in_memory(content: bytes, name: str, bounds: DecodingBounds) -> Iterator[Blocks]:
    """Open the content of a sound file with libsndfile alone; nothing is written to disk."""
    try:
        with silenced():
            sound = soundfile.SoundFile(io.BytesIO(content))
    except soundfile.LibsndfileError as error:
        what = error.error_string.strip(".")
        raise AudioError(f"{name} is not a sound file that can be read ({what})") from error
    with sound:
        rate, channels = sound.samplerate, sound.channels
        check_bounds(name, rate=rate, channels=channels)
        if sound.frames < UNKNOWN_FRAMES:
            bounds.check(name, rate=rate, channels=channels, frames=sound.frames)
        yield rate, _blocks(sound, name, bounds)


def is_encoded(recording: object) -> TypeGuard[Encoded]:
    """Return whether a recording is a sound file, and not samples."""
    if isinstance(recording, (str, os.PathLike, bytes)):
        return True
    return hasattr(recording, "read") and hasattr(recording, "seek")


def stated_rate(path: str) -> int | None:
    """Return the sample rate in the header of a file; None where libsndfile does not read it."""
    try:
        check_file(Path(path))
        return int(soundfile.info(path).samplerate)
    except (AudioError, soundfile.LibsndfileError, OSError, ValueError):
        return None


def describe(recording: object) -> str:
    """Return the name of a recording for messages and rows: its path, or what it is."""
    if type(recording) is str:  # an archive has 100,000 of them
        return recording
    name: object = None
    with suppress(Exception):  # of an object of someone else's: reading it reports the error
        if isinstance(recording, (str, os.PathLike)):
            name = os.fsdecode(recording)
        else:
            name = getattr(recording, "name", None)
    return name if isinstance(name, str) else f"<{type(recording).__name__.lower()}>"


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
def _decoded_handle(handle: BinaryIO, name: str) -> Iterator[Blocks]:
    """Open a file object with libsndfile, or a copy of it on disk with ffmpeg."""
    if isinstance(handle, io.TextIOBase):
        raise AudioError(f"{name} is open as text; open it with mode 'rb'")
    start = handle.tell()
    try:
        with silenced():
            sound = soundfile.SoundFile(handle)
    except soundfile.LibsndfileError as error:
        if shutil.which("ffmpeg") is None:
            raise _unreadable(name, error) from error
        with tempfile.NamedTemporaryFile(prefix="driftscore-") as copy:
            handle.seek(start)
            shutil.copyfileobj(handle, copy)
            copy.flush()
            with _ffmpeg(Path(copy.name), name) as result:
                yield result
        return
    with sound:
        yield _bounded(sound, name)


@contextmanager
def _decoded_file(path: Path) -> Iterator[Blocks]:
    """Open a file with libsndfile, or with ffmpeg if libsndfile does not know its format."""
    check_file(path)
    try:
        # As bytes: soundfile cannot encode a name that is not UTF-8.
        with silenced():
            sound = soundfile.SoundFile(path if os.name == "nt" else os.fsencode(path))
    except soundfile.LibsndfileError as error:
        if shutil.which("ffmpeg") is None:
            raise _unreadable(str(path), error) from error
        with _ffmpeg(path, str(path)) as result:
            yield result
        return
    with sound:
        yield _bounded(sound, str(path))


def check_file(path: Path) -> None:
    """Refuse what is not a regular file with content that may be read."""
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise AudioError(f"{path} is a folder, not a recording")
        if not stat.S_ISREG(about.st_mode):
            raise AudioError(f"{path} is a pipe or a device, not a recording; save it as a file")
        if about.st_size == 0:
            raise AudioError(f"{path} is empty: the file has no bytes")
        with open(path, "rb"):
            pass
    except OSError as error:
        raise AudioError(f"{path} cannot be opened: {error.strerror}") from error
    except ValueError as error:  # a name with NUL
        raise AudioError(f"{str(path)!r} cannot be opened: {error}") from error


def _bounded(sound: soundfile.SoundFile, name: str) -> Blocks:
    """Return the rate and the blocks of a file whose header says something possible."""
    check_bounds(name, rate=sound.samplerate, channels=sound.channels)
    if sound.frames < UNKNOWN_FRAMES:
        check_bounds(name, rate=sound.samplerate, frames=sound.frames)
    return sound.samplerate, _blocks(sound, name)


def check_bounds(name: str, *, rate: int, channels: int = 1, frames: int = 0) -> None:
    """Refuse a recording that is beyond what a recording may reasonably be."""
    lowest, highest = RATES
    if not lowest <= rate <= highest:
        raise AudioError(
            f"{name} has a sample rate of {rate} Hz; {lowest} to {highest} Hz can be read"
        )
    if not 1 <= channels <= MOST_CHANNELS:
        raise AudioError(f"{name} has {channels} channels; up to {MOST_CHANNELS} can be read")
    hours, most = frames / rate / 3600, most_hours()
    if hours > most:
        raise AudioError(
            f"{name} is longer than {most:g} hours; set DRIFTSCORE_MAX_HOURS to read more"
        )


def most_hours() -> float:
    """Return the length of the longest file that is read, in hours."""
    given = os.environ.get("DRIFTSCORE_MAX_HOURS", "")
    try:
        most = float(given) if given else MOST_HOURS
    except ValueError:
        most = 0.0
    if not most > 0:
        raise UsageError(f"DRIFTSCORE_MAX_HOURS must be a positive number, not {given!r}")
    return most


def _unreadable(name: str, error: soundfile.LibsndfileError) -> AudioError:
    if shutil.which("ffmpeg") is None:
        return AudioError(
            f"{name} is not a sound file that libsndfile can read "
            f"({error.error_string.strip('.')}); if it is sound, install ffmpeg, or convert it "
            "to wav or flac"
        )
    return AudioError(f"{name} is not a sound file that libsndfile or ffmpeg can read")


def _blocks(
    sound: soundfile.SoundFile, name: str, bounds: DecodingBounds | None = None
) -> Iterator[Samples]:
    """Yield a file's mono blocks, and refuse one that ends before its header says."""
    missing = _missing_bytes(sound.extra_info)
    if missing:
        raise AudioError(f"{name} is truncated: {missing} bytes of sound are missing at its end")
    seen, frames = 0, sound.samplerate * BLOCK_SECONDS
    if bounds is not None:
        frames = max(1, min(frames, BOUNDED_BLOCK // sound.channels))
    while True:
        try:
            with silenced():
                block = sound.read(frames, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise AudioError(f"{name} is damaged: {error.error_string}") from error
        if not len(block):
            break
        seen += len(block)
        if bounds is None:
            check_bounds(name, rate=sound.samplerate, frames=seen)
        else:
            bounds.check(name, rate=sound.samplerate, channels=sound.channels, frames=seen)
        yield _mono_block(block, name)
    if seen < sound.frames < UNKNOWN_FRAMES:
        raise AudioError(
            f"{name} is truncated: {seen / sound.samplerate:.2f} s of "
            f"{sound.frames / sound.samplerate:.2f} s could be read"
        )


def _mono_block(block: NDArray[Any], name: str) -> Samples:
    try:
        # Frames are rows here, whatever the shape: a short last block may be wider than long.
        return mono(block.mean(axis=1, dtype=np.float64) if block.shape[1] > 1 else block[:, 0])
    except AudioError as error:
        raise AudioError(f"{name}: {error}") from error


_SHORT = re.compile(
    r"^\s*(?:data|SSND|Data Size|riff|Riff size)\s*: (\d+) \(should be (\d+)\)", re.M
)
"""How libsndfile's log says that wav, aiff, au, w64 and rf64 end before they should."""


def _missing_bytes(log: str) -> int:
    """Return how many bytes a file lacks by libsndfile's log, 0 for a streamed header."""
    found = _SHORT.search(log)
    if found is None:
        return 0
    promised, present = map(int, found.groups())
    # Programs that stream a wav write 0 or a huge size and never return to correct it.
    return max(0, promised - present) if promised < 0x7FFFF000 else 0


@contextmanager
def _ffmpeg(path: Path, name: str) -> Iterator[Blocks]:
    """Decode through ffmpeg as a Sun AU stream: its header carries the rate and the channels."""
    command = ["ffmpeg", "-nostdin", "-v", "error", "-max_alloc", "1000000000"]
    command += ["-protocol_whitelist", "file", "-format_whitelist", DEMUXERS]
    command += ["-i", str(path.resolve())]
    command += ["-vn", "-sn", "-dn", "-map", "0:a:0", "-c:a", "pcm_f32be", "-f", "au", "pipe:1"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            head = _read_soon(process, 24, name)
            if len(head) < 24:
                raise AudioError(f"{name} is not a sound file that libsndfile or ffmpeg can read")
            _, offset, _, _, rate, channels = struct.unpack(">4s5I", head)
            check_bounds(name, rate=rate, channels=channels)
            _read_soon(process, offset - 24, name)
            yield rate, _au_blocks(process, rate, channels, name)
        finally:
            process.kill()


def _read_soon(process: subprocess.Popen[bytes], count: int, name: str) -> bytes:
    """Read from ffmpeg; end it if it takes too long for what is asked."""
    ended = Event()

    def end() -> None:
        ended.set()
        process.kill()

    late = Timer(FFMPEG_WAITS_S, end)
    late.daemon = True
    late.start()
    try:
        raw = cast(BinaryIO, process.stdout).read(count)
    finally:
        late.cancel()
    if ended.is_set():
        raise AudioError(f"{name} cannot be decoded: ffmpeg took more than {FFMPEG_WAITS_S:g} s")
    return raw


def _au_blocks(
    process: subprocess.Popen[bytes], rate: int, channels: int, name: str
) -> Iterator[Samples]:
    frame, seen = 4 * channels, 0
    while raw := _read_soon(process, rate * BLOCK_SECONDS * frame, name):
        block = np.frombuffer(raw[: len(raw) // frame * frame], ">f4").reshape(-1, channels)
        seen += len(block)
        check_bounds(name, rate=rate, frames=seen)
        yield _mono_block(block.astype(np.float32), name)
    if process.wait() != 0:
        raise AudioError(f"{name} is damaged: ffmpeg stopped before its end")
