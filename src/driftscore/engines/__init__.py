"""Engines: where recordings are heard, one a file, found by its name: this machine, or many.

An engine's file defines

    hear(sources, backbone, *, spec="", cache=False, address=None, threads=None) -> Iterator[Heard]

which yields what each recording came to, in the order given. `backbone` is the loaded model of
this process; `spec` is how another process loads the same one, a JSON text with "spec" and
"options" for `load_backbone`. A row's bits never depend on the engine, on how many threads or
workers there are, or on what the cache holds.
"""

import json
import os
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore import plugins
from driftscore.errors import AudioError, UsageError
from driftscore.vectors import Matrix, Vector, unit_mean


@dataclass(frozen=True, eq=False)
class Heard:
    """What a recording came to: its sounding windows, each with its embedding, or why not."""

    source: str
    spans: NDArray[np.float64]
    """Where each window starts and ends, in seconds: (n, 2)."""
    rows: Matrix
    """The windows' unit embeddings: (n, d)."""
    error: str = ""
    followed: bool = False
    """Whether the next recording is there already: scoring may wait for it and take both."""

    @property
    def embedding(self) -> Vector:
        """The recording's embedding: the unit mean of its windows."""
        self.check()
        if len(self.rows) == 1:  # as unit_mean has it, at a tenth of the time: most are short
            row: Vector = self.rows[0]
            return row
        return unit_mean(self.rows)

    @property
    def seconds(self) -> float:
        """Where the last window that holds sound ends."""
        return float(self.spans[-1, 1]) if len(self.spans) else 0.0

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.error:
            raise AudioError(self.error)


def failed(source: str, error: str, *, dim: int, followed: bool = False) -> Heard:
    """Return what a recording that could not be used came to."""
    return Heard(source, np.zeros((0, 2)), np.zeros((0, dim), np.float32), error, followed)


def engine_names() -> tuple[str, ...]:
    """Return the names of all engines."""
    return plugins.names(__name__, "hear")


def find_engine(name: str) -> ModuleType:
    """Return the engine of this name."""
    return plugins.find(__name__, name, entry="hear", kind="engine")


def loading(spec: str | os.PathLike[str], **options: Any) -> str:
    """Return how another process loads the model of `load_backbone(spec, **options)`."""
    return json.dumps({"spec": os.fspath(spec), "options": options}, sort_keys=True)


def thread_count(threads: int | None) -> int:
    """Return how many windows are worked on at once: as many as asked for, else the cores."""
    if threads is None:
        return os.cpu_count() or 1
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise UsageError(f"threads is a whole number from 1 on, not {threads!r}")
    return threads
