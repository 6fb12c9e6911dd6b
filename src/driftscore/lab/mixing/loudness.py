"""Integrated loudness (ITU-R BS.1770-4) in LUFS, by pyloudnorm, measured once per sound.

As Scaper measures it: K-weighting, blocks of 0.4 s, a floor of -70 LUFS; a sound shorter than
0.5 s is first repeated until it is at least that long.
"""

import importlib
import math
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Samples
from driftscore.errors import AudioError, MissingExtraError
from driftscore.files import cache_home
from driftscore.lab.mixing.sounds import digest

FLOOR = -70.0
BLOCK_S = 0.4
SHORT_S = 0.5


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
        if self.path is None:
            return None
        try:
            with closing(self._open(self.path)) as db:
                row = db.execute("SELECT lufs FROM loudness WHERE sha256 = ?", (key,)).fetchone()
                return float(row[0]) if row else None
        except (sqlite3.Error, OSError) as error:
            self._warn(error)
            return None

    def _keep(self, key: str, lufs: float) -> None:
        if self.path is None:
            return
        try:
            with closing(self._open(self.path)) as db, db:
                db.execute("INSERT OR REPLACE INTO loudness VALUES (?, ?)", (key, lufs))
        except (sqlite3.Error, OSError) as error:
            self._warn(error)

    def _open(self, path: Path) -> sqlite3.Connection:
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=60)
        db.execute("PRAGMA synchronous = OFF")  # a lost entry is measured again
        db.execute(
            "CREATE TABLE IF NOT EXISTS loudness (sha256 TEXT PRIMARY KEY, lufs REAL) WITHOUT ROWID"
        )
        return db

    def _warn(self, error: Exception) -> None:
        warnings.warn(
            f"The loudness cache {self.path} cannot be used ({error}); continuing without it. "
            "Delete the file, or choose another one",
            stacklevel=4,
        )
        self.path = None


def shared_meter() -> LoudnessMeter:
    """Return a meter with the loudness cache of the cache folder."""
    return LoudnessMeter(cache_home() / "loudness.sqlite")
