"""Audio embeddings on disk by (model, content): new labels for an archive read no audio.

One SQLite file in the cache folder, safe for several processes at once, with two tables:

    audio   (model, sha256 of the content)  ->  the windows' times and embeddings
    files   path or URL  ->  its stamp (size and time of change) and the content's sha256

The second table works like git's index: a file whose stamp has not changed is not read again. A
file that changed within the last two seconds may change again under the same stamp, so its stamp is
not trusted and its content is read. Samples (`Audio`) are stored by their digest; open files and
errors are not stored. It is a cache: if it cannot be opened or is damaged, work continues without
it and a warning says so.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Audio, Recording
from driftscore.files import cache_home, is_url, local_path, open_url, url_stamp, warn_of_cache
from driftscore.vectors import Matrix

WindowEmbeddings = tuple[NDArray[np.float64], Matrix]
"""The windows of a recording: (n, 2) starts and ends in seconds, (n, d) unit rows."""

BLOCK = 2048
"""How many sources are best looked up, or kept, at once."""
_MOST_BYTES = 64_000_000
"""What is fetched at once at most; long recordings beyond it are fetched one by one."""
_KEYS = 512  # keys a query: old builds of SQLite take 999
_SETTLED_NS = 2_000_000_000


class Found(NamedTuple):
    """What is known about a recording: its place, its content, and its embeddings."""

    place: str = ""
    """The absolute path or URL; empty for what is not stored: an array, a missing file."""
    stamp: str = ""
    settled: bool = False
    """Whether any change of the content would change the stamp."""
    digest: bytes = b""
    """The sha256 of the content; empty while it is not known."""
    entry: WindowEmbeddings | None = None


class AudioCache:
    """The embeddings of one model by content, in one SQLite file; threads may share it."""

    def __init__(self, model: str, path: str | Path | None = None) -> None:
        self.model = model
        self.path = Path(path) if path else cache_home() / "audio.sqlite"
        self._lock = Lock()
        self._db: sqlite3.Connection | None = None
        self._lost = False

    def look_up(self, recordings: Sequence[Recording]) -> list[Found]:
        """Return what is known about each recording without reading any of them.

        Large embeddings are fetched up to a limit only; `read` fetches the rest.
        """
        now, here = time.time_ns(), os.getcwd()  # noqa: PTH109
        placed = [_placed(recording, now, here) for recording in recordings]
        rows = self._select(
            "SELECT path, stamp, sha256 FROM files WHERE path IN", (), [one.place for one in placed]
        )
        known = {(path, stamp): digest for path, stamp, digest in rows}
        digests = [known.get(one[:2], b"") if one.settled else b"" for one in placed]
        entries = self._entries(digests)
        return [
            Found(*one[:3], digest, entries.get(digest))
            for one, digest in zip(placed, digests, strict=True)
        ]

    def read(self, recording: Recording, found: Found) -> Found:
        """Return `found` with the digest of its content, and the embeddings of that."""
        if found.entry is not None or not (found.place or isinstance(recording, Audio)):
            return found
        digest = found.digest or _digest(recording)
        return found._replace(digest=digest, entry=self._entries([digest]).get(digest))

    def put(self, known: Iterable[Found]) -> None:
        """Store the embeddings of contents, and which files have them, in one transaction."""
        with_digest = [one for one in known if one.digest]
        audio = [
            (self.model, one.digest, one.entry[0].astype("<f8").tobytes(),
             one.entry[1].astype("<f4").tobytes())
            for one in with_digest
            if one.entry is not None
        ]  # fmt: skip
        files = [(one.place, one.stamp, one.digest) for one in with_digest if one.settled]
        with self._lock:
            try:
                if db := self._open():
                    with db:
                        db.executemany("INSERT OR IGNORE INTO audio VALUES (?, ?, ?, ?)", audio)
                        db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", files)
            except (sqlite3.Error, OSError) as error:
                self._lose(error)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._db:
                self._db.close()
            self._db = None

    def _entries(self, digests: Sequence[bytes]) -> dict[bytes, WindowEmbeddings]:
        rows = self._select(
            "SELECT sha256, spans, rows FROM audio WHERE model = ? AND sha256 IN",
            (self.model,),
            [digest for digest in digests if digest],
        )
        return {digest: _entry(spans, vectors) for digest, spans, vectors in rows}

    def _select(
        self, query: str, before: tuple[str, ...], keys: Sequence[str | bytes]
    ) -> list[tuple[Any, ...]]:
        """Return the rows whose key is one of `keys`, up to a limit of bytes."""
        rows: list[tuple[Any, ...]] = []
        left = _MOST_BYTES
        with self._lock:
            try:
                for first in range(0, len(keys), _KEYS):
                    block = keys[first : first + _KEYS]
                    marks = ", ".join("?" * len(block))
                    if left > 0 and (db := self._open()):
                        for row in db.execute(f"{query} ({marks})", (*before, *block)):
                            rows.append(row)
                            left -= len(row[-1])
                            if left <= 0:
                                break
            except (sqlite3.Error, OSError) as error:
                self._lose(error)
        return rows

    def _open(self) -> sqlite3.Connection | None:
        """Return the open file, None once it has failed."""
        if self._db is None and not self._lost:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=60, check_same_thread=False)
            self._db.execute("PRAGMA page_size = 16384")  # of a new file: a row is 2 kB
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS audio (model TEXT, sha256 BLOB, spans BLOB, "
                "rows BLOB, PRIMARY KEY (model, sha256))"
            )
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, stamp TEXT, "
                "sha256 BLOB) WITHOUT ROWID"
            )
        return self._db

    def _lose(self, error: Exception) -> None:
        """Continue without the file, with one warning."""
        if not self._lost:
            warn_of_cache("audio", self.path, error)
        self._lost = True
        if self._db:
            self._db.close()
        self._db = None


def unchanged(recording: Recording, found: Found) -> bool:
    """Return whether a recording has not changed since it was looked up."""
    now = _placed(recording, time.time_ns(), os.getcwd())  # noqa: PTH109
    return (now.place, now.stamp) == (found.place, found.stamp)


def is_local_file(recording: Recording) -> bool:
    """Return whether a recording is a file of this machine, which is quick to look up."""
    return isinstance(recording, (str, os.PathLike)) and not is_url(recording)


def _placed(recording: Recording, now_ns: int, here: str) -> Found:
    """Return the place and the stamp of a recording; nothing for what cannot be stored."""
    try:
        source = recording
        if is_url(source):
            if (local := local_path(source)) is None:
                stamp, settled = url_stamp(source)
                return Found(source, stamp, settled)
            source = local
        if not isinstance(source, (str, os.PathLike)):
            return Found()
        # Not pathlib: it took longer than the rest of labelling 100,000 cached files.
        folder, sign, name = os.fspath(source).rpartition(os.sep)
        path = f"{_absolute(folder + sign, here)}{os.sep}{name}"
        about = os.stat(path)  # noqa: PTH116
    except Exception:  # whatever a remote store raises: reading it reports the error in its own row
        return Found()
    settled = now_ns - about.st_mtime_ns > _SETTLED_NS
    return Found(path, f"{about.st_size} {about.st_mtime_ns}", settled)


@lru_cache(maxsize=64)
def _absolute(folder: str, here: str) -> str:
    return os.path.normpath(os.path.join(here, folder))  # noqa: PTH118


def _digest(source: object) -> bytes:
    """Return the sha256 of the content of a file or URL; nothing if it cannot be read."""
    if isinstance(source, Audio):
        samples = np.ascontiguousarray(source.samples, "<f4")
        return hashlib.sha256(f"samples at {source.rate} Hz".encode() + samples.tobytes()).digest()
    try:
        with open_url(source) if is_url(source) else open(cast(str, source), "rb") as handle:
            return hashlib.file_digest(cast(Any, handle), "sha256").digest()
    except Exception:  # as above
        return b""


def _entry(spans: bytes, rows: bytes) -> WindowEmbeddings:
    times = np.frombuffer(spans, "<f8").reshape(-1, 2)
    return times, np.frombuffer(rows, "<f4").reshape(len(times), -1)
