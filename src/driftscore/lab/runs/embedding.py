"""Embed a condition once: its clips are decoded, mixed and embedded, a few hundred at a time.

Rows are clips in the dataset's order; a clip that cannot be used is a row of zeros with its error.
A file that is damaged, or that has another number of clips, counts as missing.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Audio
from driftscore.backbones.vectors import Matrix, Vector
from driftscore.embedder import Embedder
from driftscore.errors import DriftscoreError
from driftscore.lab.conditions import Condition, canonical, generator
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.folders import load
from driftscore.lab.corpora.noises import find_noise
from driftscore.lab.mixing.record import mix
from driftscore.lab.mixing.sounds import digest
from driftscore.lab.runs.mixes import record_of
from driftscore.lab.runs.store import Array, ArrayFiles, Entries

CHUNK = 200
"""Clips in one file of embeddings: at most this many are lost when a run is killed."""

ANCHORS = 200
ANCHOR_S = 10.0
"""How many excerpts represent a noise corpus (200 in the paper), and their length."""

MAX_BACKGROUNDS = 4000

# The background of a soundscape has the same level at every SNR: it is embedded once.
_backgrounds: dict[tuple[str, str], Vector] = {}


@dataclass(frozen=True, eq=False)
class ConditionEmbeddings:
    """The embeddings of a condition, one row per clip."""

    rows: Matrix
    usable: NDArray[np.bool_]
    environments: tuple[str, ...]
    backgrounds: Matrix | None
    failures: Mapping[str, str]


def chunk_sizes(clips: int) -> list[int]:
    """Return how many of so many clips are in each file of embeddings."""
    return [min(CHUNK, clips - first) for first in range(0, clips, CHUNK)]


def chunk_names(condition: Condition, number: int, *, backgrounds: bool = False) -> list[str]:
    """Return the files that may hold a chunk, the one with backgrounds first: it has all."""
    name = f"{condition.key}#{number}"
    return [f"{name}#backgrounds"] if backgrounds else [f"{name}#backgrounds", name]


def find_chunk(
    files: ArrayFiles, condition: Condition, number: int, clips: int, *, backgrounds: bool = False
) -> dict[str, Array] | None:
    """Return the arrays of a chunk of so many clips, or None if there are no valid ones."""
    for name in chunk_names(condition, number, backgrounds=backgrounds):
        arrays = files.get_arrays("embeddings", name) or {}
        required = ["rows", "errors", "environments"]
        if name.endswith("#backgrounds") and not condition.clean:
            required.append("backgrounds")
        if all(array in arrays and len(arrays[array]) == clips for array in required):
            return arrays
    return None


def embed_chunk(
    files: ArrayFiles,
    condition: Condition,
    number: int,
    clips: Sequence[Clip],
    embedder: Embedder,
    *,
    backgrounds: bool,
    noise_home: str | Path | None,
) -> Entries:
    """Embed one chunk of all `clips` of a condition and store it, unless it is stored already."""
    some = clips[number * CHUNK : (number + 1) * CHUNK]
    model, started = embedder.backbone, time.monotonic()
    if find_chunk(files, condition, number, len(some), backgrounds=backgrounds) is not None:
        return Entries()
    rows = np.zeros((len(some), model.dim), np.float32)
    behind = np.zeros_like(rows)
    environments, errors = [""] * len(some), [""] * len(some)
    # What each recording given to the embedder is: a clip's number, and for a background the key
    # under which its embedding is remembered.
    order: deque[tuple[int, tuple[str, str] | None]] = deque()

    def recordings() -> Iterator[Audio]:
        for index, clip in enumerate(some):
            try:
                audio, background, environment = prepare(condition, clip, model.rate, noise_home)
            except DriftscoreError as error:
                errors[index] = str(error) or type(error).__name__
                continue
            environments[index] = environment
            order.append((index, None))
            yield audio
            if backgrounds and background is not None:
                key = (model.cache_key, digest(background.samples, background.rate))
                if (row := _backgrounds.get(key)) is not None:
                    behind[index] = row
                else:
                    order.append((index, key))
                    yield background

    for embedded in embedder.embed(recordings()):
        index, key = order.popleft()
        if embedded.error:
            errors[index] = errors[index] or embedded.error
        elif key is None:
            rows[index] = embedded.embedding
        else:
            if len(_backgrounds) >= MAX_BACKGROUNDS:
                _backgrounds.clear()
            behind[index] = _backgrounds[key] = embedded.embedding
    failures = []
    for index, error in enumerate(errors):
        if error:
            rows[index], environments[index] = 0, ""
            failures.append((condition, some[index].id, error))
    arrays: dict[str, Array] = {
        "rows": rows, "environments": np.array(environments), "errors": np.array(errors)
    }  # fmt: skip
    if backgrounds and not condition.clean:
        arrays["backgrounds"] = behind
    name = chunk_names(condition, number, backgrounds=backgrounds)[-1]
    files.put_arrays("embeddings", name, arrays)
    cost = (condition.backbone, len(some), time.monotonic() - started)
    return Entries(failures=failures, costs=[cost])


def load_embeddings(
    files: ArrayFiles,
    condition: Condition,
    clips: Sequence[str],
    *,
    backgrounds: bool = False,
) -> ConditionEmbeddings | None:
    """Return the embeddings of a condition by the ids of its clips, or None if any is missing."""
    parts = []
    for number, size in enumerate(chunk_sizes(len(clips))):
        arrays = find_chunk(files, condition, number, size, backgrounds=backgrounds)
        if arrays is None:
            return None
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


def find_anchors(files: ArrayFiles, name: str) -> Matrix | None:
    """Return the anchor embeddings of that name, or None if there are none."""
    rows = (files.get_arrays("embeddings", name) or {}).get("rows")
    return rows.astype(np.float32) if rows is not None and len(rows) == ANCHORS else None


def embed_anchors(
    files: ArrayFiles, name: str, noise: str, embedder: Embedder, *, home: str | Path | None
) -> None:
    """Embed the excerpts that represent a noise corpus: the same for every condition."""
    if find_anchors(files, name) is not None:
        return
    corpus, rate = find_noise(noise, home), embedder.backbone.rate
    excerpts = (
        corpus.sample(ANCHOR_S, rate, generator("anchors", noise, number)).audio
        for number in range(ANCHORS)
    )
    rows = np.stack([embedded.embedding for embedded in embedder.embed(excerpts)])
    files.put_arrays("embeddings", name, {"rows": rows})


def prepare(
    condition: Condition, clip: Clip, rate: int, noise_home: str | Path | None
) -> tuple[Audio, Audio | None, str]:
    """Return a clip in a condition, the background alone, and its environment in words.

    A clean clip is as it is, and has neither.
    """
    if condition.clean:
        return load(str(clip.path), rate), None, ""
    record = record_of(condition, clip, rate, noise_home)
    mixed = mix(record, load)
    return mixed.audio, mixed.background, record.environment
