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
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from driftscore.backbones.protocol import Backbone
from driftscore.backbones.vectors import Vector
from driftscore.storage.files import cache_home, warn_of_cache

FOLDER = "windows"
_FLUSH_WINDOWS = 256
_MAX_AGE_S = 30 * 86_400


@dataclass(eq=False)
class WindowLog:
    """The windows of one recording that are done."""

    path: Path
    dim: int
    done: list[Vector | None] = field(default_factory=list)
    """Embeddings of the first windows, None for a silent one."""
    _file: IO[bytes] | None = None

    def read(self) -> "WindowLog":
        """Read what an interrupted run has left."""
        content, size = b"", record_size(self.dim)
        with suppress(OSError):
            content = self.path.read_bytes()
        for first in range(0, len(content) - size + 1, size):
            body, check = content[first : first + size - 4], content[first + size - 4 :][:4]
            if zlib.crc32(body).to_bytes(4, "little") != check:
                break
            row = np.frombuffer(body, "<f4", offset=1).astype(np.float32)
            self.done.append(row if body[0] else None)
        return self

    def add(self, row: Vector | None) -> None:
        """Append the window that follows; a disk that is full only ends the log."""
        if self._file is None:
            return
        values = np.zeros(self.dim, np.float32) if row is None else row
        body = bytes([row is not None]) + values.astype("<f4").tobytes()
        try:
            self._file.write(body + zlib.crc32(body).to_bytes(4, "little"))
        except OSError as error:
            warn_of_cache("window", self.path, error)
            self._close()

    @contextmanager
    def writing(self, *, keep: bool = False) -> Iterator["WindowLog"]:
        """Keep the windows that are added; at the end of the block delete the file, or `keep` it.

        After an error it is kept in any case.
        """
        size = len(self.done) * record_size(self.dim)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            for log in self.path.parent.glob("*.windows"):  # of searches that nobody continued
                with suppress(OSError):
                    if time.time() - log.stat().st_mtime > _MAX_AGE_S:
                        log.unlink()
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            os.ftruncate(descriptor, size)
            buffered = _FLUSH_WINDOWS * record_size(self.dim)
            self._file = os.fdopen(descriptor, "r+b", buffering=buffered)
            self._file.seek(size)
        except OSError as error:
            if not self.done:  # else it is read, on a disk that is mounted read-only
                warn_of_cache("window", self.path, error)
        try:
            yield self
        finally:
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
        stat = os.stat(recording)  # noqa: PTH116 (a path or a text)
        about = (os.path.abspath(recording), stat.st_size, stat.st_mtime_ns,  # noqa: PTH100
                 stat.st_ctime_ns, stat.st_ino, backbone.cache_key, window_s, hop_s)  # fmt: skip
    except (OSError, ValueError):
        return None
    name = hashlib.sha256(repr(about).encode("utf-8", "surrogateescape")).hexdigest()
    return WindowLog(cache_home() / FOLDER / f"{name}.windows", backbone.dim)
