"""SQLite files of the caches: private, never waited for long, and every row with a checksum.

A value that comes back from a cache is used only if its checksum fits. One that is damaged, cut,
empty or written by another program is treated as missing, and is computed and stored again.
"""

import os
import sqlite3
import stat
import zlib
from operator import methodcaller
from pathlib import Path

import numpy as np

from driftscore.vectors import Matrix

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


def row_checksum(*parts: str | bytes) -> int:
    """Return a checksum of the parts of a row; it finds damage, not intent."""
    found = 0
    for part in parts:
        found = zlib.crc32(part.encode() if isinstance(part, str) else part, found)
    return found


def is_usable(rows: Matrix) -> bool:
    """Return whether numbers are finite and not all zeros."""
    flat = rows.reshape(-1).astype(np.float64)
    return 0.0 < float(flat @ flat) < float("inf")
