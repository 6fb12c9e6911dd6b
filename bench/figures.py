"""What a benchmark returns: a figure with its peer, measured in turns, and how to measure so.

Timings on a shared machine drift by the minute, so ours and the peer's run in turns within
one process (or as processes side by side), and what is kept is the ratio of each turn:
its median, and its middle half as the spread.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np


class NotHereError(Exception):
    """A part cannot run on this machine; its text says what is missing and how to get it."""


@dataclass(frozen=True)
class Spread:
    """A median with its middle half."""

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
    """One line of the page: some work, what it cost, what the peer's cost, and the bar."""

    work: str
    ours: Spread
    unit: str
    """Of `ours` and `theirs`: s, ms, ms a clip, MB, GFLOP/s ..."""
    peer: str = ""
    theirs: Spread | None = None
    ratio: Spread | None = None
    """How many times as fast as the peer; 1.00 where the bar says "no slower"."""
    bar: str = ""
    met: bool | None = None
    note: str = ""
    details: Mapping[str, object] = field(default_factory=dict)


def in_turns(
    runs: Mapping[str, Callable[[], object]], turns: int, *, warm: bool = True
) -> dict[str, list[float]]:
    """Time each of `runs` once a turn, in seconds; the order is turned round every other turn."""
    if warm:
        for run in runs.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(turns):
        names = list(runs) if turn % 2 == 0 else list(runs)[::-1]
        for name in names:
            start = time.perf_counter()
            runs[name]()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(theirs: list[float], ours: list[float]) -> Spread:
    """Return how many times as fast we were, turn by turn."""
    return Spread.of([peer / own for peer, own in zip(theirs, ours, strict=True)])


def scaled(seconds: list[float], factor: float) -> Spread:
    """Return times in another unit: 1e3 / clips makes milliseconds a clip."""
    return Spread.of([value * factor for value in seconds])
