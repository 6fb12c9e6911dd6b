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
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, islice, takewhile
from pathlib import Path
from socket import gethostname
from threading import Lock
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.decoding import is_encoded
from driftscore.audio.recordings import Audio, Recording, describe, unreadable
from driftscore.backbones import Backbone
from driftscore.backbones.vectors import Matrix
from driftscore.engines.audio_cache import BLOCK
from driftscore.engines.local import LocalEngine
from driftscore.engines.protocol import (
    Embedded,
    EmbeddedBlock,
    EngineSettings,
    ModelSpec,
    failed,
    thread_count,
)
from driftscore.engines.ray_tasks import AHEAD, TRIES, Lost, connected, run_tasks, slots
from driftscore.errors import MismatchError, UsageError
from driftscore.storage.files import is_url
from driftscore.version import __version__

SHARD = 16
"""Recordings per shard: little is lost with a worker, and Ray's overhead is negligible."""

_MAX_WINDOWS = 50_000  # that may wait for a slow recording before them: about 100 MB


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
            return sum(1 + len(result.rows) for result in buffered.values()) > _MAX_WINDOWS

        def split(shard: _Shard) -> list[_Shard]:
            return [(parcel,) for parcel in shard] if len(shard) > 1 else []

        with self._lock:
            if not self._connected:
                self._connection.enter_context(connected(settings.address))
                self._connected = True
        with connected() as ray:
            shards = _shards(recordings, lambda: slots(ray, cores))
            for shard, answer in run_tasks(task, shards, cores=cores, split=split, wait=full):
                for parcel, result in zip(shard, _unpacked(shard, answer, dim), strict=True):
                    buffered[parcel.number] = result
                while due in buffered:
                    ready = list(takewhile(buffered.__contains__, range(due, due + BLOCK)))
                    due += len(ready)
                    yield EmbeddedBlock([buffered.pop(number) for number in ready])

    def close(self) -> None:
        """Disconnect from the cluster, if this engine connected to it."""
        with self._lock:
            self._connection.close()
            self._connected = False


open_engine = RayEngine


@dataclass(frozen=True, eq=False)
class _Parcel:
    """A recording to send: its number in the order, its name here, and what is sent."""

    number: int
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
_Answer = tuple[NDArray[np.float64], Matrix, str, str]
"""What a worker returns: spans, rows, error, and its node if the file is missing there."""


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


def _parcel(number: int, recording: Recording) -> _Parcel:
    """Return a recording as a path, as bytes or as samples, which another process can use."""
    name = describe(recording)
    try:
        if isinstance(recording, (str, os.PathLike)):
            recording = name if is_url(name) else str(Path(name).absolute())
        elif not isinstance(recording, bytes) and is_encoded(recording):
            copy = io.BytesIO(cast(BinaryIO, recording).read())
            copy.name = name
            recording = copy
        elif not isinstance(recording, bytes):
            recording = Audio.of(recording)
    except Exception as error:  # of a file object, or of what is no recording: one bad recording
        return _Parcel(number, name, b"", str(unreadable(recording, error)))
    return _Parcel(number, name, recording)


def _embed_shard(
    shard: _Shard, *, model: ModelSpec, expected: dict[str, str], audio_cache: bool, threads: int
) -> list[_Answer]:
    """Embed a shard in a worker process."""
    engine = _worker_engine(model, audio_cache, threads)
    own = _identity(engine.backbone)
    differing = [
        f"{key} {own[key]} for {expected[key]}" for key in own if own[key] != expected[key]
    ]
    if differing:
        raise MismatchError(
            f"The model {engine.backbone.name} is not the one that was asked for "
            f"({', '.join(differing)}); install the same driftscore, extras and weights on every "
            "node"
        )
    answers: list[_Answer] = []
    results = chain.from_iterable(engine.embed([parcel.recording for parcel in shard]))
    for parcel, result in zip(shard, results, strict=True):
        missing = result.error and parcel.file and not Path(parcel.file).exists()
        node = gethostname() if missing else ""
        answers.append((result.spans, result.rows, result.error, node))
    return answers


@lru_cache(maxsize=2)
def _worker_engine(model: ModelSpec, audio_cache: bool, threads: int) -> LocalEngine:
    """Return the engine of a worker process, which loads the model once."""
    settings = EngineSettings(model.load(), model, audio_cache=audio_cache, threads=threads)
    return LocalEngine(settings)


def _unpacked(shard: _Shard, answer: "list[_Answer] | Lost", dim: int) -> Iterator[Embedded]:
    """Yield the results of a shard under the names that its recordings have here."""
    if isinstance(answer, Lost):
        for parcel in shard:
            error = (
                f"{parcel.name} could not be embedded: it lost its worker {TRIES} times, which "
                f"crashed, was killed or ran out of memory ({answer.reason})"
            )
            yield failed(parcel.name, error, dim=dim)
        return
    for parcel, (spans, rows, error, node) in zip(shard, answer, strict=True):
        if node and parcel.file and Path(parcel.file).exists():
            error = (
                f"{parcel.name} does not exist on the node {node}; put it into a folder that "
                "every node sees under the same name, or give a URL"
            )
        elif parcel.error:
            error = parcel.error
        elif parcel.file:  # the name that it has here
            error = error.replace(parcel.file, str(Path(parcel.name)))
        # Copies: the arrays that Ray returns are read-only and occupy the cluster's memory.
        yield Embedded(parcel.name, spans.copy(), rows.copy(), error)


def _identity(backbone: Backbone) -> dict[str, str]:
    """Return everything that must be the same on every node for the same rows."""
    return {
        "driftscore": __version__,
        "fingerprint": backbone.fingerprint,
        "runtime": backbone.cache_key,
    }
