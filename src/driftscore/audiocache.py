"""Audio embeddings on disk by (model, content): new labels for an archive read no audio.

One SQLite file in the cache folder, safe for several processes at once, with two tables:

    audio_2   (model, sha256 of the content)  ->  the windows' times and embeddings
    files_2   path or URL  ->  its stamp and the content's sha256

The second table works like git's index: a file whose stamp has not changed is not read again. The
stamp of a file is its size, the times of its last modification (mtime) and of its last change of
any kind (ctime), and its inode. `cp -p`, `rsync -t` and `touch -r` set the mtime, but no program
sets the ctime. A file that was modified within the last two seconds may change again under the same
stamp, so its stamp is not trusted and its content is read. What remains: a file that is given an
old mtime, embedded, and overwritten with another content of the same size and the same old mtime,
all within one tick of the file system's clock (some milliseconds; two seconds on FAT); a clock that
was set back to the same nanosecond; file systems that do not keep a ctime, as on Windows; and
remote stores, whose own marks (ETag, time of change) are trusted.

Samples (`Audio`) are stored by their digest; open files and errors are not stored. Each row has a
checksum; one that does not fit is computed again. It is a cache: if it cannot be opened, is damaged
or stays locked for two seconds, work continues without it and a warning says so. Tables of earlier
versions had no checksum and are not used.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, cast
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Audio, Recording
from driftscore.databases import is_usable, open_database, row_checksum
from driftscore.files import cache_home, is_url, local_path, open_url, url_stamp, warn_of_cache
from driftscore.vectors import Matrix, unit_mean

WindowEmbeddings = tuple[NDArray[np.float64], Matrix]
"""The windows of a recording: (n, 2) starts and ends in seconds, (n, d) unit rows."""
Packed = tuple[bytes, bytes]
"""The same as it is stored: little-endian float64 and float32."""

BLOCK = 2048
"""How many sources are best looked up, or kept, at once."""
_MOST_BYTES = 64_000_000
"""What is fetched at once at most; long recordings beyond it are fetched one by one."""
_SETTLED_NS = 2_000_000_000
_FLOAT = np.dtype("<f4")
_UNKNOWN = (b"", b"", None)
_ONE_WINDOW = 16
"""Bytes of the start and the end of one window."""
_SCHEMA = (
    "PRAGMA page_size = 16384",  # of a new file: a row is 2 kB
    "PRAGMA cache_size = -32000",  # kB: the index of 100,000 recordings stays in memory
    "CREATE TABLE IF NOT EXISTS audio_2 (model TEXT, sha256 BLOB, spans BLOB, rows BLOB, "
    "checksum INTEGER, PRIMARY KEY (model, sha256))",
    "CREATE TABLE IF NOT EXISTS files_2 (path TEXT PRIMARY KEY, stamp TEXT, sha256 BLOB, "
    "checksum INTEGER) WITHOUT ROWID",
)
_AUDIO = "SELECT sha256, checksum, spans, rows FROM audio_2 WHERE model = ? AND sha256 IN"
_FILES = "SELECT path, stamp, sha256, checksum, NULL, NULL, NULL FROM files_2 WHERE path IN"
_FILES_AND_AUDIO = (  # one query for both: in the order of the paths rows are side by side
    "SELECT path, stamp, files_2.sha256, files_2.checksum, audio_2.checksum, spans, rows "
    "FROM files_2 LEFT JOIN audio_2 ON model = ? AND audio_2.sha256 = files_2.sha256 WHERE path IN"
)


class Found(NamedTuple):
    """What is known about a recording: its place, its content, and its embeddings."""

    place: str = ""
    """The absolute path or URL; empty for what is not stored: an array, a missing file."""
    stamp: str = ""
    settled: bool = False
    """Whether any change of the content would change the stamp."""
    digest: bytes = b""
    """The sha256 of the content; empty while it is not known."""
    entry: Packed | None = None


class AudioCache:
    """The embeddings of one model by content, in one SQLite file; threads may share it."""

    def __init__(self, model: str, path: str | Path | None = None) -> None:
        self.model = model
        self.path = Path(path) if path else cache_home() / "audio.sqlite"
        self._seed = row_checksum(model)
        self._lock = Lock()
        self._db: sqlite3.Connection | None = None
        self._lost = False

    def look_up(self, recordings: Sequence[Recording]) -> list[Found]:
        """Return what is known about each recording without reading any of them.

        Large embeddings are fetched up to a limit only; `read` fetches the rest.
        """
        now, here = time.time_ns(), _working_folder()
        placed = [_placed(recording, now, here) for recording in recordings]
        places = [place for place, _, settled in placed if settled]
        known = self._known(_FILES_AND_AUDIO, (self.model,), places)
        if len(known) < len(places):  # new files, or too many bytes: then at least their digests
            more = [place for place in places if place.encode() not in known]
            known |= self._known(_FILES, (), more)
        found: list[Found] = []
        for one in placed:
            stamp, digest, entry = known.get(one[0].encode(), _UNKNOWN)
            same = one[2] and stamp == one[1].encode()
            found.append(Found(*one, digest, entry) if same else Found(*one))
        return found

    def read(self, recording: Recording, found: Found) -> Found:
        """Return `found` with the digest of its content, and the embeddings of that."""
        if found.entry is not None or not (found.place or isinstance(recording, Audio)):
            return found
        digest = found.digest or _digest(recording)
        return found._replace(digest=digest, entry=self._entry(digest))

    def put(self, known: Iterable[Found]) -> None:
        """Store the embeddings of contents, and which files have them, in one transaction."""
        with_digest = [one for one in known if one.digest]
        audio = [
            self._row(one.digest, one.entry)
            for one in with_digest
            if one.entry is not None and is_usable(np.frombuffer(one.entry[1], _FLOAT))
        ]
        files = [
            (*one[:2], one.digest, row_checksum(*one[:2], one.digest))
            for one in with_digest
            if one.settled
        ]
        with self._lock:
            try:
                if db := self._open():
                    with db:
                        db.executemany(
                            "INSERT OR REPLACE INTO audio_2 VALUES (?, ?, ?, ?, ?)", audio
                        )
                        db.executemany("INSERT OR REPLACE INTO files_2 VALUES (?, ?, ?, ?)", files)
            except (sqlite3.Error, OSError) as error:
                self._lose(error)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._db:
                self._db.close()
            self._db = None

    def _entry(self, digest: bytes) -> Packed | None:
        """Return the embeddings of a content; None if there are none."""
        rows = list(self._select(_AUDIO, (self.model,), [digest])) if digest else []
        return self._checked(*rows[0]) if rows else None

    def _known(
        self, query: str, before: tuple[str, ...], places: Sequence[str]
    ) -> dict[bytes, tuple[bytes, bytes, Packed | None]]:
        """Return stamp, digest and embeddings of files by place; damaged rows are left out."""
        return {
            path: (stamp, digest, self._checked(digest, of_entry, spans, rows))
            for path, stamp, digest, checksum, of_entry, spans, rows in self._select(
                query, before, places
            )
            if type(stamp) is type(digest) is bytes and checksum == crc32(path + stamp + digest)
        }

    def _checked(
        self, digest: bytes, checksum: object, spans: object, rows: object
    ) -> Packed | None:
        """Return the embeddings of a content, None if there are none or they are damaged.

        No further check of the numbers: 100,000 rows must take no second longer.
        """
        if type(spans) is not bytes or type(rows) is not bytes:
            return None
        if checksum != crc32(rows, crc32(digest + spans, self._seed)):
            return None
        return spans, rows

    def _row(self, digest: bytes, entry: Packed) -> tuple[str | bytes | int, ...]:
        """Return the row of some embeddings, with its checksum."""
        return (self.model, digest, *entry, row_checksum(self.model, digest, *entry))

    def _select(
        self, query: str, before: tuple[str, ...], keys: Sequence[str | bytes]
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows whose key is one of `keys`, up to a limit of bytes (last column).

        Texts are yielded as bytes: what is damaged need not be a text. Take all of them: others
        wait for the lock.
        """
        left = _MOST_BYTES
        with self._lock:
            try:
                db = self._open() if keys else None
                most = db.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) - len(before) if db else 1
                for first in range(0, len(keys), most):
                    block = keys[first : first + most]
                    marks = ", ".join("?" * len(block))
                    if left > 0 and db:
                        for row in db.execute(f"{query} ({marks})", (*before, *block)):
                            yield row
                            left -= len(row[-1]) if type(row[-1]) is bytes else 0
                            if left <= 0:
                                break
            except (sqlite3.Error, OSError) as error:
                self._lose(error)

    def _open(self) -> sqlite3.Connection | None:
        """Return the open file, None once it has failed."""
        if self._db is None and not self._lost:
            self._db = open_database(self.path, *_SCHEMA)
            self._db.text_factory = bytes
        return self._db

    def _lose(self, error: Exception) -> None:
        """Continue without the file, with one warning."""
        if not self._lost:
            warn_of_cache("audio", self.path, error)
        self._lost = True
        if self._db:
            self._db.close()
        self._db = None


def packed(spans: NDArray[np.float64], rows: Matrix) -> Packed:
    """Return the windows of a recording as they are stored."""
    return spans.astype("<f8").tobytes(), rows.astype("<f4").tobytes()


def unpacked(entry: Packed) -> WindowEmbeddings:
    """Return the windows of a recording."""
    spans = _times(entry[0])
    return spans, np.frombuffer(entry[1], _FLOAT).reshape(len(spans), -1)


def seconds_of(entry: Packed) -> float:
    """Return the end of the last window of a recording."""
    return float(_times(entry[0]).item(-1))


def embeddings_of(entries: Sequence[Packed]) -> Matrix:
    """Return the embeddings of recordings, one row each: the unit mean of its windows."""
    if all(len(spans) == _ONE_WINDOW for spans, _ in entries):  # the rows of all at once
        rows = np.frombuffer(b"".join([rows for _, rows in entries]), _FLOAT)
        return rows.reshape(len(entries), -1)
    return np.stack([unit_mean(unpacked(entry)[1]) for entry in entries])


def unchanged(recording: Recording, found: Found) -> bool:
    """Return whether a recording has not changed since it was looked up."""
    now = _placed(recording, time.time_ns(), _working_folder())
    return now[:2] == found[:2]


def is_local_file(recording: Recording) -> bool:
    """Return whether a recording is a file of this machine, which is quick to look up."""
    return isinstance(recording, (str, os.PathLike)) and not is_url(recording)


_NOWHERE = ("", "", False)


def _placed(recording: Recording, now_ns: int, here: str) -> tuple[str, str, bool]:
    """Return place, stamp and settled of a recording (see `Found`); `_NOWHERE` if not stored."""
    try:
        source = recording
        if is_url(source):
            if (local := local_path(source)) is None:
                stamp, settled = url_stamp(source)
                return _storable(source), stamp, settled
            source = local
        if not isinstance(source, (str, os.PathLike)):
            return _NOWHERE
        # Not pathlib: it took longer than the rest of labelling 100,000 cached files.
        folder, sign, name = os.fspath(source).rpartition(os.sep)
        path = f"{_absolute(folder + sign, here)}{os.sep}{name}"
        if not here and not os.path.isabs(path):  # noqa: PTH117 (as above)
            return _NOWHERE
        about = os.stat(path)  # noqa: PTH116
    except Exception:  # whatever a remote store raises: reading it reports the error in its own row
        return _NOWHERE
    modified = about.st_mtime_ns
    stamp = f"{about.st_size} {modified} {about.st_ctime_ns} {about.st_ino}"
    return path if path.isascii() else _storable(path), stamp, now_ns - modified > _SETTLED_NS


def _storable(path: str) -> str:
    """Return a path as a text that SQLite can store; names need not be UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"bytes:{os.fsencode(path).hex()}"
    return path


def _working_folder() -> str:
    """Return the working directory; nothing if it no longer exists."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""


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


@lru_cache(maxsize=64)  # most clips of an archive have the length of others
def _times(spans: bytes) -> NDArray[np.float64]:
    return np.frombuffer(spans, "<f8").reshape(-1, 2)
