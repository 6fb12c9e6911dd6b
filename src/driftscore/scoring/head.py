"""Head: labels, weights (C x d) and offsets (C), what every rule compiles to; and its results.

    score(z) = W z + b

Scoring is one matrix product whatever the rule, and `weights` can take the place of the
text embeddings in any system that already ranks labels by a dot product.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import ArrayLike

from driftscore.backbones.vectors import Matrix, Scores, Vector, matrix
from driftscore.errors import FormatError, MismatchError, UsageError
from driftscore.storage.checked import Text, decode
from driftscore.storage.files import read_text, reading, replacing
from driftscore.storage.npz import read_npz, text_of, texts_of
from driftscore.storage.tensors import read_tensors, write_tensors

UNITS = {
    "cosine": "cosine between the recording and the label, from -1 to 1",
    "sd": "standard deviations above what the label scores on other sounds",
    "raw": "as the rule gives them, without a unit",
}
"""The units of scores in words. Labels are compared by cosine, and judged one by one in sd."""
HEAD_ENDINGS = (".safetensors", ".npz", ".json")
_PARTS = ("labels", "weights", "offsets")
_MAX_JSON_BYTES = 500_000_000  # 10,000 labels in 2,000 dimensions
_BLOCK = 2048


class HeadAbout(Struct):
    """The description of a head in its file."""

    labels: Annotated[tuple[Text, ...], Meta(min_length=1)]
    made_by: dict[str, object]


@dataclass(frozen=True, eq=False)
class Head:
    """An affine map from an embedding to one score per label."""

    labels: tuple[str, ...]
    weights: Matrix
    offsets: Vector = field(default_factory=lambda: np.zeros(0, np.float32))
    """One per label; without them they are zeros."""
    made_by: Mapping[str, Any] = field(default_factory=dict)
    """Everything that made it: the rule, its settings, and the bank's own record."""

    def __post_init__(self) -> None:
        weights = matrix(self.weights, what="Head weights")
        offsets = np.asarray(self.offsets, np.float32)
        if not offsets.size:
            offsets = np.zeros(len(weights), np.float32)
        if len(self.labels) != len(weights) or offsets.shape != (len(weights),):
            raise UsageError(
                "A head has one weight row and one offset per label; got "
                f"{len(self.labels)} labels, {len(weights)} rows and offsets {offsets.shape}"
            )
        if not np.isfinite(offsets).all():
            raise UsageError("Head offsets hold NaN or infinite values")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "offsets", offsets)

    @property
    def dim(self) -> int:
        """Length of the embeddings that it scores."""
        return int(self.weights.shape[1])

    @property
    def standardised(self) -> bool:
        """Whether scores are standard deviations above those of other sounds."""
        return bool(self.made_by.get("standardised", False))

    @property
    def unit(self) -> str:
        """The unit of its scores: a key of `UNITS`."""
        if self.standardised:
            return "sd"
        lengths = np.linalg.norm(self.weights, axis=1)
        return "cosine" if np.allclose(lengths, 1, atol=1e-4) and not self.offsets.any() else "raw"

    def scores(self, z: ArrayLike) -> Scores:
        """Return the n x C scores of n embeddings (or of one, as 1 x C).

        Offsets are added in float64: a constant per class then never merges two scores,
        so it leaves every per-class ranking, and so average precision, exactly as it was.
        """
        rows = matrix(z, what="Embeddings")
        if rows.shape[1] != self.dim:
            raise MismatchError(
                f"The embeddings have {rows.shape[1]} dimensions, the head {self.dim}: "
                "they come from different models"
            )
        scores = products(rows, self.weights)
        scores += self.offsets.astype(np.float64)
        return scores

    def save(self, path: str | PathLike[str]) -> None:
        """Write as safetensors, or as npz or JSON if that is how `path` ends."""
        about = {"labels": list(self.labels), "made_by": dict(self.made_by)}
        format = Path(path).suffix.lower()
        if format == ".npz":
            with replacing(path) as partial:
                np.savez(
                    partial,
                    labels=np.array(self.labels),
                    weights=self.weights,
                    offsets=self.offsets,
                    made_by=np.array(json.dumps(about["made_by"], sort_keys=True)),
                )
        elif format == ".json":
            content = {
                "labels": about["labels"],
                "weights": [[float(str(w)) for w in row] for row in self.weights],
                "offsets": [float(str(b)) for b in self.offsets],
                "made_by": about["made_by"],
            }
            with replacing(path) as partial:
                partial.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        else:
            tensors = {"weights": self.weights, "offsets": self.offsets}
            write_tensors(path, tensors, kind="head", about=about)

    @staticmethod
    def load(path: str | PathLike[str]) -> "Head":
        """Read a head from any of the three formats."""
        path = Path(path)
        format = path.suffix.lower()
        what = "head" + {".npz": " in npz format", ".json": " in JSON format"}.get(format, "")
        content: dict[str, Any]
        with reading(path, what):
            if format == ".npz":
                content = dict(read_npz(path, (*_PARTS, "made_by"), what=what))
            elif format == ".json":
                content = json.loads(read_text(path, what, most=_MAX_JSON_BYTES))
            else:
                tensors, described = read_tensors(path, kind="head", needs=("weights", "offsets"))
                content = {**described, **tensors}
            for name in _PARTS:
                if name not in content or not np.size(content[name]):
                    raise FormatError(f"{path} is not a {what}: it lacks {name!r}")
            labels, made_by = content["labels"], content.get("made_by")
            if format == ".npz":
                labels = texts_of(labels, what="labels")
                made_by = json.loads("{}" if made_by is None else text_of(made_by, what="made_by"))
            stated = {"labels": labels, "made_by": made_by or {}}
            about = decode(stated, HeadAbout, where=str(path))
            weights, offsets = np.array(content["weights"]), np.array(content["offsets"])
            if weights.dtype.kind not in "fiu" or offsets.dtype.kind not in "fiu":
                raise UsageError(
                    f"weights and offsets must be numbers, not {weights.dtype} and {offsets.dtype}"
                )
            # Too large numbers become infinite, which is refused.
            with np.errstate(over="ignore", invalid="ignore"):
                weights, offsets = weights.astype(np.float32), offsets.astype(np.float32)
            return Head(about.labels, weights, offsets, about.made_by)


def join_heads(heads: Sequence[Head]) -> Head:
    """Return one head with the labels of several, which must be of one model and in one unit."""
    first = heads[0]
    for head in heads[1:]:
        if head.made_by.get("fingerprint") != first.made_by.get("fingerprint"):
            names = [str(h.made_by.get("backbone", "an unknown model")) for h in (first, head)]
            raise MismatchError(f"Heads of two models cannot be joined: {' and '.join(names)}")
        if head.standardised != first.standardised:
            raise MismatchError("Raw and standardised heads cannot be joined: compile both alike")
    labels = [label for head in heads for label in head.labels]
    if again := [label for n, label in enumerate(labels) if label in labels[:n]]:
        raise UsageError(f"Two of the heads have the label {again[0]!r}; keep one of them")
    made_by = {**first.made_by, "joined": [dict(head.made_by) for head in heads]}
    weights = np.concatenate([head.weights for head in heads])
    return Head(tuple(labels), weights, np.concatenate([h.offsets for h in heads]), made_by)


def products(left: Matrix, right: Matrix) -> Scores:
    """Return all dot products of the rows of `left` with the rows of `right`.

    BLAS picks its kernel by the shape, so the last bits of a float32 product depend on
    how many rows go in together. The product is taken in float64 and rounded to float32
    values, which makes a clip's scores the same alone and in any batch.
    """
    exact: Scores = left.astype(np.float64) @ right.astype(np.float64).T
    exact[...] = exact.astype(np.float32)
    return exact


@dataclass(eq=False, slots=True)  # not frozen: that takes five times as long to make
class Result:
    """The scores of one recording, or the error that prevented them."""

    source: str
    labels: tuple[str, ...] = ()
    scores: Scores | None = None
    seconds: float = 0.0
    error: str = ""
    fits: tuple[bool, ...] | None = None
    """Whether each label fits at all; None where that was not asked: the best one is taken."""
    top: Sequence[tuple[str, float]] | None = None
    """The first two of the ranking, where they are known already."""

    @property
    def ranking(self) -> list[tuple[str, float]]:
        """Labels with their scores, best first; ties in the order of the labels."""
        if self.scores is None:
            return []
        order = np.argsort(-self.scores, kind="stable")
        return [(self.labels[c], float(self.scores[c])) for c in order]

    def best_two(self) -> Sequence[tuple[str, float]]:
        """Return the first two of the ranking."""
        return self.ranking[:2] if self.top is None else self.top

    @property
    def label(self) -> str:
        """The best label; empty if none fits."""
        if self.scores is None:
            return ""
        if self.fits is None:
            return self.best_two()[0][0]
        fitting = np.where(self.fits, self.scores, -math.inf)
        return self.labels[int(fitting.argmax())] if any(self.fits) else ""

    @property
    def margin(self) -> float:
        """How far the best label is ahead of the runner-up; infinite if there is none."""
        best = self.best_two()
        return best[0][1] - best[1][1] if len(best) > 1 else math.inf

    def above(self, threshold: float) -> list[str]:
        """Return every label whose score reaches `threshold`, best first."""
        if self.scores is None:
            return []
        chosen = np.flatnonzero(self.scores >= threshold)
        order = chosen[np.argsort(-self.scores[chosen], kind="stable")]
        return [self.labels[c] for c in order]


def results_of(
    labels: tuple[str, ...],
    sources: Sequence[str],
    scores: Scores,
    seconds: Sequence[float] | None = None,
    errors: Sequence[str] | None = None,
) -> Iterator[Result]:
    """Yield the results of recordings that were scored together, `scores` without the bad ones.

    Their best labels are found for all at once: an archive has 100,000 recordings.
    """
    columns: list[Iterable[tuple[str, float]]] = []
    rest, every = scores.copy(), np.arange(len(scores))
    for _ in labels[:2] if len(scores) else ():
        best = rest.argmax(axis=1)
        names = [labels[c] for c in best.tolist()]
        columns.append(zip(names, scores[every, best].tolist(), strict=True))
        rest[every, best] = -math.inf
    rows = zip(scores, zip(*columns, strict=True), strict=False)
    ends, failures = seconds or repeat(0.0), errors or repeat("")
    for source, end, error in zip(sources, ends, failures, strict=False):
        if error:
            yield Result(source, labels, error=error)
        else:
            row, best_two = next(rows)
            yield Result(source, labels, row, end, "", None, best_two)


def score_embeddings(head: Head, names: Sequence[str], rows: Matrix) -> Iterator[Result]:
    """Yield the results of recordings that were embedded before."""
    for first in range(0, len(rows), _BLOCK):
        part = slice(first, first + _BLOCK)
        yield from results_of(head.labels, names[part], head.scores(rows[part]))
