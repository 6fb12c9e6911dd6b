"""How cost grows with the number of clips, from 100 to 10,000.

Clips of 1 s on disk through `mini` with 5 labels and no cache. Each size runs in a process of its
own that loads the model, embeds 40 clips to warm up, and is then timed; the sizes take turns. The
files share a few dozen contents. `python -m bench.growth FOLDER CLIPS` times one size.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.clips import DISTINCT, LABELS, write_clips
from bench.figures import Figure, Spread
from bench.shell import python

SIZES = (100, 300, 1_000, 3_000, 10_000)
TOLERANCE = 0.05
"""How far the exponent of time against clips may be from 1."""


def measure(*, quick: bool) -> list[Figure]:
    """Time every size, and fit how time grows."""
    sizes, turns = ((20, 60, 200), 1) if quick else (SIZES, 3)
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    peaks: dict[int, list[float]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        folder = write_clips(home / "clips", max(sizes))
        for turn in range(turns):
            for size in sizes if turn % 2 == 0 else sizes[::-1]:
                ran = python("-m", "bench.growth", folder, size, cache=home / "cache")
                seconds[size].append(float(ran.out))
                peaks[size].append(ran.peak_mb)
    costs = {size: Spread.of([1e3 * s / size for s in seconds[size]]) for size in sizes}
    memory = {size: Spread.of(peaks[size]).median for size in sizes}
    return [_exponent(seconds), _cost(seconds, costs, memory), _memory(memory)]


def _exponent(seconds: dict[int, list[float]]) -> Figure:
    """Fit time as a power of the number of clips, in each turn."""
    sizes = np.log(list(seconds))
    turns = zip(*seconds.values(), strict=True)
    found = Spread.of([float(np.polyfit(sizes, np.log(times), 1)[0]) for times in turns])
    return Figure(
        f"exponent of time against clips, from {min(seconds):,} to {max(seconds):,} clips",
        found,
        "",
        bar=f"1: linear, constant per clip (within {TOLERANCE:g})",
        met=abs(found.median - 1) <= TOLERANCE,
    )


def _cost(
    seconds: dict[int, list[float]], costs: dict[int, Spread], memory: dict[int, float]
) -> Figure:
    few, many = min(costs), max(costs)
    pairs = zip(seconds[few], seconds[many], strict=True)
    by_size = ", ".join(f"{size:,} clips {cost.median:.2f}" for size, cost in costs.items())
    return Figure(
        f"cost per clip at {many:,} clips",
        costs[many],
        "ms per clip",
        peer=f"the same at {few:,} clips",
        theirs=costs[few],
        ratio=Spread.of([(one / few) / (other / many) for one, other in pairs]),
        note=f"ms per clip: {by_size}",
        details={
            "clips": list(costs),
            "ms_per_clip": [cost.median for cost in costs.values()],
            "ms_per_clip_low": [cost.low for cost in costs.values()],
            "ms_per_clip_high": [cost.high for cost in costs.values()],
            "peak_mb": list(memory.values()),
        },
    )


def _memory(memory: dict[int, float]) -> Figure:
    few, many = min(memory), max(memory)
    return Figure(
        f"peak memory at {many:,} clips",
        Spread.of([memory[many]]),
        "MB",
        peer=f"the same at {few:,} clips",
        theirs=Spread.of([memory[few]]),
        note=", ".join(f"{size:,} clips {peak:.0f} MB" for size, peak in memory.items()),
    )


def _time_clips(folder: str, clips: int) -> float:
    """Classify the first clips of a folder in this process; return the seconds."""
    from driftscore import Classifier
    from driftscore.audio.recordings import expand

    classifier = Classifier(LABELS.split(", ")).fit()
    files = expand([folder])[:clips]
    for _ in classifier.classify(files[:DISTINCT]):
        pass
    start = time.perf_counter()
    done = sum(1 for result in classifier.classify(files) if not result.error)
    seconds = time.perf_counter() - start
    if done != clips:
        raise RuntimeError(f"{clips - done} of {clips} clips could not be classified")
    return seconds


if __name__ == "__main__":
    print(_time_clips(sys.argv[1], int(sys.argv[2])))
