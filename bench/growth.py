"""How cost grows with the number of clips, from 100 to 10,000.

1 s clips on disk through `mini`, 5 labels, no cache, each size in a process of its own that
loads the model, hears 40 clips to warm up and then times; the sizes in turns. Clips are many
names for a few dozen contents. As a program: `python -m bench.growth FOLDER CLIPS`.
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
LINEAR = 0.05
"""How far the exponent of time in clips may be from 1."""


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
    """Fit, turn by turn, time as a power of the number of clips."""
    sizes = np.log(list(seconds))
    turns = zip(*seconds.values(), strict=True)
    found = Spread.of([float(np.polyfit(sizes, np.log(times), 1)[0]) for times in turns])
    return Figure(
        f"growth of time from {min(seconds):,} to {max(seconds):,} clips: its power of clips",
        found,
        "",
        bar=f"1: linear, flat per clip (within {LINEAR:g})",
        met=abs(found.median - 1) <= LINEAR,
    )


def _cost(
    seconds: dict[int, list[float]], costs: dict[int, Spread], memory: dict[int, float]
) -> Figure:
    few, many = min(costs), max(costs)
    pairs = zip(seconds[few], seconds[many], strict=True)
    said = ", ".join(f"{size:,} clips {cost.median:.2f}" for size, cost in costs.items())
    return Figure(
        f"cost per clip at {many:,} clips",
        costs[many],
        "ms a clip",
        peer=f"the same at {few:,} clips",
        theirs=costs[few],
        ratio=Spread.of([(one / few) / (other / many) for one, other in pairs]),
        note=f"ms a clip: {said}",
        details={
            "clips": list(costs),
            "ms_a_clip": [cost.median for cost in costs.values()],
            "ms_a_clip_low": [cost.low for cost in costs.values()],
            "ms_a_clip_high": [cost.high for cost in costs.values()],
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
    """Classify that many clips of a folder in this process, and return the seconds."""
    from driftscore import Classifier
    from driftscore.audio import expand

    ears = Classifier(LABELS.split(", ")).fit()
    files = expand([folder])[:clips]
    for _ in ears.classify(files[:DISTINCT]):
        pass
    start = time.perf_counter()
    done = sum(1 for result in ears.classify(files) if not result.error)
    seconds = time.perf_counter() - start
    if done != clips:
        raise RuntimeError(f"{clips - done} of {clips} clips could not be heard")
    return seconds


if __name__ == "__main__":
    print(_time_clips(sys.argv[1], int(sys.argv[2])))
