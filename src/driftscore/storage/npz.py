"""Read npz and npy files that may come from anyone: never a pickle, never more than the file holds.

Before an array is read its header is compared with the size of the file, so that a header of a few
bytes cannot ask for terabytes. A zip may unpack to `_MAX_RATIO` times its size; more is refused.
"""

import math
import zipfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from driftscore.errors import FormatError, UsageError
from driftscore.storage.files import reading, regular_size

FileArray = NDArray[np.generic]

_MAX_MEMBERS = 1000
_MAX_RATIO = 100
_FREE_BYTES = 1_000_000  # a small file may unpack to this many, whatever its own size
_KINDS = "fiubUS"  # floats, integers, truth values and texts


def read_npz(path: Path, names: Collection[str], *, what: str) -> dict[str, FileArray]:
    """Return those of the arrays `names` that an npz has; `what` names the file in an error."""
    size = regular_size(path, what)
    with reading(path, what, advice="make it again, or copy it again"):
        with open(path, "rb") as file:
            if file.read(6) == npy.MAGIC_PREFIX:
                raise FormatError(
                    f"{path} is one bare array (npy), not a {what}; save named arrays with np.savez"
                )
        with zipfile.ZipFile(path) as archive:
            members = _members(archive, size, path)
            arrays: dict[str, FileArray] = {}
            for name in names:
                if (member := members.get(name)) is None:
                    continue
                stored = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
                if member.flag_bits & 0x1 or member.compress_type not in stored:
                    raise ValueError(
                        f"the array {member.filename!r} is encrypted, or has an unsupported "
                        "compression; use np.savez"
                    )
                with archive.open(member) as content:
                    _check_header(content, member.file_size, member.filename)
                with archive.open(member) as content:
                    arrays[name] = npy.read_array(content, allow_pickle=False)
                    content.read(1)  # at its end the checksum of the member is compared
            return arrays


def array_names(path: Path, *, what: str) -> list[str]:
    """Return the names of the arrays in an npz."""
    size = regular_size(path, what)
    with reading(path, what), zipfile.ZipFile(path) as archive:
        return sorted(_members(archive, size, path))


def read_npy(path: Path, *, what: str) -> FileArray:
    """Return the array of an npy file."""
    size = regular_size(path, what)
    with reading(path, what, advice="make it again, or copy it again"), open(path, "rb") as file:
        _check_header(file, size, path.name)
        file.seek(0)
        return npy.read_array(file, allow_pickle=False)


def npy_blocks(
    path: Path, size: int, *, what: str
) -> tuple[int, Callable[[], Iterator[FileArray]]]:
    """Return the number of rows of a matrix in an npy file, and what yields `size` rows at a time.

    A block is read, not mapped: pages of a map count as memory of the process until they are freed.
    """
    bytes_of_file = regular_size(path, what)
    with reading(path, what, advice="make it again, or copy it again"), open(path, "rb") as file:
        shape, fortran_order, dtype = _check_header(file, bytes_of_file, path.name)
        start = file.tell()
    if len(shape) != 2:
        raise FormatError(f"{path} has shape {shape}; one row per clip is wanted")

    def blocks() -> Iterator[FileArray]:
        if fortran_order:  # its rows are spread over the file
            rows = read_npy(path, what=what)
            yield from (rows[first : first + size] for first in range(0, len(rows), size))
            return
        with reading(path, what), open(path, "rb") as content:
            content.seek(start)
            for first in range(0, shape[0], size):
                count = min(size, shape[0] - first)
                yield np.fromfile(content, dtype, count * shape[1]).reshape(count, shape[1])

    return shape[0], blocks


def texts_of(array: FileArray, *, what: str) -> tuple[str, ...]:
    """Return the items of an array of texts; numbers are an error."""
    rows = np.atleast_1d(array)
    if rows.ndim != 1 or rows.dtype.kind not in "US":
        raise UsageError(
            f"{what} must be a list of texts, not an array of {rows.dtype} of shape {rows.shape}"
        )
    if rows.dtype.kind == "S":
        return tuple(item.decode("utf-8") for item in rows.tolist())
    return tuple(rows.tolist())


def text_of(array: FileArray, *, what: str) -> str:
    """Return the text in an array of one text."""
    if array.size != 1:
        raise UsageError(f"{what} must be one text, not an array of shape {array.shape}")
    return texts_of(array.reshape(1), what=what)[0]


def _members(archive: zipfile.ZipFile, size: int, path: Path) -> dict[str, zipfile.ZipInfo]:
    """Return the arrays of an npz by name, if all of them together can be read."""
    listed = archive.infolist()
    if len(listed) > _MAX_MEMBERS:
        raise FormatError(f"{path} has {len(listed):,} arrays, more than {_MAX_MEMBERS}")
    members: dict[str, zipfile.ZipInfo] = {}
    for member in listed:
        name = member.filename.removesuffix(".npy")
        if name in members:
            raise FormatError(f"{path} has the array {name!r} twice")
        members[name] = member
    total = sum(member.file_size for member in listed)
    if total > max(_FREE_BYTES, _MAX_RATIO * size):
        raise FormatError(
            f"{path} has {size:,} bytes and would unpack to {total:,}; refused, since no file of "
            "embeddings can be compressed that much"
        )
    return members


def _check_header(
    file: IO[bytes], size: int, name: str
) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Compare the shape and type in the header of an array with its bytes; return the header."""
    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"the array {name!r} has the unsupported npy version {version}")
    shape, fortran_order, dtype = readers[version](file)
    items = math.prod(int(length) for length in shape)
    if dtype.hasobject:
        raise ValueError(f"the array {name!r} needs pickle, which is never read")
    if dtype.kind not in _KINDS or (dtype.itemsize == 0 and items):
        raise ValueError(f"the array {name!r} has the type {dtype}, not numbers or texts")
    if any(length < 0 for length in shape):
        raise ValueError(f"the array {name!r} has the shape {shape}")
    expected, actual = items * dtype.itemsize, size - file.tell()
    if expected != actual:
        raise ValueError(
            f"the array {name!r} of shape {shape} and type {dtype} needs {expected:,} bytes, "
            f"but has {actual:,}"
        )
    return shape, fortran_order, dtype
