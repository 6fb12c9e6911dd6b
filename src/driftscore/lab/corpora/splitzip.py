"""Read a zip that is split into several files (x.z01, x.z02, ..., x.zip), as FSD50K is.

Python's zipfile does not read these: an entry states its volume and its offset in that volume, and
may continue in the next one. Concatenated, the volumes are one file, in which an entry is at the
beginning of its volume plus its offset. Stored and deflated entries are read and checked.
"""

import io
import os
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from driftscore.errors import FormatError

Entry = tuple[str, int, Iterator[bytes]]
"""A name, the Unix mode (0 if unknown) and the content, empty for a folder."""

BLOCK = 1 << 20
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF


class _Volumes:
    """The open volumes of a split zip, read as one file."""

    def __init__(self, files: Sequence[BinaryIO]) -> None:
        self._files = files
        sizes = [os.fstat(file.fileno()).st_size for file in files]
        *self.starts, self.end = accumulate(sizes, initial=0)

    def read(self, position: int, count: int) -> bytes:
        """Return bytes across the volumes; nothing that they do not hold is asked for."""
        if position < 0 or position + count > self.end:
            raise FormatError("The split zip is damaged: it is incomplete")
        content = b""
        while len(content) < count:
            at = position + len(content)
            index = bisect_right(self.starts, at) - 1
            self._files[index].seek(at - self.starts[index])
            block = self._files[index].read(count - len(content))
            if not block:
                raise FormatError("The split zip is damaged: it is incomplete")
            content += block
        return content

    def unpack(self, layout: struct.Struct, position: int) -> tuple[Any, ...]:
        """Return the fields of a record."""
        return layout.unpack(self.read(position, layout.size))


def split_entries(paths: Sequence[Path]) -> Iterator[Entry]:
    """Yield the entries of a split zip from its volumes in order, the .zip last."""
    with ExitStack() as stack:
        volumes = _Volumes([stack.enter_context(open(path, "rb")) for path in paths])
        tail_start = max(0, volumes.end - _END.size - _FULL16)
        at = volumes.read(tail_start, volumes.end - tail_start).rfind(b"PK\x05\x06")
        if at < 0:
            raise FormatError("The split zip has no end record: its last file is not the .zip")
        _, _, volume, _, count, _, offset, _ = volumes.unpack(_END, tail_start + at)
        if _FULL16 in (volume, count) or offset == _FULL32:
            locator = volumes.unpack(_LOCATOR, tail_start + at - _LOCATOR.size)
            end64 = volumes.unpack(_END64, volumes.starts[locator[1]] + locator[2])
            volume, count, offset = end64[5], end64[7], end64[9]
        position = volumes.starts[volume] + offset
        for _ in range(count):
            head = volumes.unpack(_CENTRAL, position)
            signature, made_by, _, flags, method, _, _, crc, packed, size = head[:10]
            name_length, extra_length, comment_length, volume, _, attributes, offset = head[10:]
            if signature != b"PK\x01\x02":
                raise FormatError("The split zip is damaged: its directory is incomplete")
            raw = volumes.read(position + _CENTRAL.size, name_length + extra_length)
            position += _CENTRAL.size + len(raw) + comment_length
            name = raw[:name_length].decode("utf-8" if flags & 0x800 else "cp437")
            if flags & 1 or method not in (0, 8):
                raise FormatError(f"The split zip compresses {name} in a way that is not supported")
            extra, wide = raw[name_length:], io.BytesIO()
            while len(extra) >= 4:
                kind, length = struct.unpack_from("<2H", extra)
                if kind == 1:  # the numbers of zip64, in order: those that do not fit elsewhere
                    wide = io.BytesIO(extra[4 : 4 + length])
                extra = extra[4 + length :]
            size, packed, offset = (
                struct.unpack("<Q", wide.read(8))[0] if value == _FULL32 else value
                for value in (size, packed, offset)
            )
            if volume == _FULL16:
                (volume,) = struct.unpack("<I", wide.read(4))
            content = _content(
                volumes, volumes.starts[volume] + offset, packed, deflated=method == 8
            )
            mode = attributes >> 16 if made_by >> 8 == 3 else 0
            yield name, mode, _verified(content, name, crc, size)


def _content(volumes: _Volumes, position: int, packed: int, *, deflated: bool) -> Iterator[bytes]:
    """Yield the content of an entry, at most a block at a time."""
    head = volumes.unpack(_LOCAL, position)
    if head[0] != b"PK\x03\x04":
        raise FormatError("The split zip is damaged: an entry is not where it should be")
    start = position + _LOCAL.size + head[9] + head[10]
    unpacker = zlib.decompressobj(-15)
    for at in range(start, start + packed, BLOCK):
        block = volumes.read(at, min(BLOCK, start + packed - at))
        if not deflated:
            yield block
            continue
        while block and not unpacker.eof:
            yield unpacker.decompress(block, BLOCK)
            block = unpacker.unconsumed_tail
    while rest := unpacker.decompress(b"", BLOCK):
        yield rest


def _verified(content: Iterator[bytes], name: str, crc: int, size: int) -> Iterator[bytes]:
    """Yield the content of an entry; its size and its checksum are verified at the end."""
    actual_crc, actual_size = 0, 0
    for block in content:
        actual_crc, actual_size = zlib.crc32(block, actual_crc), actual_size + len(block)
        if actual_size > size:
            break
        yield block
    if (actual_crc, actual_size) != (crc, size):
        raise FormatError(f"The split zip is damaged: {name} fails its checksum")
