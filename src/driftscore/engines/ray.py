"""Embed on a Ray cluster: many machines, the same rows.

Recordings are sent in shards of a few, each a Ray task of one core; a worker process loads the
model once and returns the spans and embeddings of the windows, about 2 KB per window. The shard of
a lost worker is submitted again. A shard that loses its worker every time is split, so that the one
recording that crashes a decoder becomes a row with an error and the others are embedded.
Recordings, models and stores must be in places that every node sees.
"""

import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, islice, takewhile
from pathlib import Path
from threading import Lock
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Audio, Recording, describe, unreadable
from driftscore.audiocache import BLOCK
from driftscore.backbones import Backbone
from driftscore.decoding import is_encoded
from driftscore.engines import local
from driftscore.engines._ray_tasks import AHEAD, TRIES, Lost, connected, node, run_tasks, slots
from driftscore.engines.protocol import (
    Embedded,
    EmbeddedBlock,
    EngineSettings,
    ModelSpec,
    failed,
    thread_count,
)
from driftscore.errors import MismatchError, UsageError
from driftscore.files import is_url
from driftscore.vectors import Matrix
from driftscore.version import __version__

SHARD = 16
"""Recordings per shard: little is lost with a worker, and Ray's overhead is negligible."""

_BUFFERED = 50_000  # windows that may wait for a slow recording before them: about 100 MB


class RayEngine:
    """A connection to a cluster, held from the first use until `close`."""

    def __init__(self, settings: EngineSettings) -> None:
        if settings.model is None:
            raise UsageError(
                "The ray engine loads the model in every worker, so it must know how: give the "
                "backbone as a name or a path, not as a loaded model"
            )
        self.settings = settings
        self.model: ModelSpec = settings.model
        self.cores = 1 if settings.threads is None else thread_count(settings.threads)
        self._connection = ExitStack()
        self._lock = Lock()
        self._connected = False

    def embed(self, recordings: Iterable[Recording]) -> Iterator[EmbeddedBlock]:
        """Yield the results of all recordings in the order given, in blocks as they are ready."""
        settings, cores, dim = self.settings, self.cores, self.settings.backbone.dim
        task = partial(
            _embed_shard,
            model=self.model,
            expected=_identity(settings.backbone),
            audio_cache=settings.audio_cache,
            threads=cores,
        )
        buffered: dict[int, Embedded] = {}  # results that wait for an earlier recording
        due = 0

        def full() -> bool:
            return sum(1 + len(result.rows) for result in buffered.values()) > _BUFFERED

        self._connect()
        with connected(settings.address) as ray:
            shards = _shards(recordings, lambda: slots(ray, cores))
            for shard, answer in run_tasks(task, shards, cores=cores, split=_split, wait=full):
                for parcel, result in zip(shard, _unpacked(shard, answer, dim), strict=True):
                    buffered[parcel.place] = result
                while due in buffered:
                    ready = list(takewhile(buffered.__contains__, range(due, due + BLOCK)))
                    due += len(ready)
                    yield EmbeddedBlock([buffered.pop(place) for place in ready])

    def close(self) -> None:
        """Disconnect from the cluster, if this engine connected to it."""
        with self._lock:
            self._connection.close()
            self._connected = False

    def _connect(self) -> None:
        with self._lock:
            if not self._connected:
                self._connection.enter_context(connected(self.settings.address))
                self._connected = True


def open_engine(settings: EngineSettings) -> RayEngine:
    """Return an engine that embeds on a Ray cluster; `threads` are the cores of one task."""
    return RayEngine(settings)


@dataclass(frozen=True, eq=False)
class _Parcel:
    """A recording to send: its place in the order, its name here, and what is sent."""

    place: int
    name: str
    recording: Recording
    error: str = ""
    """Why it cannot be sent, if so."""

    @property
    def file(self) -> str | None:
        """The path that the worker opens, if the recording is a file."""
        path = self.recording
        return path if isinstance(path, str) and not is_url(path) else None


_Shard = tuple[_Parcel, ...]
_Found = tuple[NDArray[np.float64], Matrix, str, str]
"""What a worker returns: spans, rows, error, and its node if the file is missing there."""


class _Copy(io.BytesIO):
    """The bytes of an open file, under its name."""

    name = ""


def _shards(recordings: Iterable[Recording], at_once: Callable[[], int]) -> Iterator[_Shard]:
    """Yield shards that become smaller towards the end, so that all cores finish together."""
    coming = enumerate(recordings)
    ahead: deque[tuple[int, Recording]] = deque()
    while True:
        enough = AHEAD * max(1, at_once())
        ahead.extend(islice(coming, max(0, SHARD * enough - len(ahead))))
        if not ahead:
            return
        size = max(1, min(SHARD, len(ahead) // enough))
        yield tuple(_parcel(*ahead.popleft()) for _ in range(size))


def _parcel(place: int, recording: Recording) -> _Parcel:
    name = describe(recording)
    try:
        return _Parcel(place, name, _sendable(recording, name))
    except Exception as error:  # of a file object, or of what is no recording: one bad recording
        return _Parcel(place, name, b"", str(unreadable(recording, error)))


def _sendable(recording: Recording, name: str) -> Recording:
    """Return a recording as a path, as bytes or as samples, which another process can use."""
    if isinstance(recording, (str, os.PathLike)):
        return name if is_url(name) else str(Path(name).absolute())
    if isinstance(recording, bytes):
        return recording
    if is_encoded(recording):
        copy = _Copy(cast(BinaryIO, recording).read())
        copy.name = name
        return copy
    return Audio.of(recording)


def _split(shard: _Shard) -> Sequence[_Shard]:
    return [(parcel,) for parcel in shard] if len(shard) > 1 else ()


def _embed_shard(
    shard: _Shard, *, model: ModelSpec, expected: dict[str, str], audio_cache: bool, threads: int
) -> list[_Found]:
    """Embed a shard in a worker process."""
    engine = _worker_engine(model, audio_cache, threads)
    _check_identity(engine.backbone, expected)
    results = chain.from_iterable(engine.embed([parcel.recording for parcel in shard]))
    return [
        (result.spans, result.rows, result.error, _missing_at(parcel) if result.error else "")
        for parcel, result in zip(shard, results, strict=True)
    ]


def _unpacked(shard: _Shard, answer: "list[_Found] | Lost", dim: int) -> Iterator[Embedded]:
    """Yield the results of a shard under the names that its recordings have here."""
    if isinstance(answer, Lost):
        for parcel in shard:
            error = (
                f"{parcel.name} could not be embedded: it lost its worker {TRIES} times, which "
                f"crashed, was killed or ran out of memory ({answer.reason})"
            )
            yield failed(parcel.name, error, dim=dim)
        return
    for parcel, (spans, rows, error, missing_at) in zip(shard, answer, strict=True):
        if missing_at and parcel.file and Path(parcel.file).exists():
            error = (
                f"{parcel.name} does not exist on the node {missing_at}; put it into a folder that "
                "every node sees under the same name, or give a URL"
            )
        elif parcel.error:
            error = parcel.error
        elif parcel.file:  # the name that it has here
            error = error.replace(parcel.file, str(Path(parcel.name)))
        # Copies: the arrays that Ray returns are read-only and occupy the cluster's memory.
        yield Embedded(parcel.name, spans.copy(), rows.copy(), error)


def _missing_at(parcel: _Parcel) -> str:
    """Return the name of this node if the file of a recording does not exist here."""
    return node() if parcel.file and not Path(parcel.file).exists() else ""


@lru_cache(maxsize=2)
def _worker_engine(model: ModelSpec, audio_cache: bool, threads: int) -> local.LocalEngine:
    """Return the engine of a worker process, which loads the model once."""
    settings = EngineSettings(model.load(), model, audio_cache=audio_cache, threads=threads)
    return local.open_engine(settings)


def _identity(backbone: Backbone) -> dict[str, str]:
    """Return everything that must be the same on every node for the same rows."""
    return {
        "driftscore": __version__,
        "fingerprint": backbone.fingerprint,
        "runtime": backbone.cache_key,
    }


def _check_identity(model: Backbone, expected: dict[str, str]) -> None:
    own = _identity(model)
    differing = [
        f"{key} {own[key]} for {expected[key]}" for key in own if own[key] != expected[key]
    ]
    if differing:
        raise MismatchError(
            f"The model {model.name} is not the one that was asked for ({', '.join(differing)}); "
            "install the same driftscore, extras and weights on every node"
        )
