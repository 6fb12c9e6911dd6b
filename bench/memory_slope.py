"""Memory of a listener over hours of audio: rows for a picture, and the slope of a line.

A life is the time from one start of the process to its end. Its first `MEMORY_S` of audio of each
source are left out: until then buffers fill up to their bounds. The line has one slope and an
offset per life, by least squares.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from driftscore.audio.levels import MEMORY_S

HOUR_S = 3600.0
MIN_ROWS = 8
"""A life with fewer rows after its warm-up has no part in the slope."""


class MemoryRow(NamedTuple):
    """What a process takes at one moment; hours of audio are those of all sources in this life."""

    life: int
    seconds: float
    audio_hours: float
    memory_mb: float
    descriptors: int


class MemoryLog:
    """Rows as they come, also in a file (csv)."""

    def __init__(self, path: Path, sources: int) -> None:
        self.rows: list[MemoryRow] = []
        self._warm_up_h = sources * MEMORY_S / HOUR_S
        self._file = open(path, "w", encoding="utf-8", newline="", buffering=1)  # noqa: SIM115
        self._writer = csv.writer(self._file)
        self._writer.writerow(MemoryRow._fields)

    def add(self, row: MemoryRow) -> None:
        """Add a row."""
        self.rows.append(row)
        self._writer.writerow([round(value, 4) for value in row])

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def summary(self) -> dict[str, Any]:
        """Return the slope, what it rests on, and the most memory and descriptors of each life."""
        lives = [
            [row for row in self.rows if row.life == life]
            for life in sorted({row.life for row in self.rows})
        ]
        warm = [[row for row in life if row.audio_hours > self._warm_up_h] for life in lives]
        warm = [life for life in warm if len(life) >= MIN_ROWS]
        joint = slope(warm)
        return {
            "slope_mb_per_audio_hour": None if joint is None else round(joint, 4),
            "slope_rests_on_audio_hours": round(sum(map(_audio_hours, warm)), 1),
            "slopes_of_lives": [
                {
                    "slope": round(slope([life]) or 0.0, 4),
                    "audio_hours": round(_audio_hours(life), 1),
                }
                for life in warm
            ],
            "memory_mb": [round(max(row.memory_mb for row in life), 1) for life in lives],
            "descriptors": [max(row.descriptors for row in life) for life in lives],
        }


def slope(lives: Sequence[Sequence[MemoryRow]]) -> float | None:
    """Return the common slope of lives in MB per hour of audio; None without audio."""
    above = below = 0.0
    for life in lives:
        hours = np.array([row.audio_hours for row in life])
        hours -= hours.mean()
        above += float(hours @ [row.memory_mb for row in life])
        below += float(hours @ hours)
    return above / below if below else None


def _audio_hours(life: Sequence[MemoryRow]) -> float:
    return life[-1].audio_hours - life[0].audio_hours
