"""Read a zip that is split into several files (x.z01, x.z02, ..., x.zip), as FSD50K is.

Python's zipfile does not read these: an entry states its volume and its offset in that volume, and
may continue in the next one. Concatenated, the volumes are one file, in which an entry is at the
beginning of its volume plus its offset. Stored and deflated entries are read and checked.
"""

import io
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

from driftscore.errors import FormatError

BLOCK = 1 << 20
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF


@dataclass(frozen=True)
class SplitEntry:
    """One file of a split zip: where its data is and how it is compressed."""

    name: str
    mode: int
    """Unix file mode, 0 if the zip was not made on Unix."""
    method: int
    crc: int
    packed: int
    size: int
    position: int


@contextmanager
def open_split(volumes: Sequence[Path]) -> Iterator["SplitZip"]:
    """Open a split zip from its volumes in order, the .zip last."""
    with ExitStack() as stack:
        files: list[BinaryIO] = [stack.enter_context(open(volume, "rb")) for volume in volumes]
        yield SplitZip(files, [volume.stat().st_size for volume in volumes])


class SplitZip:
    """The open volumes of a split zip and their sizes."""

    def __init__(self, files: list[BinaryIO], sizes: list[int]) -> None:
        self._files = files
        self._starts = [0, *accumulate(sizes)][:-1]
        self._end = sum(sizes)

    def entries(self) -> list[SplitEntry]:
        """Return all entries from the central directory."""
        try:
            count, position = self._directory()
            found = []
            for _ in range(count):
                entry, position = self._entry(position)
                found.append(entry)
        except (struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
            raise FormatError(f"The split zip is damaged: {error}") from error
        return found

    def read(self, entry: SplitEntry) -> Iterator[bytes]:
        """Yield the content of an entry in blocks; its checksum is verified at the end."""
        head = _LOCAL.unpack(self._bytes(entry.position, _LOCAL.size))
        if head[0] != b"PK\x03\x04":
            raise FormatError(f"The split zip is damaged: {entry.name} is not where it should be")
        start = entry.position + _LOCAL.size + head[9] + head[10]
        packed = self._packed(start, entry.packed)
        crc, size = 0, 0
        for block in _unpacked(packed, entry.name) if entry.method == 8 else packed:
            crc, size = zlib.crc32(block, crc), size + len(block)
            if size > entry.size:
                break
            yield block
        if (crc, size) != (entry.crc, entry.size):
            raise FormatError(f"The split zip is damaged: {entry.name} fails its checksum")

    def _packed(self, start: int, length: int) -> Iterator[bytes]:
        """Yield the data of an entry as it is stored."""
        for first in range(start, start + length, BLOCK):
            yield self._bytes(first, min(BLOCK, start + length - first))

    def _directory(self) -> tuple[int, int]:
        """Return the number of entries and the position of the first one's description."""
        tail_start = max(0, self._end - _END.size - _FULL16)
        tail = self._bytes(tail_start, self._end - tail_start)
        at = tail.rfind(b"PK\x05\x06")
        if at < 0:
            raise FormatError("The split zip has no end record: its last file is not the .zip")
        _, _, volume, _, count, _, offset, _ = _END.unpack_from(tail, at)
        if _FULL16 in (volume, count) or offset == _FULL32:
            locator = _LOCATOR.unpack(self._bytes(tail_start + at - _LOCATOR.size, _LOCATOR.size))
            end64 = _END64.unpack(self._bytes(self._starts[locator[1]] + locator[2], _END64.size))
            volume, count, offset = end64[5], end64[7], end64[9]
        return count, self._starts[volume] + offset

    def _entry(self, position: int) -> tuple[SplitEntry, int]:
        head = _CENTRAL.unpack(self._bytes(position, _CENTRAL.size))
        signature, made_by, _, flags, method, _, _, crc, packed, size = head[:10]
        name_length, extra_length, comment_length, volume, _, attributes, offset = head[10:]
        if signature != b"PK\x01\x02":
            raise FormatError("The split zip is damaged: its directory is incomplete")
        raw = self._bytes(position + _CENTRAL.size, name_length + extra_length)
        name = raw[:name_length].decode("utf-8" if flags & 0x800 else "cp437")
        if flags & 1 or method not in (0, 8):
            raise FormatError(f"The split zip compresses {name} in a way that is not supported")
        extra = _WideNumbers(raw[name_length:])
        size = extra.take(8) if size == _FULL32 else size
        packed = extra.take(8) if packed == _FULL32 else packed
        offset = extra.take(8) if offset == _FULL32 else offset
        volume = extra.take(4) if volume == _FULL16 else volume
        mode = attributes >> 16 if made_by >> 8 == 3 else 0
        entry = SplitEntry(name, mode, method, crc, packed, size, self._starts[volume] + offset)
        return entry, position + _CENTRAL.size + len(raw) + comment_length

    def _bytes(self, position: int, count: int) -> bytes:
        """Read across the volumes; nothing that they do not hold is asked for."""
        if position < 0 or position + count > self._end:
            raise FormatError("The split zip is damaged: it is incomplete")
        found = b""
        while len(found) < count:
            at = position + len(found)
            index = bisect_right(self._starts, at) - 1
            self._files[index].seek(at - self._starts[index])
            block = self._files[index].read(count - len(found))
            if not block:
                raise FormatError("The split zip is damaged: it is incomplete")
            found += block
        return found


class _WideNumbers:
    """The 64-bit numbers of the zip64 field of an entry, read in order."""

    def __init__(self, extra: bytes) -> None:
        self._field = io.BytesIO()
        while len(extra) >= 4:
            kind, length = struct.unpack_from("<2H", extra)
            if kind == 1:
                self._field = io.BytesIO(extra[4 : 4 + length])
            extra = extra[4 + length :]

    def take(self, size: int) -> int:
        raw = self._field.read(size)
        if len(raw) < size:
            raise FormatError("The split zip is damaged: a 64-bit size or offset is missing")
        return int.from_bytes(raw, "little")


def _unpacked(packed: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield deflated data unpacked, at most a block at a time."""
    unpacker = zlib.decompressobj(-15)
    try:
        for block in packed:
            while block and not unpacker.eof:
                yield unpacker.decompress(block, BLOCK)
                block = unpacker.unconsumed_tail
        while rest := unpacker.decompress(b"", BLOCK):
            yield rest
    except zlib.error as error:
        raise FormatError(f"The split zip is damaged: {name}: {error}") from error
