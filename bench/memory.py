"""Peak memory: constant in the number of files and in their length.

Peak resident memory of the command, run from the shell with `mini`: clips of 1 s in growing
number, and a recording of ten hours (16 kHz wav) beside one of a minute.
"""

import tempfile
from pathlib import Path

from bench.clips import LABELS, write_clips, write_noise
from bench.figures import Figure, Spread
from bench.shell import Ran, driftscore

MOST_MB, ADDED_MB = 1500, 200
LONG_S = 10 * 3600


def measure(*, quick: bool) -> list[Figure]:
    """Measure the command's peak memory at each size."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        return [
            _many_files(home, (10, 100) if quick else (10, 100, 1_000)),
            *_long_file(home, 1800 if quick else LONG_S),
        ]


def _many_files(home: Path, sizes: tuple[int, ...]) -> Figure:
    peaks: dict[str, dict[str, float]] = {"classify": {}, "embed": {}}
    for size in sizes:
        folder = write_clips(home / str(size), size)
        peaks["classify"][str(size)] = _classify(folder, home).peak_mb
        npz = home / f"{size}.npz"
        peaks["embed"][str(size)] = driftscore("embed", folder, "-o", npz, cache=home).peak_mb
    largest = max(peak for of_command in peaks.values() for peak in of_command.values())
    by_command = "; ".join(
        f"{command}: " + ", ".join(f"{int(n):,} files {peak:.0f} MB" for n, peak in found.items())
        for command, found in peaks.items()
    )
    return Figure(
        f"peak memory, classify and embed, up to {max(sizes):,} files",
        Spread.of([largest]),
        "MB",
        bar="<= 1.5 GB for any number of files",
        met=largest <= MOST_MB,
        note=f"{by_command}; the part growth goes up to 10,000 files, relabel to 100,000",
        details={"peaks_mb": peaks},
    )


def _long_file(home: Path, seconds: int) -> list[Figure]:
    short = _classify(write_noise(home / "minute.wav", 60), home)
    path = write_noise(home / "long.wav", seconds)
    long = _classify(path, home)
    path.unlink()
    added = long.peak_mb - short.peak_mb
    hours = f"{seconds / 3600:g} h"
    return [
        Figure(
            f"memory of a {hours} recording beyond that of one minute",
            Spread.of([added]),
            "MB",
            bar="< 200 MB",
            met=added < ADDED_MB,
            note=f"{short.peak_mb:.0f} MB for a minute, {long.peak_mb:.0f} MB for {hours}",
            details={"minute_mb": short.peak_mb, "long_mb": long.peak_mb, "seconds": seconds},
        ),
        Figure(
            f"classifying a {hours} recording, from the shell",
            Spread.of([long.seconds]),
            "s",
            note=f"{seconds / long.seconds:,.0f} times real time",
        ),
    ]


def _classify(what: Path, home: Path) -> Ran:
    out = home / "out.csv"
    return driftscore("classify", what, "-l", LABELS, "-f", "csv", "-o", out, cache=home / "cache")
