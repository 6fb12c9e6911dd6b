"""On a Ray cluster: many machines, the same rows.

Recordings go out in shards of a few, each a Ray task of one core; a worker process loads
the model once and sends back the windows' spans and embeddings, some 2 KB a window. What a
lost worker had in hand is handed out again. A shard that loses its worker each time is
taken apart, so that the one recording that crashes a decoder is a row with an error and its
neighbours are heard. Recordings, models and stores must lie where every node sees them.
"""

import io
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore import __version__
from driftscore.audio import Source, describe
from driftscore.backbones import Backbone, cache_key, load_backbone
from driftscore.engines import Heard, failed, local, thread_count
from driftscore.engines._ray_work import AHEAD, TRIES, Lost, connected, lanes, node, work
from driftscore.errors import MismatchError, UsageError
from driftscore.files import is_url
from driftscore.vectors import Matrix

SHARD = 16
"""Recordings in a shard: little is lost with a worker, and Ray's own cost is not felt."""

_HELD = 50_000  # windows that may wait for a slow recording before them: some 100 MB


def hear(
    sources: Iterable[Source],
    backbone: Backbone,
    *,
    spec: str = "",
    cache: bool = False,
    address: str | None = None,
    threads: int | None = None,
) -> Iterator[Heard]:
    """Yield what each recording came to, in the order given; `threads` are cores a task."""
    if not spec:
        raise UsageError(
            "The ray engine loads the model in every worker, so it must know how: give the "
            "backbone as a name or a path, not as a loaded model"
        )
    cores = 1 if threads is None else thread_count(threads)
    ask = partial(_hear_shard, spec=spec, wanted=_identity(backbone), cache=cache, threads=cores)
    held: dict[int, Heard] = {}  # heard before a recording that comes before it
    due = 0

    def full() -> bool:
        return sum(1 + len(heard.rows) for heard in held.values()) > _HELD

    with connected(address) as ray:
        shards = _shards(sources, lambda: lanes(ray, cores))
        for shard, answer in work(ask, shards, cores=cores, split=_apart, wait=full):
            for parcel, heard in zip(shard, _unpacked(shard, answer, backbone.dim), strict=True):
                held[parcel.place] = heard
            while due in held:
                due += 1
                yield replace(held.pop(due - 1), followed=due in held)


@dataclass(frozen=True, eq=False)
class _Parcel:
    """A recording on its way: its place in the order, its name here, and what is sent."""

    place: int
    name: str
    source: Source

    @property
    def file(self) -> str | None:
        """The path that the worker opens, if the recording is a file."""
        return self.source if isinstance(self.source, str) and not is_url(self.source) else None


_Shard = tuple[_Parcel, ...]
_Found = tuple[NDArray[np.float64], Matrix, str, str]
"""What a worker sends back: spans, rows, error, and the node if it does not see the file."""


class _Copy(io.BytesIO):
    """An open file's bytes under its name."""

    name = ""


def _shards(sources: Iterable[Source], at_once: Callable[[], int]) -> Iterator[_Shard]:
    """Yield shards that grow small towards the end, so that all cores end together."""
    coming = enumerate(sources)
    ahead: deque[tuple[int, Source]] = deque()
    while True:
        enough = AHEAD * max(1, at_once())
        ahead.extend(islice(coming, max(0, SHARD * enough - len(ahead))))
        if not ahead:
            return
        size = max(1, min(SHARD, len(ahead) // enough))
        yield tuple(_parcel(*ahead.popleft()) for _ in range(size))


def _parcel(place: int, source: Source) -> _Parcel:
    name = describe(source)
    if isinstance(source, (str, os.PathLike)):
        return _Parcel(place, name, name if is_url(name) else str(Path(name).absolute()))
    if hasattr(source, "read"):
        copy = _Copy(source.read())
        copy.name = name
        return _Parcel(place, name, copy)
    return _Parcel(place, name, source)


def _apart(shard: _Shard) -> Sequence[_Shard]:
    return [(parcel,) for parcel in shard] if len(shard) > 1 else ()


def _hear_shard(
    shard: _Shard, *, spec: str, wanted: dict[str, str], cache: bool, threads: int
) -> list[_Found]:
    """Hear a shard in a worker."""
    model = _model(spec)
    _check_identity(model, wanted)
    sources = [parcel.source for parcel in shard]
    heard = local.hear(sources, model, cache=cache, threads=threads)
    return [
        (found.spans, found.rows, found.error, _blind(parcel) if found.error else "")
        for parcel, found in zip(shard, heard, strict=True)
    ]


def _unpacked(shard: _Shard, answer: "list[_Found] | Lost", dim: int) -> Iterator[Heard]:
    """Yield what a shard's recordings came to, under the names that they have here."""
    if isinstance(answer, Lost):
        for parcel in shard:
            error = (
                f"{parcel.name} could not be heard: it lost its worker {TRIES} times, which "
                f"crashed, was killed or ran out of memory ({answer.reason})"
            )
            yield failed(parcel.name, error, dim=dim)
        return
    for parcel, (spans, rows, error, blind) in zip(shard, answer, strict=True):
        if blind and parcel.file and Path(parcel.file).exists():
            error = (
                f"{parcel.name} is not there on the node {blind}; put it into a folder that "
                "every node sees under the same name, or give a URL"
            )
        elif parcel.file:  # the name as it would be said here
            error = error.replace(parcel.file, str(Path(parcel.name)))
        # Copies: what Ray gives is read-only, and keeps its place in the cluster's memory.
        yield Heard(parcel.name, spans.copy(), rows.copy(), error)


def _blind(parcel: _Parcel) -> str:
    """Return this node's name if it does not see a recording's file."""
    return node() if parcel.file and not Path(parcel.file).exists() else ""


@lru_cache(maxsize=2)
def _model(spec: str) -> Backbone:
    """Load a model as the process that asks did, once a worker."""
    how = json.loads(spec)
    return load_backbone(how["spec"], **how.get("options", {}))


def _identity(backbone: Backbone) -> dict[str, str]:
    """Return all that must be the same on every node for the same rows."""
    return {
        "driftscore": __version__,
        "fingerprint": backbone.fingerprint,
        "runtime": cache_key(backbone),
    }


def _check_identity(model: Backbone, wanted: dict[str, str]) -> None:
    own = _identity(model)
    differing = [f"{key} {own[key]} for {wanted[key]}" for key in own if own[key] != wanted[key]]
    if differing:
        raise MismatchError(
            f"the model {model.name} is not the one that was asked for ({', '.join(differing)}); "
            "install the same driftscore, extras and weights on every node"
        )
