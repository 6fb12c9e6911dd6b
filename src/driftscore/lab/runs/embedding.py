"""Embed a condition once: its clips are decoded, mixed and embedded, a few hundred at a time.

Rows are clips in the dataset's order; a clip that cannot be used is a row of zeros with its error.
A file whose arrays are not of that form (another number of clips or dimensions, NaN, a row of zeros
without an error) is damaged and counts as missing.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Audio
from driftscore.embedder import Embedded, Embedder
from driftscore.errors import DriftscoreError
from driftscore.lab.conditions import Condition, canonical
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.loading import load
from driftscore.lab.corpora.noises import find_noise
from driftscore.lab.mixing.sounds import digest
from driftscore.lab.runs.mixes import build, record_of
from driftscore.lab.runs.store import Array, Store
from driftscore.lab.seeds import generator
from driftscore.vectors import Matrix, Vector

CHUNK = 200
"""Clips in one file of embeddings: at most this many are lost when a run is killed."""

ANCHORS = 200
ANCHOR_S = 10.0
"""How many excerpts represent a noise corpus (200 in the paper), and their length."""

_MEMO = 4000


@dataclass(frozen=True, eq=False)
class ConditionEmbeddings:
    """The embeddings of a condition, one row per clip."""

    rows: Matrix
    usable: NDArray[np.bool_]
    environments: tuple[str, ...]
    backgrounds: Matrix | None
    failures: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class PreparedClip:
    """The audio of a clip in a condition, the background alone, and its environment in words."""

    audio: Audio
    background: Audio | None = None
    environment: str = ""


@dataclass(frozen=True)
class ChunkId:
    """One file of embeddings: some clips of a condition, with or without their backgrounds."""

    condition: Condition
    number: int
    backgrounds: bool = False

    @property
    def name(self) -> str:
        """The name of the file in the store."""
        return f"{self.condition.key}#{self.number}{'#backgrounds' if self.backgrounds else ''}"

    @property
    def sufficient(self) -> tuple["ChunkId", ...]:
        """The chunks that contain this one: one with backgrounds contains the one without."""
        fuller = ChunkId(self.condition, self.number, True)
        return (fuller,) if self.backgrounds else (fuller, self)


def chunk_count(clips: int) -> int:
    """Return how many files the embeddings of so many clips take."""
    return -(-clips // CHUNK)


def chunk_size(clips: int, number: int) -> int:
    """Return how many of so many clips are in a file of embeddings."""
    return max(0, min(CHUNK, clips - number * CHUNK))


def find_chunk(
    store: Store, chunk: ChunkId, clips: int, dim: int | None = None
) -> dict[str, Array] | None:
    """Return the arrays of a chunk of so many clips, or None if there are no valid ones."""
    for other in chunk.sufficient:
        arrays = store.get_arrays("embeddings", other.name)
        behind = other.backgrounds and not other.condition.clean
        if arrays is not None and _is_chunk(arrays, clips, dim, backgrounds=behind):
            return arrays
    return None


def has_chunk(store: Store, chunk: ChunkId) -> bool:
    """Return whether the file of a chunk exists; whether it is valid is not checked."""
    return any(store.path("embeddings", other.name).is_file() for other in chunk.sufficient)


def _is_chunk(
    arrays: Mapping[str, Array], clips: int, dim: int | None, *, backgrounds: bool
) -> bool:
    """Return whether arrays are the embeddings of so many clips."""
    errors, places = arrays.get("errors"), arrays.get("environments")
    for texts in (errors, places):
        if texts is None or texts.dtype.kind != "U" or texts.shape != (clips,):
            return False
    rows, nothing = arrays.get("rows"), np.zeros(clips, np.bool_)
    if not is_matrix(rows, clips, dim, usable=np.asarray(errors) == ""):
        return False
    return not backgrounds or is_matrix(arrays.get("backgrounds"), clips, dim, usable=nothing)


def is_matrix(
    array: Array | None,
    rows: int,
    width: int | None = None,
    *,
    usable: NDArray[np.bool_] | slice = slice(None),
) -> bool:
    """Return whether an array is so many rows of finite floats, those in use not only zeros."""
    if array is None or array.dtype.kind != "f" or array.ndim != 2 or len(array) != rows:
        return False
    if not array.shape[1] or width not in (None, array.shape[1]):
        return False
    return bool(np.isfinite(array).all()) and bool(array[usable].any(axis=1).all())


def embed_chunk(
    store: Store,
    chunk: ChunkId,
    clips: Sequence[Clip],
    embedder: Embedder,
    *,
    noise_home: str | Path | None,
) -> None:
    """Embed one chunk of all `clips` of a condition and store it, unless it is stored already."""
    some = clips[chunk.number * CHUNK : (chunk.number + 1) * CHUNK]
    if find_chunk(store, chunk, len(some), embedder.backbone.dim) is not None:
        return
    started = time.monotonic()
    work = _ChunkWork(chunk, some, embedder, noise_home)
    store.put_arrays("embeddings", chunk.name, work.run())
    failures = {clip.id: error for clip, error in zip(some, work.errors, strict=True) if error}
    if failures:
        store.put_failures(chunk.condition, failures)
    store.add_cost(chunk.condition.backbone, len(some), time.monotonic() - started)


class _ChunkWork:
    """The embeddings of a chunk while they are computed."""

    def __init__(
        self,
        chunk: ChunkId,
        clips: Sequence[Clip],
        embedder: Embedder,
        noise_home: str | Path | None,
    ) -> None:
        self.chunk, self.clips, self.embedder, self.noise_home = chunk, clips, embedder, noise_home
        self.rows = np.zeros((len(clips), embedder.backbone.dim), np.float32)
        wanted = chunk.backgrounds and not chunk.condition.clean
        self.backgrounds = np.zeros_like(self.rows) if wanted else None
        self.environments, self.errors = [""] * len(clips), [""] * len(clips)
        # What each recording given to the embedder is: a clip's number, and for a background the
        # key of its embedding in the memo.
        self.order: deque[tuple[int, tuple[str, str] | None]] = deque()

    def run(self) -> dict[str, Array]:
        """Embed the clips and return the arrays of the chunk."""
        for embedded in self.embedder.embed(self._recordings()):
            self._take(embedded)
        for index, error in enumerate(self.errors):
            if error:
                self.rows[index], self.environments[index] = 0, ""
        arrays: dict[str, Array] = {
            "rows": self.rows,
            "environments": np.array(self.environments),
            "errors": np.array(self.errors),
        }
        return arrays if self.backgrounds is None else arrays | {"backgrounds": self.backgrounds}

    def _recordings(self) -> Iterator[Audio]:
        """Yield the audio of each clip, then its background if that is wanted and not known."""
        model = self.embedder.backbone
        for index, clip in enumerate(self.clips):
            try:
                made = prepare(self.chunk.condition, clip, model.rate, self.noise_home)
            except DriftscoreError as error:
                self.errors[index] = str(error) or type(error).__name__
                continue
            self.environments[index] = made.environment
            self.order.append((index, None))
            yield made.audio
            if self.backgrounds is not None and made.background is not None:
                samples, rate = made.background.samples, made.background.rate
                key = (model.cache_key, digest(samples, rate))
                if key in _memo:
                    self.backgrounds[index] = _memo[key]
                else:
                    self.order.append((index, key))
                    yield made.background

    def _take(self, embedded: Embedded) -> None:
        """Store the embedding of the recording that is next in order, or its error."""
        index, key = self.order.popleft()
        if embedded.error:
            self.errors[index] = self.errors[index] or embedded.error
        elif key is None:
            self.rows[index] = embedded.embedding
        elif self.backgrounds is not None:
            self.backgrounds[index] = _remember(key, embedded.embedding)


def load_embeddings(
    store: Store,
    condition: Condition,
    clips: Sequence[str],
    *,
    backgrounds: bool = False,
    dim: int | None = None,
) -> ConditionEmbeddings | None:
    """Return the embeddings of a condition by the ids of its clips, or None if any is missing."""
    parts = []
    for number in range(chunk_count(len(clips))):
        chunk = ChunkId(condition, number, backgrounds)
        arrays = find_chunk(store, chunk, chunk_size(len(clips), number), dim)
        if arrays is None:
            return None
        dim = arrays["rows"].shape[1]
        parts.append(arrays)
    errors = np.concatenate([part["errors"] for part in parts])
    behind = None
    if all("backgrounds" in part for part in parts):
        behind = np.concatenate([part["backgrounds"] for part in parts]).astype(np.float32)
    return ConditionEmbeddings(
        np.concatenate([part["rows"] for part in parts]).astype(np.float32),
        errors == "",
        tuple(str(e) for part in parts for e in part["environments"]),
        behind,
        {clip: str(e) for clip, e in zip(clips, errors, strict=True) if e},
    )


def anchors_name(noise: str, noise_data: str, condition: Condition) -> str:
    """Return the name of the anchor embeddings of a noise corpus for a condition's model."""
    model = [condition.backbone, condition.model]
    return canonical(["anchors", noise, noise_data, *model, ANCHORS, ANCHOR_S])


def find_anchors(store: Store, name: str, dim: int) -> Matrix | None:
    """Return the anchor embeddings of that name, or None if there are no valid ones."""
    arrays = store.get_arrays("embeddings", name)
    if arrays is None or not is_matrix(arrays.get("rows"), ANCHORS, dim):
        return None
    return arrays["rows"].astype(np.float32)


def embed_anchors(
    store: Store, name: str, noise: str, embedder: Embedder, *, home: str | Path | None
) -> None:
    """Embed the excerpts that represent a noise corpus: the same for every condition."""
    if find_anchors(store, name, embedder.backbone.dim) is not None:
        return
    corpus, rate = find_noise(noise, home), embedder.backbone.rate
    excerpts = (
        corpus.sample(ANCHOR_S, rate, generator("anchors", noise, number), home=home).audio
        for number in range(ANCHORS)
    )
    rows = np.stack([embedded.embedding for embedded in embedder.embed(excerpts)])
    store.put_arrays("embeddings", name, {"rows": rows})


def prepare(
    condition: Condition, clip: Clip, rate: int, noise_home: str | Path | None
) -> PreparedClip:
    """Return the audio of a clip in a condition: as it is, or mixed."""
    if condition.clean:
        return PreparedClip(load(str(clip.path), rate))
    record = record_of(condition, clip, rate, noise_home)
    made = build(record)
    return PreparedClip(made.audio, made.background, record.environment)


# The background of a soundscape has the same level at every SNR: it is embedded once.
_memo: dict[tuple[str, str], Vector] = {}


def _remember(key: tuple[str, str], row: Vector) -> Vector:
    if len(_memo) >= _MEMO:
        _memo.clear()
    _memo[key] = row
    return row
