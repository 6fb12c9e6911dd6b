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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO

from driftscore.decoding import describe
from driftscore.errors import UsageError
from driftscore.files import is_url
from driftscore.reading import is_file

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
_MOST_CHUNKS, _MOST_BYTES, _MOST_READ = 200, 65_536, 16
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


def start_of(recording: object, given: str | datetime | None = None) -> Start | None:
    """Return when a recording starts; None if nothing says it."""
    if given is not None:
        return _start(parse_start(given) if isinstance(given, str) else given, GIVEN)
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
    found = _iso(written) or (from_name(written) if _STAMP.fullmatch(written) else None)
    if found is None:
        raise UsageError(
            "The start of a recording is a date and a time, such as 2026-11-16T03:15:00+01:00 "
            f"(without a zone: the time of this machine), not {text!r}"
        )
    return found


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
    for found in _STAMP.finditer(last):
        year, _, month, day, hour, minute, second, zone = found.groups()
        moment_or_none = _made(year, month, day, hour, minute, second)
        if moment_or_none is not None:
            return moment_or_none.replace(tzinfo=_zone(zone))
    return None


def from_metadata(path: Path) -> datetime | None:
    """Return the time in the metadata of a wav; None for any other or damaged file."""
    try:
        with open(path, "rb") as file:
            chunks = dict(_chunks(file))
    except (OSError, ValueError, struct.error):
        return None
    for name, parse in _PARSERS:
        found = parse(chunks[name]) if name in chunks else None
        if found is not None:
            return found
    return None


def _start(time: datetime, source: str) -> Start | None:
    if time.tzinfo is not None:
        return Start(time, source)
    try:
        return Start(time.astimezone(), source, zone_known=False)
    except (OSError, OverflowError, ValueError):  # beyond the calendar of this platform
        return None


def _made(*parts: str) -> datetime | None:
    """Return the time with this year, month, day, hour, minute and second, if there is one."""
    first, last = _YEARS
    try:
        year, month, day, hour, minute, second = map(int, parts)
        found = datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    return found if first <= found.year < last else None


def _zone(text: str | None) -> timezone | None:
    """Return the zone written as Z or +01:00; None for what is not a zone, as a number is not."""
    if not text:
        return None
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    if hours > 14 or minutes % 15:
        return None
    return timezone((-1 if text[0] == "-" else 1) * timedelta(hours=hours, minutes=minutes))


def _iso(text: str) -> datetime | None:
    """Return a time in ISO 8601 that has a time of day."""
    text = text.strip()
    if len(text) < _SHORTEST:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if _YEARS[0] <= found.year < _YEARS[1] else None


def _chunks(file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Yield the chunks of a wav that may hold a time, at most a few and the start of each."""
    kind = file.read(12)
    if len(kind) < 12 or kind[:4] not in (b"RIFF", b"RF64") or kind[8:] != b"WAVE":
        return
    long_size, count = 0, 0
    for _ in range(_MOST_CHUNKS):
        head = file.read(8)
        if len(head) < 8:
            return
        name, size = struct.unpack("<4sI", head)
        if name == b"data" and size == 0xFFFFFFFF:
            size = long_size  # the size of a long file is in the chunk ds64
        content = b""
        if name in (b"ds64", b"bext", b"guan", b"LIST") and count < _MOST_READ:
            count += 1
            content = file.read(min(size, _MOST_BYTES))
        if name == b"ds64" and len(content) >= 16:
            long_size = struct.unpack("<Q", content[8:16])[0]
        elif name == b"LIST":
            yield from _info(content)
        elif content:
            yield name.decode("ascii"), content
        file.seek(size - len(content) + size % 2, 1)


def _info(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the texts of an INFO list."""
    place = 4
    while content[:4] == b"INFO" and place + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, place)
        if name in (b"ICRD", b"ICMT"):
            yield name.decode("ascii"), content[place + 8 : place + 8 + size]
        place += 8 + size + size % 2


def _text(content: bytes) -> str:
    return content.partition(b"\0")[0].decode("utf-8", "replace").strip()


def _guano(content: bytes) -> datetime | None:
    for line in content.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "Timestamp":
            return _iso(value)
    return None


def _comment(content: bytes) -> datetime | None:
    """Return the time in the comment of an AudioMoth; the earliest ones do not name UTC."""
    found = _COMMENT.search(_text(content))
    if found is None:
        return None
    hour, minute, second, day, month, year, zone, hours, minutes = found.groups()
    moment = _made(year, month, day, hour, minute, second)
    if moment is None or zone is None:
        return moment
    sign = -1 if (hours or "").startswith("-") else 1
    offset = timedelta(hours=abs(int(hours or 0)), minutes=int(minutes or 0))
    if offset >= timedelta(hours=24):
        return moment
    return moment.replace(tzinfo=timezone(sign * offset))


def _bext(content: bytes) -> datetime | None:
    """Return the date and the time of origination, whatever separates their parts."""
    digits = re.findall(r"[0-9]+", f"{_text(content[320:330])} {_text(content[330:338])}")
    return _made(*digits) if len(digits) == 6 else None


def _date(content: bytes) -> datetime | None:
    return _iso(_text(content))


_PARSERS: tuple[tuple[str, Callable[[bytes], datetime | None]], ...] = (
    ("guan", _guano),
    ("ICMT", _comment),
    ("bext", _bext),
    ("ICRD", _date),
)
