"""Hear a condition once: decode, mix and embed its clips, a few hundred at a time.

The draw of a mix (which recording, where in it, when the event begins) belongs to dataset,
clip, noise, mixing and seed, not to the SNR or the model: along an SNR axis only the gain
changes. Rows are clips in the dataset's order; a clip that cannot be used is a row of zeros
with its reason.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Audio
from driftscore.backbones import Backbone
from driftscore.errors import DriftscoreError
from driftscore.files import cache_home
from driftscore.lab import sounds
from driftscore.lab.corpora import Clip
from driftscore.lab.grid import Condition, canonical
from driftscore.lab.loudness import LoudnessMeter
from driftscore.lab.mixing import (
    SOUNDSCAPE_S,
    MixRecord,
    draw_additive,
    draw_scaper,
    mix,
)
from driftscore.lab.noises import find_noise
from driftscore.lab.seeds import generator
from driftscore.lab.sounds import Sound
from driftscore.lab.store import Arrays, Store
from driftscore.vectors import Matrix, Vector

CHUNK = 200
"""Clips in one file of embeddings: the most that is lost when a run is killed."""

ANCHORS = 200
ANCHOR_S = 10.0
"""How many clips of a corpus stand for its noise (the paper's 200), and how long each is."""

_MEMO = 4000


@dataclass(frozen=True, eq=False)
class Heard:
    """A condition's embeddings, clip by clip."""

    rows: Matrix
    usable: NDArray[np.bool_]
    environments: tuple[str, ...]
    backgrounds: Matrix | None
    failures: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class _Sound:
    """What a clip sounds like in a condition, and the background alone."""

    audio: Audio
    background: Audio | None = None
    environment: str = ""


def chunk_count(clips: int) -> int:
    """Return how many files the embeddings of so many clips take."""
    return -(-clips // CHUNK)


def chunk_name(condition: Condition, chunk: int, *, backgrounds: bool) -> str:
    """Return the name of a file of embeddings."""
    return f"{condition.key}#{chunk}{'#backgrounds' if backgrounds else ''}"


def find_chunk(
    store: Store, condition: Condition, chunk: int, *, backgrounds: bool
) -> Arrays | None:
    """Return a chunk of embeddings; one that also holds backgrounds will always do."""
    names = [chunk_name(condition, chunk, backgrounds=True)]
    names += [] if backgrounds else [chunk_name(condition, chunk, backgrounds=False)]
    found = (store.get_arrays("embeddings", name) for name in names)
    return next((arrays for arrays in found if arrays is not None), None)


def has_chunk(store: Store, condition: Condition, chunk: int, *, backgrounds: bool) -> bool:
    """Return whether a chunk is there, by its file alone."""
    flags = (True,) if backgrounds else (True, False)
    names = (chunk_name(condition, chunk, backgrounds=flag) for flag in flags)
    return any(store.path("embeddings", name).is_file() for name in names)


def embed_chunk(
    store: Store,
    condition: Condition,
    clips: Sequence[Clip],
    chunk: int,
    backbone: Backbone,
    *,
    noise_home: str | Path | None,
    backgrounds: bool,
) -> None:
    """Hear one chunk of a condition's clips and keep its embeddings."""
    if find_chunk(store, condition, chunk, backgrounds=backgrounds) is not None:
        return
    started = time.monotonic()
    some = clips[chunk * CHUNK : (chunk + 1) * CHUNK]
    rows = np.zeros((len(some), backbone.dim), np.float32)
    behind = np.zeros_like(rows) if backgrounds and not condition.clean else None
    environments, errors = [""] * len(some), [""] * len(some)
    for index, clip in enumerate(some):
        try:
            sound = _heard(condition, clip, backbone.rate, noise_home)
            rows[index] = backbone.embed_audio([sound.audio])[0]
            environments[index] = sound.environment
            if behind is not None and sound.background is not None:
                behind[index] = _memorised(backbone, sound.background)
        except DriftscoreError as error:
            rows[index], errors[index] = 0, str(error) or type(error).__name__
    arrays: Arrays = {
        "rows": rows,
        "environments": np.array(environments),
        "errors": np.array(errors),
    }
    if behind is not None:
        arrays["backgrounds"] = behind
    name = chunk_name(condition, chunk, backgrounds=backgrounds)
    store.put_arrays("embeddings", name, arrays)
    failures = {clip.id: error for clip, error in zip(some, errors, strict=True) if error}
    if failures:
        store.put_failures(condition, failures)
    store.add_cost(condition.backbone, len(some), time.monotonic() - started)


def load_heard(
    store: Store, condition: Condition, clips: Sequence[str], *, backgrounds: bool = False
) -> Heard | None:
    """Return a condition's embeddings by its clips' ids, or None if any is missing."""
    parts = []
    for chunk in range(chunk_count(len(clips))):
        arrays = find_chunk(store, condition, chunk, backgrounds=backgrounds)
        if arrays is None:
            return None
        parts.append(arrays)
    errors = np.concatenate([part["errors"] for part in parts])
    behind = (
        np.concatenate([part["backgrounds"] for part in parts])
        if all("backgrounds" in part for part in parts)
        else None
    )
    return Heard(
        np.concatenate([part["rows"] for part in parts]),
        errors == "",
        tuple(str(e) for part in parts for e in part["environments"]),
        behind,
        {clip: str(e) for clip, e in zip(clips, errors, strict=True) if e},
    )


def anchors_name(noise: str, noise_data: str, condition: Condition) -> str:
    """Return the name of a corpus's anchor embeddings for a condition's model."""
    model = [condition.backbone, condition.model]
    return canonical(["anchors", noise, noise_data, *model, ANCHORS, ANCHOR_S])


def embed_anchors(
    store: Store, name: str, noise: str, backbone: Backbone, *, home: str | Path | None
) -> None:
    """Embed the clips that stand for a noise corpus: the same for every condition."""
    if store.get_arrays("embeddings", name) is not None:
        return
    rows: list[Vector] = []
    for number in range(ANCHORS):
        rng = generator("anchors", noise, number)
        stretch = find_noise(noise).sample(ANCHOR_S, backbone.rate, rng, home=home)
        rows.append(backbone.embed_audio([stretch.audio])[0])
    store.put_arrays("embeddings", name, {"rows": np.stack(rows)})


def record_of(
    condition: Condition, clip: Clip, rate: int, noise_home: str | Path | None = None
) -> MixRecord:
    """Fix the mix of a clip in a noisy condition: files, positions, gains."""
    key = ("mix", condition.dataset, clip.id, condition.noise, condition.mixing, condition.seed)
    rng, seed = generator(*key), canonical(key)
    file = str(clip.path)
    event = Sound(file, sounds.load(file, rate), ", ".join(clip.labels))
    seconds = SOUNDSCAPE_S if condition.mixing == "scaper" else event.audio.seconds
    background = find_noise(str(condition.noise)).sample(
        seconds, rate, rng, home=noise_home, avoid=clip.labels
    )
    snr_db = float(condition.snr_db or 0.0)
    if condition.mixing == "scaper":
        return draw_scaper([event], background, snr_db=snr_db, meter=_meter(), seed=seed, rng=rng)
    return draw_additive(event, background, snr_db=snr_db, seed=seed)


def _heard(condition: Condition, clip: Clip, rate: int, noise_home: str | Path | None) -> _Sound:
    if condition.clean:
        return _Sound(sounds.load(str(clip.path), rate))
    record = record_of(condition, clip, rate, noise_home)
    made = mix(record)
    environment = next(part.label for part in record.parts if part.role == "background")
    return _Sound(made.audio, made.background, environment)


@lru_cache(maxsize=1)
def _meter() -> LoudnessMeter:
    return LoudnessMeter(cache_home() / "loudness.sqlite")


_memo: dict[tuple[str, str], Vector] = {}


def _memorised(backbone: Backbone, audio: Audio) -> Vector:
    """Embed a background; in scaper's soundscapes it is the same at every SNR."""
    key = (backbone.fingerprint, sounds.digest(audio.samples, audio.rate))
    if key not in _memo:
        if len(_memo) >= _MEMO:
            _memo.clear()
        _memo[key] = backbone.embed_audio([audio])[0]
    return _memo[key]
