"""What an engine is: the place where recordings are embedded, this machine or a cluster.

The file of an engine defines

    open_engine(settings: EngineSettings) -> Engine

The rows of a recording never depend on the engine, bit for bit, nor on the number of threads or
workers, nor on the content of the cache.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Recording
from driftscore.backbones import Backbone, load_backbone
from driftscore.backbones.vectors import Matrix, Vector, unit_mean
from driftscore.errors import AudioError, UsageError


@dataclass(frozen=True, eq=False)
class Embedded:
    """The window embeddings of one recording, or the error that prevented them.

    Windows of digital silence have no embedding and are left out.
    """

    source: str
    """The name of the recording."""
    spans: NDArray[np.float64]
    """Start and end of each window in seconds: (n, 2)."""
    rows: Matrix
    """The unit embedding of each window: (n, d)."""
    error: str = ""

    @property
    def embedding(self) -> Vector:
        """The embedding of the recording: the unit mean of its windows."""
        if self.error:
            raise AudioError(self.error)
        return unit_mean(self.rows)

    @property
    def seconds(self) -> float:
        """The end of the last window that is not silent."""
        return float(self.spans.item(-1)) if len(self.spans) else 0.0


class EmbeddedBlock:
    """Recordings that are ready together, in the order given; they are scored in one product.

    An engine whose recordings are ready one by one yields blocks of one.
    """

    def __init__(self, recordings: Sequence[Embedded]) -> None:
        self.sources: Sequence[str] = [one.source for one in recordings]
        self.errors: Sequence[str] = [one.error for one in recordings]
        """The error of each recording, empty for a good one."""
        self._recordings = recordings

    def __len__(self) -> int:
        return len(self.sources)

    def __iter__(self) -> Iterator[Embedded]:
        return iter(self._recordings)

    @property
    def seconds(self) -> list[float]:
        """The end of each recording: of its last window that is not silent."""
        return [one.seconds for one in self._recordings]

    def embeddings(self) -> Matrix:
        """Return one row for each recording that has no error."""
        rows = [one.embedding for one in self._recordings if not one.error]
        return np.stack(rows) if rows else np.zeros((0, 0), np.float32)


def failed(source: str, error: str, *, dim: int) -> Embedded:
    """Return the result of a recording that could not be embedded."""
    return Embedded(source, np.zeros((0, 2)), np.zeros((0, dim), np.float32), error)


def check_finite(name: str, rows: Matrix | Vector) -> None:
    """Refuse embeddings that are not finite: they would make every score of theirs NaN."""
    if not np.isfinite(rows).all():
        raise AudioError(
            f"{name} cannot be embedded: the model returned NaN or infinity for it; is it far "
            "louder than sound should be?"
        )


@dataclass(frozen=True)
class ModelSpec:
    """How another process loads the same model."""

    spec: str
    runtime: str | None = None
    batch_size: int | None = None

    def load(self) -> Backbone:
        """Load the model."""
        batches = {} if self.batch_size is None else {"batch_size": self.batch_size}
        return load_backbone(self.spec, runtime=self.runtime, **batches)


@dataclass(frozen=True, eq=False)
class EngineSettings:
    """What an engine works with.

    Attributes:
        backbone: the model, loaded in this process.
        model: how another process loads it; None for a model that was given as an object.
        audio_cache: keep the embeddings of recordings on disk, by their content.
        address: the cluster to use, for engines that have one.
        threads: windows in work at the same time; None for the number of cores.

    """

    backbone: Backbone
    model: ModelSpec | None = None
    audio_cache: bool = False
    address: str | None = None
    threads: int | None = None


class Engine(Protocol):
    """An engine in use: it may be shared by threads, and is closed when it is no longer needed."""

    def embed(self, recordings: Iterable[Recording]) -> Iterator[EmbeddedBlock]:
        """Yield the results of all recordings in the order given, in blocks as they are ready."""

    def close(self) -> None:
        """Release threads, files and connections."""


class EngineModule(Protocol):
    """A module, or an object, that defines an engine."""

    def open_engine(self, settings: EngineSettings) -> Engine:
        """Return an engine that is ready to embed."""


MAX_THREADS = 1024


def thread_count(threads: int | None) -> int:
    """Return how many windows are in work at the same time: as asked for, else the cores."""
    if threads is None:
        return os.cpu_count() or 1
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise UsageError(f"threads must be a positive integer, got {threads!r}")
    if threads > MAX_THREADS:
        raise UsageError(f"threads must be at most {MAX_THREADS}, got {threads}")
    return threads
