"""Unpack an archive into a folder: all of it or nothing, and nothing outside the folder.

Zip, split zip (with its volumes in the same folder) and tar, compressed or not. Everything is
unpacked into a hidden folder first and moved into place when complete; if moving fails half-way,
unpacking again replaces what was moved. Absolute names, names with `..`, links and devices are
errors: no corpus needs them (tarfile's own filter would rename the first and allow some links). So
is content of more than `MAX_RATIO` times the archive's size.
"""

import errno
import glob
import re
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

from driftscore.errors import DriftscoreError, FormatError, WriteError
from driftscore.lab.corpora.splitzip import BLOCK, Entry, split_entries

MAX_RATIO = 100
FREE_BYTES = 100_000_000  # a small archive may unpack to this many bytes, whatever its own size
MAX_HEADER = 1 << 20  # bytes of a tar header that is a name or a list of properties
_OURS = ("downloads.json", ".downloads", ".unpacking")
"""What is ours in the same folder; no archive may replace it."""


def is_volume(name: str) -> bool:
    """Return whether a file is a part of a split zip other than its last."""
    return re.search(r"\.z\d\d$", name) is not None


def unpack(archive: Path, home: Path) -> list[Path]:
    """Unpack `archive` into `home`; return the files, relative to it."""
    stage = home / ".unpacking"
    damaged = f"{archive.name} is damaged or not an archive"
    try:
        shutil.rmtree(stage, ignore_errors=True)  # what a killed process left
        stage.mkdir(parents=True)
        names = _write(archive, stage)
        for name in names:
            above = [home / parent for parent in name.parents]
            if (home / name).is_dir() or any(f.exists() and not f.is_dir() for f in above):
                raise WriteError(
                    f"Cannot unpack {archive.name}: {home / name} is a folder, or in what is "
                    "a file; move it away"
                )
        for name in names:
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (stage / name).replace(home / name)
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
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return names


def _write(archive: Path, stage: Path) -> list[Path]:
    """Write the files of an archive into its stage; return their names, each once."""
    volumes = []
    if archive.suffix == ".zip":
        beside = archive.parent.glob(f"{glob.escape(archive.stem)}.z??")
        volumes = sorted(path for path in beside if is_volume(path.name))
        entries = split_entries([*volumes, archive]) if volumes else _zip_entries(archive)
    else:
        entries = _tar_entries(archive)
    space = FREE_BYTES + MAX_RATIO * sum(path.stat().st_size for path in (archive, *volumes))

    def unsafe(name: str, why: str) -> FormatError:
        return FormatError(
            f"{archive.name} is not safe to unpack: {name!r} {why}; nothing was written"
        )

    names = []
    for name, mode, content in entries:
        path = PurePosixPath(name.replace("\\", "/"))
        drive = re.match("[A-Za-z]:", name)
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise unsafe(name, "is a link or a device")
        if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name or drive:
            raise unsafe(name, "would be outside the folder")
        if path.parts[0].casefold() in _OURS:
            raise unsafe(name, "is the name of a file of driftscore")
        if name.endswith("/") or stat.S_ISDIR(mode):
            continue
        try:
            (stage / path).parent.mkdir(parents=True, exist_ok=True)
            with open(stage / path, "wb") as out:
                for block in content:
                    space -= len(block)
                    if space < 0:
                        why = f"makes it unpack to more than {MAX_RATIO} times its size"
                        raise unsafe(name, why)
                    out.write(block)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise unsafe(name, "is a file and a folder") from error
        names.append(Path(path))
    return list(dict.fromkeys(names))


def _zip_entries(archive: Path) -> Iterator[Entry]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            mode = info.external_attr >> 16 if info.create_system == 3 else 0
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise FormatError(
                    f"{archive.name} compresses {info.filename!r} in a way that is not supported"
                )
            with opened.open(info) as handle:
                # The other name is cut at a NUL.
                yield info.orig_filename, mode, iter(partial(handle.read, BLOCK), b"")


class _BoundedHeader(tarfile.TarInfo):
    """A header that does not ask for memory: long names and properties are read in one piece."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size < 0 or (not self.isreg() and self.size > MAX_HEADER):
            raise tarfile.HeaderError("a header asks for more than it may have")
        return super()._proc_member(archive)  # type: ignore[misc]


def _tar_entries(archive: Path) -> Iterator[Entry]:
    with tarfile.open(archive, "r:*", tarinfo=_BoundedHeader) as opened:
        for member in opened:
            handle = opened.extractfile(member) if member.isreg() else None
            kind = stat.S_IFREG if handle else stat.S_IFDIR if member.isdir() else stat.S_IFLNK
            yield member.name, kind, iter(partial(handle.read, BLOCK), b"") if handle else iter(())
        content = cast(IO[bytes], opened.fileobj)
        content.seek(opened.offset)
        if content.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
            raise FormatError(f"{archive.name} is damaged or not an archive: its end is missing")
        while content.read(BLOCK):
            pass  # at its end the checksum of a compressed file is compared
