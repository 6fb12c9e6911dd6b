"""SQLite files of the caches: private, never waited for long, and every row with a checksum.

A value that comes back from a cache is used only if its checksum fits. One that is damaged, cut,
empty or written by another program is treated as missing, and is computed and stored again.
"""

import errno
import os
import sqlite3
import stat
import zlib
from collections.abc import Sequence
from operator import methodcaller
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.storage.files import warn_of_cache

SqlRow = tuple[Any, ...]
"""One row of a query; SQLite's columns hold values of any type."""
_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
WAIT_S = 2.0
"""How long a database that another process has locked is waited for."""


def open_database(path: Path, *statements: str) -> sqlite3.Connection:
    """Open a database and run some statements; a new one can be read by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite gives its journal the mode of the database.
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is not a regular file")
    finally:
        os.close(handle)
    db = sqlite3.connect(path, timeout=WAIT_S, check_same_thread=False)
    try:
        # Damaged bytes make another text, which fits no checksum.
        db.text_factory = methodcaller("decode", "utf-8", "replace")
        for statement in statements:
            db.execute(statement)
    except sqlite3.Error:
        db.close()
        raise
    return db


class CacheFile:
    """A cache in one SQLite file; threads, processes and forked processes may share it.

    If the file cannot be opened, is damaged or stays locked, work continues without it: nothing is
    found and nothing is stored from then on, and one warning says so. One that may be read but not
    written, as on a disk that is mounted read-only, is read, and nothing is stored.
    """

    def __init__(self, name: str, path: Path, *schema: str) -> None:
        self.name = name
        self.path = path
        self._schema = schema
        self._lock = Lock()
        self._db: sqlite3.Connection | None = None
        self._inherited: sqlite3.Connection | None = None
        self._pid = os.getpid()
        self._lost = self._read_only = False

    def __reduce__(self) -> tuple[type["CacheFile"], tuple[object, ...]]:
        return CacheFile, (self.name, self.path, *self._schema)  # a copy opens the file by itself

    def get(
        self, query: str, keys: Sequence[str | bytes], *first: str, max_bytes: float = float("inf")
    ) -> list[SqlRow]:
        """Return the rows of a query that ends in `IN`, for these keys; texts are bytes.

        `first` are the values of the query before the keys. No further row is fetched once the
        last columns have `max_bytes`.
        """
        rows: list[SqlRow] = []
        with self._locked():
            try:
                db = self._open() if keys else None
                if db is None:
                    return rows
                size = db.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) - len(first)
                for start in range(0, len(keys), size):
                    block = keys[start : start + size]
                    marks = ", ".join("?" * len(block))
                    for row in db.execute(f"{query} ({marks})", (*first, *block)):
                        rows.append(row)
                        max_bytes -= len(row[-1]) if type(row[-1]) is bytes else 0
                        if max_bytes <= 0:
                            return rows
            except (sqlite3.Error, OSError, UnicodeError) as error:
                self._lose(error)
        return rows

    def put(self, **tables: Sequence[tuple[object, ...]]) -> None:
        """Store complete rows of tables by the tables' names, in one transaction."""
        with self._locked():
            try:
                db = None if self._read_only else self._open()
                for table, rows in tables.items():
                    if db and rows:
                        marks = ", ".join("?" * len(rows[0]))
                        insert = f"INSERT OR REPLACE INTO {table} VALUES ({marks})"  # noqa: S608
                        db.executemany(insert, rows)
                if db:
                    db.commit()
            except (sqlite3.Error, OSError, UnicodeError) as error:
                self._lose(error)

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        with self._locked():
            if self._db:
                self._db.close()
            self._db = None

    def _locked(self) -> Lock:
        """Return the lock; the connection and the lock of a parent process are not used."""
        if self._pid != os.getpid():
            # It is not closed either: that could release the locks of the parent.
            self._inherited, self._db = self._db, None
            self._lock, self._pid = Lock(), os.getpid()
        return self._lock

    def _open(self) -> sqlite3.Connection | None:
        """Return the open file, None once it has failed."""
        if self._db and not self.path.exists():  # the caches were cleared
            self._db.close()
            self._db = None
        if self._db is None and not self._lost:
            try:
                self._db = open_database(self.path, *self._schema)
            except OSError as error:
                if error.errno not in _UNWRITABLE or not self.path.is_file():
                    raise
                address = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
                self._db = sqlite3.connect(address, uri=True, check_same_thread=False)
                self._read_only = True
            self._db.text_factory = bytes
        return self._db

    def _lose(self, error: Exception) -> None:
        self._lost = True
        if self._db:
            self._db.close()
        self._db = None
        warn_of_cache(self.name, self.path, error)


def row_checksum(*parts: str | bytes) -> int:
    """Return a checksum of the parts of a row; it finds damage, not intent."""
    checksum = 0
    for part in parts:
        content = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        checksum = zlib.crc32(content, checksum)
    return checksum


def is_usable(rows: NDArray[np.float32]) -> bool:
    """Return whether numbers are finite and not all zeros."""
    flat = rows.reshape(-1).astype(np.float64)
    return 0.0 < float(flat @ flat) < float("inf")
