"""Integrated loudness (ITU-R BS.1770-4) in LUFS, by pyloudnorm, measured once per sound.

As Scaper measures it: K-weighting, blocks of 0.4 s, a floor of -70 LUFS; a sound shorter than
0.5 s is first repeated until it is at least that long.
"""

import importlib
import math
import sqlite3
import struct
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Samples
from driftscore.databases import open_database, row_checksum
from driftscore.errors import AudioError, MissingExtraError
from driftscore.files import cache_home
from driftscore.lab.mixing.sounds import digest

FLOOR = -70.0
BLOCK_S = 0.4
SHORT_S = 0.5
_TABLE = "loudness_2"  # the first one had no checksums


def integrated_loudness(samples: Samples, rate: int) -> float:
    """Return the loudness of mono samples in LUFS, at least -70."""
    try:
        pyloudnorm = importlib.import_module("pyloudnorm")
    except ImportError as error:
        raise MissingExtraError("Loudness", "lab") from error
    if not len(samples):
        raise AudioError("A sound without samples has no loudness")
    wide: NDArray[np.float64] = samples.astype(np.float64)
    seconds = len(wide) / rate
    if seconds < SHORT_S:
        wide = np.tile(wide, math.ceil(SHORT_S / seconds))
    with np.errstate(divide="ignore"):  # silence: log10(0), which becomes the floor
        measured = float(pyloudnorm.Meter(rate, block_size=BLOCK_S).integrated_loudness(wide))
    return max(measured, FLOOR)


class LoudnessMeter:
    """Measures loudness and caches it by the digest of the samples.

    With a `path` the cache is an SQLite file that several processes may share; a file that cannot
    be used causes a warning, and loudness is then measured without it.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path else None
        self._known: dict[str, float] = {}

    def __call__(self, samples: Samples, rate: int) -> float:
        """Return the loudness of mono samples in LUFS."""
        key = digest(samples, rate)
        if key not in self._known:
            kept = self._kept(key)
            if kept is None:
                kept = integrated_loudness(samples, rate)
                self._keep(key, kept)
            self._known[key] = kept
        return self._known[key]

    def _kept(self, key: str) -> float | None:
        """Return the cached loudness of a sound; a value that is damaged counts as none."""
        if self.path is None:
            return None
        query = f"SELECT lufs, checksum FROM {_TABLE} WHERE sha256 = ?"  # noqa: S608 (our own name)
        try:
            with closing(self._open(self.path)) as db:
                found, checksum = db.execute(query, (key,)).fetchone() or (None, None)
        except (sqlite3.Error, OSError) as error:
            self._warn(error)
            return None
        return found if isinstance(found, float) and checksum == _checksum(key, found) else None

    def _keep(self, key: str, lufs: float) -> None:
        if self.path is None:
            return
        values = (key, lufs, _checksum(key, lufs))
        try:
            with closing(self._open(self.path)) as db, db:
                db.execute(f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?, ?)", values)  # noqa: S608
        except (sqlite3.Error, OSError) as error:
            self._warn(error)

    def _open(self, path: Path) -> sqlite3.Connection:
        return open_database(
            path,
            "PRAGMA synchronous = OFF",  # a lost entry is measured again
            f"CREATE TABLE IF NOT EXISTS {_TABLE} "
            "(sha256 TEXT PRIMARY KEY, lufs REAL, checksum INTEGER) WITHOUT ROWID",
        )

    def _warn(self, error: Exception) -> None:
        warnings.warn(
            f"The loudness cache {self.path} cannot be used ({error}); continuing without it. "
            "Delete the file, or choose another one",
            stacklevel=4,
        )
        self.path = None


def _checksum(key: str, lufs: float) -> int:
    return row_checksum(key, struct.pack("<d", lufs))


def shared_meter() -> LoudnessMeter:
    """Return a meter with the loudness cache of the cache folder."""
    return LoudnessMeter(cache_home() / "loudness.sqlite")
