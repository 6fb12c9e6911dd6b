"""Archives for the tests of unpacking and downloading, good, split and unsafe."""

import hashlib
import io
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files: Mapping[str, bytes | tarfile.TarInfo]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            data = b"" if isinstance(content, tarfile.TarInfo) else content
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def tree(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def split(
    files: Mapping[str, bytes], at: int, method: int = zipfile.ZIP_DEFLATED
) -> tuple[bytes, bytes]:
    """Return a zip as two volumes, cut so that an entry runs over the border, as `zip -s` does.

    A marker stands before the first entry; entries name their volume and their place in it.
    """
    whole = bytearray(b"PK\x07\x08" + zipped(files, method))
    end = whole.rfind(b"PK\x05\x06")
    count, _, offset = struct.unpack_from("<HII", whole, end + 10)
    position = offset + 4
    for _ in range(count):
        lengths = struct.unpack_from("<3H", whole, position + 28)
        start = struct.unpack_from("<I", whole, position + 42)[0] + 4
        volume, place = (0, start) if start < at else (1, start - at)
        struct.pack_into("<H", whole, position + 34, volume)
        struct.pack_into("<I", whole, position + 42, place)
        position += 46 + sum(lengths)
    struct.pack_into("<HH", whole, end + 4, 1, 1)
    struct.pack_into("<I", whole, end + 16, offset + 4 - at)
    return bytes(whole[:at]), bytes(whole[at:])


FSD50K = {
    "FSD50K.eval_audio/1.wav": np.random.default_rng(1).bytes(200_000),
    "FSD50K.eval_audio/2.wav": b"tick" * 50_000,
    "FSD50K.eval_audio/3.wav": np.random.default_rng(3).bytes(90_000),
}
