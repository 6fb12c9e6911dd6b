"""The clock time at which a recording starts, and that of its events.

It is taken from the first of these that says it:

1. what the user gave (`parse_start`);
2. the name of the file: 20261116_031500.wav, 2026-11-16T03-15-00Z.flac, SM4A_20261116_031500.wav,
   or the eight hexadecimal digits of an early AudioMoth (seconds since 1970);
3. the metadata of a wav: the GUANO timestamp, the comment of an AudioMoth, the bext chunk, the date
   of the INFO list if it has a time of day.

A time without a zone gets that of the metadata if both show the same time of day, else the zone of
this machine, and `Start.zone_known` is then False. Files come from anyone: a header is read in
small bounded parts, and one that makes no sense means that the time is unknown.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO

from driftscore.audio.decoding import describe
from driftscore.errors import UsageError
from driftscore.storage.files import is_file, is_url

GIVEN, NAME, METADATA = "as given", "from its name", "from its metadata"

_YEARS = (1990, 2100)
_STAMP = re.compile(
    r"(?<![0-9])([0-9]{4})([-_.]?)([0-9]{2})\2([0-9]{2})[T_ $-]{0,2}"
    r"([0-9]{2})[-_.:]?([0-9]{2})[-_.:]?([0-9]{2})"
    r"(Z(?![A-Za-z])|[+-][0-9]{2}[:-]?[0-9]{2})?(?![0-9])",
)
_CLIP = re.compile(r"_[0-9]{2,}-[0-9]{2}-[0-9]{2}\.[0-9]_")
"""The offset in the name of a clip that was cut out: the recording's own start is not its own."""
_HEXADECIMAL = re.compile(r"(?=.*[A-F])[0-9A-F]{8}")
_AUDIOMOTH_YEARS = (2015, 2040)
_COMMENT = re.compile(
    r"Recorded at ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)? ([0-9]{2})/([0-9]{2})/([0-9]{4})"
    r"( by AudioMoth| \(UTC(?:([+-][0-9]{1,2})(?::([0-9]{2}))?)?\))?"
)
_SHORTEST = 16  # 2026-11-16T03:15: a date alone is not the time of a start
_MAX_CHUNKS, _MAX_BYTES, _MAX_READ = 200, 65_536, 16
"""Chunks of a wav that are visited, bytes of one that are read, and how many are read."""


@dataclass(frozen=True)
class Start:
    """When a recording starts.

    Attributes:
        time: the clock time, with its zone.
        source: where it is from: "as given", "from its name" or "from its metadata".
        zone_known: False if the zone is that of this machine, because none was stated.

    """

    time: datetime
    source: str
    zone_known: bool = True

    def at(self, seconds: float) -> datetime:
        """Return the clock time so many seconds after the start."""
        return self.time + timedelta(seconds=seconds)

    def text_at(self, seconds: float) -> str:
        """Return that time in ISO 8601, as in 2026-11-16T03:15:00.250+01:00."""
        return self.at(seconds).isoformat(timespec="milliseconds")

    def __str__(self) -> str:
        zone = "" if self.zone_known else ", in the time zone of this machine"
        return f"{self.time.isoformat(timespec='seconds')} ({self.source}{zone})"


def start_of(recording: object, start: str | datetime | None = None) -> Start | None:
    """Return when a recording starts: as the user says, else by its name or its metadata."""
    if start is not None:
        return _start(parse_start(start) if isinstance(start, str) else start, GIVEN)
    name = describe(recording)
    named, stated = from_name(name), None
    if not is_url(name) and is_file(name) and (named is None or named.tzinfo is None):
        stated = from_metadata(Path(name))
    if named is None:
        return None if stated is None else _start(stated, METADATA)
    if stated is not None and stated.tzinfo and stated.replace(tzinfo=None) == named:
        return _start(stated, NAME)
    return _start(named, NAME)


def parse_start(text: str) -> datetime:
    """Return the time that a user gave, with its zone if there is one."""
    written = text.strip()
    start = _iso(written) or (from_name(written) if _STAMP.fullmatch(written) else None)
    if start is None:
        raise UsageError(
            "The start of a recording is a date and a time, such as 2026-11-16T03:15:00+01:00 "
            f"(without a zone: the time of this machine), not {text!r}"
        )
    return start


def from_name(name: str) -> datetime | None:
    """Return the time in the name of a file, without a zone if it has none."""
    last = PurePosixPath(PureWindowsPath(name).as_posix()).name
    stem = last.rpartition(".")[0] or last
    if _HEXADECIMAL.fullmatch(stem):
        moment = datetime.fromtimestamp(int(stem, 16), UTC)
        first, end = _AUDIOMOTH_YEARS
        return moment if first <= moment.year < end else None
    if _CLIP.search(last):
        return None
    for match in _STAMP.finditer(last):
        year, _, month, day, hour, minute, second, zone = match.groups()
        named = _moment(year, month, day, hour, minute, second)
        if named is None:
            continue
        if zone in (None, "Z"):
            return named.replace(tzinfo=UTC if zone else None)
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        if hours > 14 or minutes % 15:  # a number, and not a zone
            return named
        offset = timedelta(hours=hours, minutes=minutes)
        return named.replace(tzinfo=timezone(-offset if zone[0] == "-" else offset))
    return None


def from_metadata(path: Path) -> datetime | None:
    """Return the time in the metadata of a wav; None for any other or damaged file."""
    try:
        with open(path, "rb") as file:
            chunks = dict(_chunks(file))
    except (OSError, ValueError, struct.error):
        return None
    for line in chunks.get("guan", b"").decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "Timestamp" and (start := _iso(value)):
            return start
    # The comment of an AudioMoth; the earliest ones do not name UTC.
    if match := _COMMENT.search(_text(chunks.get("ICMT", b""))):
        hour, minute, second, day, month, year, zone, hours, minutes = match.groups()
        if start := _moment(year, month, day, hour, minute, second):
            offset = timedelta(hours=abs(int(hours or 0)), minutes=int(minutes or 0))
            if zone is None or offset >= timedelta(hours=24):
                return start
            sign = -1 if (hours or "").startswith("-") else 1
            return start.replace(tzinfo=timezone(sign * offset))
    # The date and the time of origination, whatever separates their parts.
    origin = chunks.get("bext", b"")[320:338]
    digits = re.findall("[0-9]+", f"{_text(origin[:10])} {_text(origin[10:])}")
    return (_moment(*digits) if len(digits) == 6 else None) or _iso(_text(chunks.get("ICRD", b"")))


def _start(time: datetime, source: str) -> Start | None:
    if time.tzinfo is not None:
        return Start(time, source)
    try:
        return Start(time.astimezone(), source, zone_known=False)
    except (OSError, OverflowError, ValueError):  # beyond the calendar of this platform
        return None


def _moment(*parts: str) -> datetime | None:
    """Return the time with this year, month, day, hour, minute and second, if there is one."""
    first, last = _YEARS
    try:
        year, month, day, hour, minute, second = map(int, parts)
        moment = datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    return moment if first <= moment.year < last else None


def _iso(text: str) -> datetime | None:
    """Return a time in ISO 8601 that has a time of day."""
    text = text.strip()
    if len(text) < _SHORTEST:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if _YEARS[0] <= moment.year < _YEARS[1] else None


def _chunks(file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Yield the chunks of a wav that may hold a time, at most a few and the start of each."""
    kind = file.read(12)
    if len(kind) < 12 or kind[:4] not in (b"RIFF", b"RF64") or kind[8:] != b"WAVE":
        return
    long_size, count = 0, 0
    for _ in range(_MAX_CHUNKS):
        head = file.read(8)
        if len(head) < 8:
            return
        name, size = struct.unpack("<4sI", head)
        if name == b"data" and size == 0xFFFFFFFF:
            size = long_size  # the size of a long file is in the chunk ds64
        content = b""
        if name in (b"ds64", b"bext", b"guan", b"LIST") and count < _MAX_READ:
            count += 1
            content = file.read(min(size, _MAX_BYTES))
        if name == b"ds64" and len(content) >= 16:
            long_size = struct.unpack("<Q", content[8:16])[0]
        elif name == b"LIST":
            position = 4
            while content[:4] == b"INFO" and position + 8 <= len(content):  # a list of texts
                inner, length = struct.unpack_from("<4sI", content, position)
                if inner in (b"ICRD", b"ICMT"):
                    yield inner.decode("ascii"), content[position + 8 : position + 8 + length]
                position += 8 + length + length % 2
        elif content:
            yield name.decode("ascii"), content
        file.seek(size - len(content) + size % 2, 1)


def _text(content: bytes) -> str:
    return content.partition(b"\0")[0].decode("utf-8", "replace").strip()
