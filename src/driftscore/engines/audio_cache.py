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
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.decoding import PartialFile
from driftscore.audio.recordings import Audio, Recording
from driftscore.backbones.vectors import Matrix, unit_mean
from driftscore.engines.protocol import Embedded, EmbeddedBlock
from driftscore.storage.files import (
    cache_home,
    is_url,
    local_path,
    open_url,
    url_stamp,
    working_folder,
)
from driftscore.storage.sqlite import CacheFile, is_usable, row_checksum

Packed = tuple[bytes, bytes]
"""The windows of a recording as it is stored: times as little-endian float64, rows as float32."""

BLOCK = 2048
"""How many recordings are best looked up, or stored, at once."""
_MAX_BYTES = 64_000_000
"""What is fetched at once at most; long recordings beyond it are fetched one by one."""
_SETTLED_NS = 2_000_000_000
_FLOAT = np.dtype("<f4")
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


class CacheEntry(NamedTuple):
    """What the cache knows about a recording."""

    source: str = ""
    """The absolute path or URL; empty for what is not stored: an array, a missing file."""
    stamp: str = ""
    settled: bool = False
    """Whether any change of the content would change the stamp."""
    digest: bytes = b""
    """The sha256 of the content; empty while it is unknown."""
    windows: Packed | None = None


class AudioCache:
    """The embeddings of one model by content, in one SQLite file; threads may share it."""

    def __init__(self, model: str, path: str | Path | None = None) -> None:
        self.model = model
        self.path = Path(path) if path else cache_home() / "audio.sqlite"
        self._seed = row_checksum(model)
        self._file = CacheFile("audio", self.path, *_SCHEMA)

    def look_up(self, recordings: Sequence[Recording], *, urls: bool = False) -> list[CacheEntry]:
        """Return what is known about each recording without reading any of them.

        Large embeddings are fetched up to a limit only; `read` fetches the rest, and looks up what
        is behind a URL, which takes a request.
        """
        now, here = time.time_ns(), working_folder()
        entries = [_located(recording, now, here, urls=urls) for recording in recordings]
        sources = [entry.source for entry in entries if entry.settled]
        rows = self._file.get(_FILES_AND_AUDIO, sources, self.model, max_bytes=_MAX_BYTES)
        if len(rows) < len(sources):  # new files, or too many bytes: then at least their digests
            fetched = {row[0] for row in rows}
            rows += self._file.get(_FILES, [s for s in sources if s.encode() not in fetched])
        stored = {
            source: (stamp, digest, self._checked(digest, audio_checksum, spans, vectors))
            for source, stamp, digest, checksum, audio_checksum, spans, vectors in rows
            if type(stamp) is type(digest) is bytes and checksum == crc32(source + stamp + digest)
        }
        for number, (source, stamp, settled, _, _) in enumerate(entries):
            row = stored.get(source.encode()) if settled else None
            if row and row[0] == stamp.encode():
                entries[number] = CacheEntry(source, stamp, settled, row[1], row[2])
        return entries

    def read(self, recording: Recording, entry: CacheEntry) -> CacheEntry:
        """Return `entry` with the digest of its content, and the embeddings of that."""
        if is_url(recording):
            [entry] = self.look_up([recording], urls=True)
        if entry.windows is not None or not (entry.source or isinstance(recording, Audio)):
            return entry
        digest = entry.digest or audio_digest(recording)
        rows = self._file.get(_AUDIO, [digest] if digest else [], self.model)
        windows = self._checked(*rows[0]) if rows else None
        return entry._replace(digest=digest, windows=windows)

    def put(self, entries: Iterable[CacheEntry]) -> None:
        """Store the embeddings of contents, and which files have them, in one transaction."""
        audio, files = [], []
        for source, stamp, settled, digest, windows in entries:
            if digest and windows and is_usable(np.frombuffer(windows[1], _FLOAT)):
                checksum = row_checksum(self.model, digest, *windows)
                audio.append((self.model, digest, *windows, checksum))
            if digest and settled:
                files.append((source, stamp, digest, row_checksum(source, stamp, digest)))
        self._file.put(audio_2=audio, files_2=files)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

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


def packed(spans: NDArray[np.float64], rows: Matrix) -> Packed:
    """Return the windows of a recording as they are stored."""
    return spans.astype("<f8").tobytes(), rows.astype("<f4").tobytes()


def unpacked(windows: Packed) -> tuple[NDArray[np.float64], Matrix]:
    """Return the windows of a recording: (n, 2) starts and ends in seconds, (n, d) unit rows."""
    spans = _times(windows[0])
    return spans, np.frombuffer(windows[1], _FLOAT).reshape(len(spans), -1)


class CachedBlock(EmbeddedBlock):
    """Recordings whose embeddings are in the cache; they stay packed until they are needed."""

    def __init__(self, sources: Sequence[str], windows: Sequence[Packed]) -> None:
        self.sources = sources
        self.errors = [""] * len(sources)
        self._windows = windows

    def __iter__(self) -> Iterator[Embedded]:
        for source, windows in zip(self.sources, self._windows, strict=True):
            yield Embedded(source, *unpacked(windows))

    @property
    def seconds(self) -> list[float]:
        """The end of each recording."""
        return [float(_times(spans).item(-1)) for spans, _ in self._windows]

    def embeddings(self) -> Matrix:
        """Return one row for each recording: the unit mean of its windows."""
        if all(len(spans) == _ONE_WINDOW for spans, _ in self._windows):  # the rows of all at once
            rows = np.frombuffer(b"".join([rows for _, rows in self._windows]), _FLOAT)
            return rows.reshape(len(self._windows), -1)
        return np.stack([unit_mean(unpacked(windows)[1]) for windows in self._windows])


def unchanged(recording: Recording, entry: CacheEntry) -> bool:
    """Return whether a recording has not changed since it was looked up."""
    return _located(recording, time.time_ns(), working_folder(), urls=True)[:2] == entry[:2]


def _located(recording: Recording, now_ns: int, here: str, *, urls: bool) -> CacheEntry:
    """Return source and stamp of a recording, an empty entry for what is not stored."""
    if isinstance(recording, PartialFile):  # each run must say how much of it could be read
        return CacheEntry()
    try:
        source = recording
        if is_url(source):
            if not urls:
                return CacheEntry()
            if (local := local_path(source)) is None:
                return CacheEntry(_storable(source), *url_stamp(source))
            source = local
        if not isinstance(source, (str, os.PathLike)):
            return CacheEntry()
        # Not pathlib: it took longer than the rest of labelling 100,000 cached files.
        folder, sign, name = os.fspath(source).rpartition(os.sep)
        path = f"{_absolute(folder + sign, here)}{os.sep}{name}"
        if not here and not os.path.isabs(path):  # noqa: PTH117 (as above)
            return CacheEntry()
        about = os.stat(path)  # noqa: PTH116
    except Exception:  # whatever a remote store raises: reading it reports the error in its own row
        return CacheEntry()
    modified = about.st_mtime_ns
    stamp = f"{about.st_size} {modified} {about.st_ctime_ns} {about.st_ino}"
    return CacheEntry(_storable(path), stamp, now_ns - modified > _SETTLED_NS)


def _storable(path: str) -> str:
    """Return a path as a text that SQLite can store; names need not be UTF-8."""
    if path.isascii():
        return path
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"bytes:{os.fsencode(path).hex()}"
    return path


@lru_cache(maxsize=64)
def _absolute(folder: str, here: str) -> str:
    return os.path.normpath(os.path.join(here, folder))  # noqa: PTH118


def audio_digest(source: object) -> bytes:
    """Return the sha256 of samples, or of a file or URL; nothing if it cannot be read."""
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
