"""Head: labels, weights (C x d) and offsets (C): what every rule compiles to.

    score(z) = W z + b

Scoring is one matrix product whatever the rule, and `weights` can take the place of the
text embeddings in any system that already ranks labels by a dot product.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from driftscore.arrayfile import FileArray, read_npz, text_of, texts_of
from driftscore.errors import FormatError, MismatchError, UsageError
from driftscore.files import replacing
from driftscore.reading import read_text, reading
from driftscore.schema import anything, items, mapping, table, text, validate
from driftscore.tensorfile import read_tensors, write_tensors
from driftscore.vectors import Matrix, Scores, Vector, matrix, products

_MADE = "made_by"
_MOST_JSON = 500_000_000  # bytes: 10,000 labels in 2,000 dimensions


@dataclass(frozen=True, eq=False)
class Head:
    """An affine map from an embedding to one score per label."""

    labels: tuple[str, ...]
    weights: Matrix
    offsets: Vector
    made_by: Mapping[str, Any] = field(default_factory=dict)
    """Everything that made it: the rule, its settings, and the bank's own record."""

    def __post_init__(self) -> None:
        weights = matrix(self.weights, what="Head weights")
        offsets = np.asarray(self.offsets, np.float32)
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
        writers = {".npz": self._save_npz, ".json": self._save_json}
        writers.get(Path(path).suffix.lower(), self._save_safetensors)(path)

    @staticmethod
    def load(path: str | PathLike[str]) -> "Head":
        """Read a head from any of the three formats."""
        readers = {".npz": _load_npz, ".json": _load_json}
        return readers.get(Path(path).suffix.lower(), _load_safetensors)(Path(path))

    def _save_safetensors(self, path: str | PathLike[str]) -> None:
        tensors = {"weights": self.weights, "offsets": self.offsets}
        about = {"labels": list(self.labels), "made_by": dict(self.made_by)}
        write_tensors(path, tensors, kind="head", about=about)

    def _save_npz(self, path: str | PathLike[str]) -> None:
        with replacing(path) as partial:
            np.savez(
                partial,
                labels=np.array(self.labels),
                weights=self.weights,
                offsets=self.offsets,
                made_by=np.array(json.dumps(dict(self.made_by), sort_keys=True)),
            )

    def _save_json(self, path: str | PathLike[str]) -> None:
        content = {
            "labels": list(self.labels),
            "weights": [[float(str(w)) for w in row] for row in self.weights],
            "offsets": [float(str(b)) for b in self.offsets],
            "made_by": dict(self.made_by),
        }
        with replacing(path) as partial:
            partial.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


_ABOUT = {"labels": items(text, fewest=1), "made_by": mapping(anything)}


def _load_safetensors(path: Path) -> Head:
    tensors, about = read_tensors(
        path, kind="head", needs=("weights", "offsets"), about=table(_ABOUT, open_=True)
    )
    with reading(path, "head"):
        return Head(tuple(about["labels"]), **tensors, made_by=about["made_by"])


def _load_npz(path: Path) -> Head:
    found = read_npz(path, ("labels", "weights", "offsets", "made_by"), what="head in npz format")
    with reading(path, "head in npz format"):
        for name in ("labels", "weights", "offsets"):
            if name not in found:
                raise FormatError(f"{path} is not a head in npz format: it lacks {name!r}")
        made_by = json.loads(text_of(found["made_by"], what="made_by")) if _MADE in found else {}
        labels = list(texts_of(found["labels"], what="labels"))
        validate({"labels": labels, _MADE: made_by}, table(_ABOUT), where=str(path))
        return Head(tuple(labels), _numbers(found["weights"]), _numbers(found["offsets"]), made_by)


def _load_json(path: Path) -> Head:
    written = read_text(path, "head in JSON format", most=_MOST_JSON)
    with reading(path, "head in JSON format"):
        data = json.loads(written)
        rows = {"weights": items(anything), "offsets": items(anything)}
        validate(data, table({**_ABOUT, **rows}, open_=True), where=str(path))
        weights, offsets = (_numbers(np.array(data[name])) for name in ("weights", "offsets"))
        return Head(tuple(data["labels"]), weights, offsets, made_by=data[_MADE])


def _numbers(array: FileArray) -> Matrix:
    """Return an array of numbers as float32; too large ones become infinite, which is refused."""
    if array.dtype.kind not in "fiu":
        raise UsageError(f"weights and offsets must be numbers, not {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(np.float32)
