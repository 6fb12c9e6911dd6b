"""Unpack an archive into a folder: all of it or nothing, and nothing outside the folder.

Zip, split zip (with its volumes in the same folder) and tar, compressed or not. Everything is
unpacked into a hidden folder first and moved into place when complete. Absolute names, names with
`..`, links and devices are errors: no corpus needs them.
"""

import gzip
import lzma
import re
import secrets
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from driftscore.errors import FormatError, WriteError
from driftscore.lab.corpora.splitzip import BLOCK, open_split

Content = Iterator[bytes]
_OURS = ("downloads.json", ".downloads")
"""What `download` keeps in the same folder; no archive may replace it."""
_DAMAGED = (
    zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile,
    RuntimeError, ValueError, OverflowError, MemoryError,
)  # fmt: skip
_VOLUME = re.compile(r"\.z\d\d$")


def is_volume(name: str) -> bool:
    """Return whether a file is a part of a split zip other than its last."""
    return bool(_VOLUME.search(name))


def unpack(archive: Path, home: Path) -> list[Path]:
    """Unpack `archive` into `home`; return the files, relative to it."""
    stage = home / f".unpacking-{secrets.token_hex(6)}"
    try:
        stage.mkdir(parents=True)
        names = [
            _written(stage, _inside(archive, name), content) for name, content in _files(archive)
        ]
        for name in names:
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (stage / name).replace(home / name)
    except _DAMAGED as error:
        raise FormatError(f"{archive.name} is damaged or not an archive: {error}") from error
    except OSError as error:
        raise WriteError(f"Cannot unpack {archive.name}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return names


def _files(archive: Path) -> Iterable[tuple[str, Content]]:
    volumes = sorted(p for p in archive.parent.glob(f"{archive.stem}.z*") if is_volume(p.name))
    if archive.suffix == ".zip":
        return _split(archive, [*volumes, archive]) if volumes else _zipped(archive)
    return _tarred(archive)


def _zipped(archive: Path) -> Iterator[tuple[str, Content]]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            mode = info.external_attr >> 16 if info.create_system == 3 else 0
            _check_entry(archive, info.orig_filename, mode)  # the other name is cut at a NUL
            if not info.is_dir():
                with opened.open(info) as handle:
                    yield info.filename, _blocks(handle)


def _split(archive: Path, volumes: list[Path]) -> Iterator[tuple[str, Content]]:
    with open_split(volumes) as opened:
        for entry in opened.entries():
            _check_entry(archive, entry.name, entry.mode)
            if not entry.name.endswith("/"):
                yield entry.name, opened.read(entry)


def _tarred(archive: Path) -> Iterator[tuple[str, Content]]:
    with tarfile.open(archive, "r:*") as opened:  # as a stream a truncated file would be accepted
        for member in opened:
            if not (member.isreg() or member.isdir()):
                raise _unsafe(archive, member.name, "is a link or a device")
            handle = opened.extractfile(member)
            if handle is not None:
                yield member.name, _blocks(handle)
            else:
                _inside(archive, member.name)
        while opened.fileobj is not None and opened.fileobj.read(BLOCK):
            pass  # at its end the checksum of a compressed file is compared


def _check_entry(archive: Path, name: str, mode: int) -> None:
    kind = stat.S_IFMT(mode)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise _unsafe(archive, name, "is a link or a device")
    _inside(archive, name)


def _inside(archive: Path, name: str) -> Path:
    """Return a name as a path inside the folder; any other name is an error."""
    path = PurePosixPath(name.replace("\\", "/"))
    drive = re.match("[A-Za-z]:", name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name or drive:
        raise _unsafe(archive, name, "would be outside the folder")
    if path.parts[0] in _OURS:
        raise _unsafe(archive, name, "is the name of a file of driftscore")
    return Path(*path.parts)


def _unsafe(archive: Path, name: str, why: str) -> FormatError:
    return FormatError(f"{archive.name} is not safe to unpack: {name!r} {why}; nothing was written")


def _blocks(handle: IO[bytes]) -> Content:
    while block := handle.read(BLOCK):
        yield block


def _written(stage: Path, name: Path, content: Content) -> Path:
    (stage / name).parent.mkdir(parents=True, exist_ok=True)
    with open(stage / name, "wb") as out:
        for block in content:
            out.write(block)
    return name
