"""What a benchmark returns: figures, each measured in turns with its peer.

The speed of a shared machine drifts from minute to minute. So our work and the peer's run in
turns within one process (or as processes side by side), and the ratio is computed per turn. The
page shows the median of the turns and their middle half.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np


class NotHereError(Exception):
    """A part cannot run on this machine; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class Spread:
    """A median with its middle half (the 25th and 75th percentile)."""

    median: float
    low: float
    high: float
    turns: int

    @staticmethod
    def of(values: list[float]) -> "Spread":
        """Return the spread of measured values."""
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        return Spread(float(middle), float(low), float(high), len(values))


@dataclass(frozen=True)
class Figure:
    """One line of the page: some work, its cost, the cost of the peer's work, and the bar."""

    work: str
    ours: Spread
    unit: str
    """Unit of `ours` and `theirs`: s, ms, ms per clip, MB, GFLOP/s ..."""
    peer: str = ""
    theirs: Spread | None = None
    ratio: Spread | None = None
    """How many times as fast as the peer; 1.00 where the bar says "no slower"."""
    bar: str = ""
    met: bool | None = None
    note: str = ""
    details: Mapping[str, object] = field(default_factory=dict)


def in_turns(
    runs: Mapping[str, Callable[[], object]],
    turns: int,
    *,
    warm: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the seconds of each run in each turn; every second turn has the reverse order.

    `clock` is wall-clock time, or `time.process_time` for that of the processor.
    """
    if warm:
        for run in runs.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(turns):
        names = list(runs) if turn % 2 == 0 else list(runs)[::-1]
        for name in names:
            start = clock()
            runs[name]()
            seconds[name].append(clock() - start)
    return seconds


def ratio(theirs: list[float], ours: list[float]) -> Spread:
    """Return how many times as fast we were, computed per turn."""
    return Spread.of([peer / own for peer, own in zip(theirs, ours, strict=True)])


def scaled(seconds: list[float], factor: float) -> Spread:
    """Return times in another unit: the factor 1e3 / clips gives milliseconds per clip."""
    return Spread.of([value * factor for value in seconds])
