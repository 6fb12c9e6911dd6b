"""Unpack an archive into a folder: all of it or nothing, and nothing outside the folder.

Zip, split zip (with its volumes in the same folder) and tar, compressed or not. Everything is
unpacked into a hidden folder first and moved into place when complete; if moving fails half-way,
unpacking again replaces what was moved. Absolute names, names with `..`, links and devices are
errors: no corpus needs them. So is content of more than `_MOST_RATIO` times the archive's size.
"""

import bz2
import errno
import gzip
import io
import lzma
import os
import re
import secrets
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, cast

from driftscore.errors import DriftscoreError, FormatError, WriteError
from driftscore.lab.corpora.splitzip import BLOCK, open_split

Content = Iterator[bytes]
_OURS = ("downloads.json", ".downloads")
"""What `download` keeps in the same folder; no archive may replace it."""
_STAGE = ".unpacking"
_MOST_RATIO = 100
_ALWAYS = 100_000_000  # a small archive may unpack to this many bytes, whatever its own size
_VOLUME = re.compile(r"\.z\d\d$")


def is_volume(name: str) -> bool:
    """Return whether a file is a part of a split zip other than its last."""
    return bool(_VOLUME.search(name))


def unpack(archive: Path, home: Path) -> list[Path]:
    """Unpack `archive` into `home`; return the files, relative to it."""
    with _boundary(archive), _stage(home) as stage:
        writer = _Writer(archive, stage, _room(archive))
        names = list(dict.fromkeys(writer.write(*file) for file in _files(archive)))
        for name in names:
            _check_place(archive, home, name)
        for name in names:
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (stage / name).replace(home / name)
    return names


@contextmanager
def _boundary(archive: Path) -> Iterator[None]:
    """Turn what readers of damaged archives raise into one `FormatError`."""
    damaged = f"{archive.name} is damaged or not an archive"
    try:
        yield
    except DriftscoreError:
        raise
    except MemoryError as error:
        raise FormatError(f"{damaged}: it needs more memory than there is") from error
    except OSError as error:
        # bz2 and gzip have errors without a number; a position before the file is "invalid".
        if error.errno in (None, errno.EINVAL):
            raise FormatError(f"{damaged}: {error}") from error
        raise WriteError(f"Cannot unpack {archive.name}: {error.strerror or error}") from error
    except Exception as error:  # zipfile, tarfile and lzma raise many kinds on damaged files
        raise FormatError(f"{damaged}: {str(error) or type(error).__name__}") from error


@contextmanager
def _stage(home: Path) -> Iterator[Path]:
    """Yield a new hidden folder in `home`; folders that killed processes left are deleted."""
    stage = home / f"{_STAGE}-{os.getpid()}-{secrets.token_hex(6)}"
    stage.mkdir(parents=True)
    for other in home.glob(f"{_STAGE}-*"):
        if not _is_running(other.name.split("-")[1]):
            shutil.rmtree(other, ignore_errors=True)
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _is_running(pid: str) -> bool:
    if os.name == "nt" or not pid.isdigit():  # on Windows signal 0 would end the process
        return True
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _room(archive: Path) -> int:
    """Return how many bytes an archive may unpack to."""
    size = sum(volume.stat().st_size for volume in (archive, *_volumes(archive)))
    return _ALWAYS + _MOST_RATIO * size


class _Writer:
    """Writes the files of an archive into its stage, up to so many bytes in all."""

    def __init__(self, archive: Path, stage: Path, room: int) -> None:
        self.archive, self.stage, self.room = archive, stage, room

    def write(self, name: str, content: Content) -> Path:
        """Write one file; return its path in the stage."""
        path = _inside(self.archive, name)
        try:
            (self.stage / path).parent.mkdir(parents=True, exist_ok=True)
            with open(self.stage / path, "wb") as out:
                for block in content:
                    self.room -= len(block)
                    if self.room < 0:
                        why = f"makes it unpack to more than {_MOST_RATIO} times its size"
                        raise _unsafe(self.archive, name, why)
                    out.write(block)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise _unsafe(self.archive, name, "is a file and a folder") from error
        return path


def _check_place(archive: Path, home: Path, name: Path) -> None:
    """Refuse to replace a folder by a file, before anything is moved."""
    folders = [home / parent for parent in name.parents]
    if (home / name).is_dir() or any(f.exists() and not f.is_dir() for f in folders):
        raise WriteError(
            f"Cannot unpack {archive.name}: {home / name} is a folder, or in what is a file; "
            "move it away"
        )


def _volumes(archive: Path) -> list[Path]:
    """Return the parts of a split zip before its last."""
    stem = f"{archive.stem}.z"
    beside = archive.parent.iterdir() if archive.suffix == ".zip" else ()
    return sorted(p for p in beside if p.name.startswith(stem) and is_volume(p.name))


def _files(archive: Path) -> Iterable[tuple[str, Content]]:
    if archive.suffix == ".zip":
        volumes = _volumes(archive)
        return _split(archive, [*volumes, archive]) if volumes else _zipped(archive)
    return _tarred(archive)


def _zipped(archive: Path) -> Iterator[tuple[str, Content]]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            mode = info.external_attr >> 16 if info.create_system == 3 else 0
            _check_entry(archive, info.orig_filename, mode)  # the other name is cut at a NUL
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise FormatError(
                    f"{archive.name} compresses {info.filename!r} in a way that is not supported"
                )
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
    with _tar_content(archive) as content, tarfile.open(fileobj=content, mode="r:") as opened:
        for member in opened:
            if not (member.isreg() or member.isdir()):
                raise _unsafe(archive, member.name, "is a link or a device")
            handle = opened.extractfile(member)
            if handle is not None:
                yield member.name, _blocks(handle)
            else:
                _inside(archive, member.name)
        content.seek(opened.offset)
        if content.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
            raise FormatError(f"{archive.name} is damaged or not an archive: its end is missing")
        while content.read(BLOCK):
            pass  # at its end the checksum of a compressed file is compared


@contextmanager
def _tar_content(archive: Path) -> Iterator["_SmallReads"]:
    """Open a tar, compressed or not."""
    with open(archive, "rb") as file, ExitStack() as stack:
        first, content = file.read(6), cast(IO[bytes], file)
        file.seek(0)
        if first.startswith(b"\x1f\x8b"):
            content = cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=file)))
        elif first.startswith(b"BZh"):
            content = cast(IO[bytes], stack.enter_context(bz2.BZ2File(file)))
        elif first.startswith(b"\xfd7zXZ\0"):
            content = cast(IO[bytes], stack.enter_context(lzma.LZMAFile(file)))
        yield _SmallReads(content)


class _SmallReads(io.BufferedIOBase):
    """A file that is read in small pieces: a header of a tar may ask for all of it at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes, never more than a block."""
        if size is None or not 0 <= size <= BLOCK:
            raise FormatError("The tar is damaged: a header asks for more than it may have")
        return self._file.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        """Go to a position."""
        return self._file.seek(position, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()


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
    if path.parts[0].casefold() in _OURS or path.parts[0].startswith(_STAGE):
        raise _unsafe(archive, name, "is the name of a file of driftscore")
    return Path(*path.parts)


def _unsafe(archive: Path, name: str, why: str) -> FormatError:
    return FormatError(f"{archive.name} is not safe to unpack: {name!r} {why}; nothing was written")


def _blocks(handle: IO[bytes]) -> Content:
    while block := handle.read(BLOCK):
        yield block
