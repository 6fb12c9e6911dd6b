"""Embeddings of windows that are done, on disk, so that an interrupted search can continue.

One file per recording and setting, in the folder `windows` of the cache; it is deleted when the
recording is done, or kept if embeddings are cached (`--cache`). A record is a flag (1, or 0 for a
silent window), the embedding as float32 and a checksum; reading stops at the first record that is
damaged or cut.
"""

import hashlib
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np

from driftscore.backbones.protocol import Backbone
from driftscore.files import cache_home, warn_of_cache
from driftscore.vectors import Vector

FOLDER = "windows"
_EVERY = 256  # records between two flushes
_OLD_S = 30 * 86_400


class WindowLog:
    """The windows of one recording that are done."""

    def __init__(self, path: Path, dim: int) -> None:
        self.path = path
        self._dim = dim
        self._file: IO[bytes] | None = None
        self._count = 0
        self.known: list[Vector | None] = []
        """Embeddings of the first windows, None for a silent one."""

    def read(self) -> "WindowLog":
        """Read what an interrupted run has left."""
        with suppress(OSError):
            self.known = list(_records(self.path.read_bytes(), self._dim))
        return self

    def add(self, row: Vector | None) -> None:
        """Append the window that follows; a disk that is full only ends the log."""
        if self._file is None:
            return
        values = np.zeros(self._dim, np.float32) if row is None else row
        body = bytes([row is not None]) + values.astype("<f4").tobytes()
        try:
            self._file.write(body + zlib.crc32(body).to_bytes(4, "little"))
            self._count += 1
            if self._count % _EVERY == 0:
                self._file.flush()
        except OSError as error:
            warn_of_cache("cache of windows", self.path, error)
            self._close()

    @contextmanager
    def writing(self, *, keep: bool = False) -> Iterator["WindowLog"]:
        """Keep the windows that are added; at the end of the block delete the file, or `keep` it.

        After an error it is kept in any case.
        """
        size = len(self.known) * record_size(self._dim)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _forget_old(self.path.parent)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            os.ftruncate(descriptor, size)
            self._file = os.fdopen(descriptor, "r+b")
            self._file.seek(size)
        except OSError as error:
            warn_of_cache("cache of windows", self.path, error)
        try:
            yield self
        except BaseException:
            self._close()
            raise
        self._close()
        if not keep:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


def record_size(dim: int) -> int:
    """Return the bytes of one record."""
    return 1 + 4 * dim + 4


def window_log(
    recording: object, backbone: Backbone, *, window_s: float, hop_s: float
) -> WindowLog | None:
    """Return the log of a file, None for what is not a file; a changed file has another log."""
    if not isinstance(recording, (str, os.PathLike)):
        return None
    try:
        found = os.stat(recording)  # noqa: PTH116 (a path or a text)
        where = os.path.abspath(recording)  # noqa: PTH100
        home = cache_home()
    except (OSError, ValueError):
        return None
    about = (where, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino,
             backbone.cache_key, window_s, hop_s)  # fmt: skip
    name = hashlib.sha256(repr(about).encode("utf-8", "surrogateescape")).hexdigest()
    return WindowLog(home / FOLDER / f"{name}.windows", backbone.dim)


def _records(content: bytes, dim: int) -> Iterator[Vector | None]:
    size = record_size(dim)
    for first in range(0, len(content) - size + 1, size):
        body, check = content[first : first + size - 4], content[first + size - 4 : first + size]
        if zlib.crc32(body).to_bytes(4, "little") != check:
            return
        yield np.frombuffer(body, "<f4", offset=1).astype(np.float32) if body[0] else None


def _forget_old(folder: Path) -> None:
    """Delete logs of searches that nobody continued for a month."""
    for path in folder.glob("*.windows"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _OLD_S:
                path.unlink()
