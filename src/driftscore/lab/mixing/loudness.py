"""Integrated loudness (ITU-R BS.1770-4) in LUFS, by pyloudnorm, measured once per sound.

As Scaper measures it: K-weighting, blocks of 0.4 s, a floor of -70 LUFS; a sound shorter than
0.5 s is first repeated until it is at least that long.
"""

import importlib
import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Samples
from driftscore.errors import AudioError, MissingExtraError
from driftscore.lab.mixing.sounds import digest
from driftscore.storage.files import cache_home
from driftscore.storage.sqlite import CacheFile, row_checksum

FLOOR = -70.0
BLOCK_S = 0.4
SHORT_S = 0.5
_SCHEMA = (
    "PRAGMA synchronous = OFF",
    "CREATE TABLE IF NOT EXISTS loudness_2 "  # the first one had no checksums
    "(sha256 TEXT PRIMARY KEY, lufs REAL, checksum INTEGER) WITHOUT ROWID",
)
_QUERY = "SELECT lufs, checksum FROM loudness_2 WHERE sha256 IN"


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
        self._file = CacheFile("loudness", Path(path), *_SCHEMA) if path else None
        self._measured: dict[str, float] = {}

    def __call__(self, samples: Samples, rate: int) -> float:
        """Return the loudness of mono samples in LUFS."""
        key = digest(samples, rate)
        if key not in self._measured:
            rows = self._file.get(_QUERY, [key]) if self._file else []
            lufs, checksum = rows[0] if rows else (None, None)
            if not isinstance(lufs, float) or checksum != _checksum(key, lufs):
                lufs = integrated_loudness(samples, rate)
                if self._file:
                    self._file.put(loudness_2=[(key, lufs, _checksum(key, lufs))])
            self._measured[key] = lufs
        return self._measured[key]


def _checksum(key: str, lufs: float) -> int:
    return row_checksum(key, struct.pack("<d", lufs))


def shared_meter() -> LoudnessMeter:
    """Return a meter with the loudness cache of the cache folder."""
    return LoudnessMeter(cache_home() / "loudness.sqlite")
