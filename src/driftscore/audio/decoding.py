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
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any, BinaryIO, TypeGuard, cast

import numpy as np
import soundfile
from numpy.typing import NDArray

from driftscore.errors import AudioError, DriftscoreError, LimitError, UsageError
from driftscore.storage.files import is_url, local_path, open_url
from driftscore.system.process import silenced

Samples = NDArray[np.float32]
Blocks = tuple[int, Iterator[Samples]]
"""A sample rate in Hz and mono blocks at that rate."""
EndCheck = Callable[[BinaryIO, int, bytes], str]
"""A file, the position of its start, its first bytes -> what is missing at its end, or nothing."""
Encoded = str | os.PathLike[str] | bytes | BinaryIO
"""A sound file: its path, its URL, its content, or an open file."""


class PartialFile(str):
    """The path or URL of a sound file of which the readable part is enough, if it is truncated."""

    cut = ""
    """Once it was read: why it ends early, and how much of it was used; empty for a whole file."""


BLOCK_SECONDS = 5
BOUNDED_BLOCK = 4_000_000
"""Samples of all channels that are read at once of a recording with bounds."""
LOUDEST = 4096.0
"""Floats beyond this are samples that were not scaled to [-1, 1], such as 16-bit integers."""

RATES = (500, 10_000_000)
"""The sample rates that a file may have, in Hz; a wrong header may ask for anything."""
MAX_CHANNELS = 512
MAX_HOURS = 25.0
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


class UnknownFormatError(AudioError):
    """Neither libsndfile nor ffmpeg takes a file for sound."""


class _UndecodableError(AudioError):
    """libsndfile cannot read on."""


@contextmanager
def decoded(
    recording: Encoded, *, name: str = "", bounds: DecodingBounds | None = None
) -> Iterator[Blocks]:
    """Open a sound file with libsndfile, or with ffmpeg if libsndfile does not know its format.

    Yield its own rate and its mono blocks. A `PartialFile` ends, with a warning, where it cannot
    be read on; any other file is refused there. Of bytes nothing is written to disk, except for
    ffmpeg on systems without files in memory.
    """
    name, partial = name or describe(recording), isinstance(recording, PartialFile)
    source: Encoded = io.BytesIO(recording) if isinstance(recording, bytes) else recording
    path: Path | None = None
    handle: BinaryIO | None = None
    sound: soundfile.SoundFile | None = None
    malformed = False
    with ExitStack() as opened:
        if is_url(source):
            try:
                source = local_path(source) or opened.enter_context(open_url(source))
            except DriftscoreError:
                raise
            except FileNotFoundError as error:
                raise AudioError(f"{name} cannot be opened: No such file") from error
            except Exception as error:  # each store has errors of its own; one bad file, one row
                raise AudioError(f"{name} cannot be opened: {error}") from error
        if isinstance(source, (str, os.PathLike)):
            path = Path(source)
            name = str(path)
            check_file(path)
        elif isinstance(source, io.TextIOBase):
            raise AudioError(f"{name} is open as text; open it with mode 'rb'")
        else:
            handle = cast(BinaryIO, source)
        start = handle.tell() if handle else 0
        with nullcontext(handle) if handle else open(cast(Path, path), "rb") as content:
            head = _head(content)

        def on_disk() -> Path:
            """Return the path of the file for ffmpeg; the content of a handle is copied."""
            if handle is None:
                return cast(Path, path)
            if isinstance(handle, io.BytesIO) and _MEMFD is not None:
                copy: Any = opened.enter_context(open(_MEMFD("driftscore"), "w+b"))
                copied = Path(f"/proc/{os.getpid()}/fd/{copy.fileno()}")
            else:
                copy = opened.enter_context(tempfile.NamedTemporaryFile(prefix="driftscore-"))
                copied = Path(copy.name)
            handle.seek(start)
            shutil.copyfileobj(handle, copy)
            copy.flush()
            return copied

        def blocks(sound: soundfile.SoundFile) -> Iterator[Samples]:
            """Yield blocks; where libsndfile fails, ffmpeg goes on before a file is refused."""
            seen = 0
            try:
                for block in _blocks(sound, name, bounds, partial=partial, head=head):
                    seen += len(block)
                    yield block
            except _UndecodableError:
                if shutil.which("ffmpeg") is None:
                    raise
                _, again = opened.enter_context(_ffmpeg(on_disk(), name, bounds=bounds))
                for block in again:
                    yield block[min(seen, len(block)) :]
                    seen -= min(seen, len(block))

        def complete(blocks: Iterator[Samples], check_end: EndCheck) -> Iterator[Samples]:
            yield from blocks
            with nullcontext(handle) if handle else open(cast(Path, path), "rb") as file:
                position = file.tell()
                missing = check_end(file, start, head)
                file.seek(position)
            if missing:
                raise AudioError(f"{name} is truncated: {missing}")

        try:
            sound = opened.enter_context(open_sound(path or cast(BinaryIO, handle)))
        except soundfile.LibsndfileError as error:
            malformed = error.code == _MALFORMED and _NO_LENGTH not in head
            # Of a stranger's file ffmpeg gets only formats that libsndfile does not know.
            strange = bounds is not None and error.code != _UNRECOGNISED
            if strange or shutil.which("ffmpeg") is None:
                kind = UnknownFormatError if error.code == _UNRECOGNISED else AudioError
                raise kind(
                    f"{name} is not a sound file that libsndfile can read "
                    f"({error.error_string.strip('.')}); if it is sound, install ffmpeg, or "
                    "convert it to wav or flac"
                ) from error
        if sound is None or (sound.frames == 0 and shutil.which("ffmpeg")):
            # A length of 0 is often that of a wav that was written into a pipe.
            rate, own = opened.enter_context(
                _ffmpeg(on_disk(), name, malformed=malformed, bounds=bounds)
            )
        else:
            rate, own = sound.samplerate, blocks(sound)
            frames = sound.frames if sound.frames < UNKNOWN_FRAMES else 0
            check_bounds(name, rate=rate, channels=sound.channels, frames=frames, bounds=bounds)
        if check_end := _END_CHECKS.get(head[:4]):
            own = complete(own, check_end)
        yield rate, _readable(own, rate, recording) if isinstance(recording, PartialFile) else own


def _readable(blocks: Iterator[Samples], rate: int, file: PartialFile) -> Iterator[Samples]:
    """Yield blocks up to where they cannot be read; `file.cut` and a warning say how much."""
    seen = 0
    try:
        for block in blocks:
            seen += len(block)
            yield block
    except AudioError as error:
        if not seen:
            raise
        file.cut = f"{error}; its first {seen / rate:.2f} s are used"
        warnings.warn(file.cut, stacklevel=2)


_MEMFD = getattr(os, "memfd_create", None)
"""Makes a file in memory; Linux only."""


def is_encoded(recording: object) -> TypeGuard[Encoded]:
    """Return whether a recording is a sound file, and not samples."""
    if isinstance(recording, (str, os.PathLike, bytes)):
        return True
    return hasattr(recording, "read") and hasattr(recording, "seek")


def open_sound(source: str | os.PathLike[str] | BinaryIO) -> soundfile.SoundFile:
    """Open a sound file with libsndfile, without the messages of its libraries."""
    file: object = source
    if isinstance(source, (str, os.PathLike)) and os.name != "nt":
        file = os.fsencode(source)  # soundfile cannot encode a name that is not UTF-8
    with silenced():
        return soundfile.SoundFile(file)


def stated_rate(path: str) -> int | None:
    """Return the sample rate in the header of a file; None where libsndfile does not read it."""
    try:
        check_file(Path(path))
        with open_sound(path) as sound:
            return int(sound.samplerate)
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


def check_file(path: Path) -> None:
    """Refuse what is not a regular file with content that may be read."""
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            os.scandir(path).close()  # of one that cannot be listed, the reason is reported
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


def check_bounds(
    name: str,
    *,
    rate: int,
    channels: int = 1,
    frames: int = 0,
    bounds: DecodingBounds | None = None,
) -> None:
    """Refuse a recording beyond what a recording may reasonably be, or beyond `bounds`."""
    lowest, highest = RATES
    if not lowest <= rate <= highest:
        raise AudioError(
            f"{name} has a sample rate of {rate} Hz; {lowest} to {highest} Hz can be read"
        )
    if not 1 <= channels <= MAX_CHANNELS:
        raise AudioError(f"{name} has {channels} channels; up to {MAX_CHANNELS} can be read")
    if bounds is None:
        if frames / rate / 3600 > (most := max_hours()):
            raise AudioError(
                f"{name} is longer than {most:g} hours; set DRIFTSCORE_MAX_HOURS to read more"
            )
    elif frames > bounds.seconds * rate:
        raise LimitError(f"{name} is longer than {bounds.seconds:g} s, the most that is allowed")
    elif 4 * frames * channels > bounds.decoded_bytes:
        raise LimitError(
            f"{name} takes more than {bounds.decoded_bytes / 1e6:g} MB when it is decoded, the "
            "most that is allowed; use fewer channels or a lower sample rate"
        )


def max_hours() -> float:
    """Return the length of the longest file that is read, in hours."""
    setting = os.environ.get("DRIFTSCORE_MAX_HOURS", "")
    try:
        most = float(setting) if setting else MAX_HOURS
    except ValueError:
        most = 0.0
    if not most > 0:
        raise UsageError(f"DRIFTSCORE_MAX_HOURS must be a positive number, not {setting!r}")
    return most


def _blocks(
    sound: soundfile.SoundFile,
    name: str,
    bounds: DecodingBounds | None = None,
    *,
    partial: bool = False,
    head: bytes = b"",
) -> Iterator[Samples]:
    """Yield a file's mono blocks, and refuse one that ends before its header says.

    The length of an mp3 without a table of its frames is only libsndfile's estimate.
    """
    rate, channels, missing = sound.samplerate, sound.channels, 0
    frames = sound.frames
    if sound.format == "MP3" and not any(tag in head for tag in (b"Xing", b"Info", b"VBRI")):
        frames = 0
    if sound.format == "NIST" and (count := re.search(rb"\nsample_count -i (\d+)", head)):
        frames = int(count[1])  # libsndfile counts those that are there
    if match := _SHORT.search(sound.extra_info):
        promised, present = map(int, match.groups())
        # Programs that stream a wav write 0 or a huge size and never return to correct it.
        if present < promised < 0x7FFFF000:
            missing = promised - present
    cut = AudioError(f"{name} is truncated: {missing} bytes of sound are missing at its end")
    if missing and not partial:
        raise cut
    seen, size = 0, rate * BLOCK_SECONDS
    if bounds is not None:
        size = max(1, min(size, BOUNDED_BLOCK // channels))
    while True:
        try:
            with silenced():
                block = sound.read(size, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise _UndecodableError(f"{name} is damaged: {error.error_string}") from error
        if not len(block):
            break
        seen += len(block)
        check_bounds(name, rate=rate, channels=channels, frames=seen, bounds=bounds)
        yield _mono_block(block, name)
    if missing:
        raise cut
    if seen < frames < UNKNOWN_FRAMES:
        raise AudioError(
            f"{name} is truncated: {seen / rate:.2f} s of {frames / rate:.2f} s could be read"
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


def _head(file: BinaryIO) -> bytes:
    """Return the first bytes of a file, after an ID3 tag."""
    start = file.tell()
    head = file.read(_HEAD_BYTES)
    if head[:3] == b"ID3" and len(head) > 10:
        size = sum((byte & 0x7F) << 7 * (3 - place) for place, byte in enumerate(head[6:10]))
        file.seek(start + 10 + size)
        head = file.read(_HEAD_BYTES)
    file.seek(start)
    return head


_HEAD_BYTES = 1024  # the header of a NIST file
_NO_LENGTH = b"data" + 8 * b"\xff"
"""The data of a caf that was written into a pipe."""


def _cut_ogg(file: BinaryIO, start: int, head: bytes) -> str:
    """Return what is missing at the end of an Ogg file (Vorbis, Opus, FLAC): its last page.

    It need not be marked as the last one: ffmpeg does not mark it when it writes segments.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 2 * _MAX_OGG_PAGE))
    tail = file.read()
    page = tail[tail.rfind(b"OggS") :] if b"OggS" in tail else b""
    segments = page[27 : 27 + page[26]] if len(page) > 26 else b""
    cut = len(page) < 27 or len(page) < 27 + page[26] + sum(segments)
    return "the last page of its stream is cut" if cut else ""


def _cut_wav(file: BinaryIO, start: int, head: bytes) -> str:
    """Return what is missing at the end of a wav that was streamed, without its length."""
    about, data = head.find(b"fmt "), _STREAMED.search(head)
    if about < 0 or data is None or head[about + 8 : about + 10] not in _WHOLE_SAMPLES:
        return ""
    size = file.seek(0, os.SEEK_END) - start - data.end()
    rest = size % max(1, int.from_bytes(head[about + 20 : about + 22], "little"))
    padded = rest == 1 and size % 2 == 0  # some programs make the length even
    return "it ends inside a sample" if rest and not padded else ""


def _cut_voc(file: BinaryIO, start: int, head: bytes) -> str:
    """Return what is missing at the end of a Creative Voice file: a part of its last block."""
    size = file.seek(0, os.SEEK_END)
    end = start + int.from_bytes(head[20:22], "little")
    while end < size:
        file.seek(end)
        block = file.read(4)
        if not block[0]:  # the last one, which is this byte
            return ""
        end += 4 + int.from_bytes(block[1:], "little")
    return "its last block is cut" if end > size else ""


_END_CHECKS: dict[bytes, EndCheck] = {b"OggS": _cut_ogg, b"RIFF": _cut_wav, b"Crea": _cut_voc}
"""By the first bytes of a file: what finds a cut that decoders do not report."""
_STREAMED = re.compile(rb"data(?:\xff{4}|\0{4})")
_WHOLE_SAMPLES = (b"\x01\0", b"\x03\0", b"\xfe\xff")
"""The formats of a wav whose blocks are samples of all channels: PCM, float, extensible."""
_MAX_OGG_PAGE = 65_307
_UNRECOGNISED, _MALFORMED = 1, 3  # libsndfile's SF_ERR_UNRECOGNISED_FORMAT, _MALFORMED_FILE
_SAID = re.compile(r"\[(?:error|fatal)\]|Duration: |Estimating duration|: Video: ")
"""Lines of ffmpeg that tell whether a file is whole."""
_STATED = re.compile(r"Duration: (\d+):(\d\d):([\d.]+)(?:, start: (-?[\d.]+))?")
_SLACK_S = 0.5  # lengths in headers count the padding of encoders, or leave it out


@contextmanager
def _ffmpeg(
    path: Path, name: str, *, malformed: bool = False, bounds: DecodingBounds | None = None
) -> Iterator[Blocks]:
    """Decode through ffmpeg as a Sun AU stream: its header carries the rate and the channels.

    A file is refused at its end if ffmpeg reports an error, or if it is shorter than it states. Of
    one that libsndfile calls malformed ffmpeg must know the length.
    """
    command = ["ffmpeg", "-nostdin", "-hide_banner", "-nostats", "-v", "level+info"]
    command += ["-max_alloc", "1000000000", "-protocol_whitelist", "file"]
    command += ["-format_whitelist", DEMUXERS, "-i", str(path.absolute())]
    command += ["-vn", "-sn", "-dn", "-map", "0:a:0", "-c:a", "pcm_f32be", "-f", "au", "pipe:1"]
    said: list[str] = []

    def listen() -> None:
        for line in cast(BinaryIO, process.stderr):
            text = line[:500].decode("utf-8", "replace")
            if _SAID.search(text) and len(said) < 100:
                said.append(text)

    def blocks() -> Iterator[Samples]:
        frame, seen = 4 * channels, 0
        while raw := _read_soon(process, rate * BLOCK_SECONDS * frame, name):
            block = np.frombuffer(raw[: len(raw) // frame * frame], ">f4").reshape(-1, channels)
            seen += len(block)
            check_bounds(name, rate=rate, channels=channels, frames=seen, bounds=bounds)
            yield _mono_block(block.astype(np.float32), name)
        status = process.wait()
        listener.join()
        text = "".join(said)
        seconds = seen / rate
        stated = _STATED.search(text)
        if stated and "Estimating" not in text and ": Video: " not in text:
            hours, minutes, rest, begin = (float(part or 0) for part in stated.groups())
            length = 3600 * hours + 60 * minutes + rest - max(begin, 0.0)
            if seconds < length - _SLACK_S:
                what = "is truncated" if seconds else "cannot be decoded"
                raise AudioError(f"{name} {what}: {seconds:.2f} s of {length:.2f} s could be read")
        errors = [line for line in said if "[error]" in line or "[fatal]" in line]
        if malformed and "Estimating" in text:
            raise AudioError(
                f"{name} is truncated: its header states another length than the {seconds:.2f} s "
                "that could be read"
            )
        if status or errors:
            what = errors[0].rpartition("] ")[2].strip() if errors else f"status {status}"
            raise AudioError(
                f"{name} is truncated or damaged after {seconds:.2f} s: ffmpeg says {what!r}"
            )

    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        listener = Thread(target=listen, daemon=True)
        listener.start()
        try:
            head = _read_soon(process, 24, name)
            if len(head) < 24:
                listener.join()
                # An mp4 has its index at its end, unless a program has moved it.
                with open(path, "rb") as file:
                    is_mp4 = file.read(8)[4:] == b"ftyp"
                if is_mp4 and "moov atom not found" in "".join(said):
                    raise AudioError(f"{name} is truncated: the index at its end is missing")
                raise UnknownFormatError(
                    f"{name} is not a sound file that libsndfile or ffmpeg can read"
                )
            _, offset, _, _, rate, channels = struct.unpack(">4s5I", head)
            check_bounds(name, rate=rate, channels=channels)
            _read_soon(process, offset - 24, name)
            yield rate, blocks()
        finally:
            process.kill()
            listener.join()


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
