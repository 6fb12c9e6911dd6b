"""Tag space: a joint space of sound and text whose dimensions are AudioSet's 527 tags.

    text  q -> softmax_k(tau * S(q) . anchor_k)       S(q), anchor_k: unit sentence vectors
    clip  x -> (logit_k(x) - mu_k) / sigma_k          logits of an AudioSet tagger

both scaled to unit norm, so that a dot product measures how well a sound fits a text. The anchors
are the sentence vectors of the tags' names and descriptions; mu and sigma come from audio that is
not used in any test. Both are in `models/tagspace.safetensors` (written by
`training.text_anchors`). Every row is computed by itself: its bits do not depend on other rows.
"""

import hashlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from driftscore.backbones.protocol import TAG_SPACE
from driftscore.backbones.vectors import Matrix, Vector
from driftscore.errors import FormatError, MismatchError
from driftscore.storage.checked import Text, decode
from driftscore.storage.tensors import read_tensors

TAGS = 527
KIND = "tag space"


class _About(Struct):
    """The description in the file."""

    names: list[Text]
    tau: Annotated[float, Meta(ge=0, le=1e6)]


@dataclass(frozen=True)
class TagSpace:
    """Names of the tags, their anchors (527, sentence width), tau, and a tagger's statistics."""

    names: tuple[str, ...]
    anchors: Matrix
    tau: float
    mu: Vector
    sigma: Vector

    @property
    def digest(self) -> str:
        """Digest of all numbers of the space: anchors, temperature and statistics."""
        digest = hashlib.sha256(repr(self.tau).encode())
        for array in (self.anchors, self.mu, self.sigma):
            digest.update(array.tobytes())
        return digest.hexdigest()[:16]

    def embed_sentences(self, sentences: Matrix) -> Matrix:
        """Return the tag-space rows of unit sentence vectors."""
        return sentences_to_tags(sentences, self.anchors, tau=self.tau)

    def embed_logits(self, logits: Matrix) -> Matrix:
        """Return the tag-space rows of tagger logits."""
        return logits_to_tags(logits, self.mu, self.sigma)


def sentences_to_tags(sentences: Matrix, anchors: Matrix, *, tau: float) -> Matrix:
    """Return unit rows of softmax(tau * cosine to each anchor), (n, tags)."""
    if sentences.ndim != 2 or sentences.shape[1] != anchors.shape[1]:
        raise MismatchError(
            f"Sentence vectors of shape {sentences.shape} do not fit anchors of width "
            f"{anchors.shape[1]}: they come from another sentence encoder"
        )
    wide = anchors.astype(np.float64)
    rows = np.empty((len(sentences), len(anchors)), np.float32)
    for index, sentence in enumerate(sentences.astype(np.float64)):
        # einsum, because BLAS may add in a different order when the number of threads differs.
        similarity = tau * np.einsum("kd,d->k", wide, sentence / _length(sentence))
        weights = np.exp(similarity - similarity.max())
        rows[index] = weights / _length(weights)
    return rows


def logits_to_tags(logits: Matrix, mu: Vector, sigma: Vector) -> Matrix:
    """Return unit rows of per-tag z-scores, (n, tags)."""
    if logits.ndim != 2 or logits.shape[1] != mu.shape[0]:
        raise MismatchError(
            f"Logits of shape {logits.shape} do not fit statistics of {mu.shape[0]} tags"
        )
    scores = (logits.astype(np.float64) - mu) / sigma
    return np.stack([row / _length(row) for row in scores]).astype(np.float32)


def load_space(path: str | PathLike[str] = TAG_SPACE) -> TagSpace:
    """Read a tag space; a file without a tagger's statistics is an error."""
    tensors, described = read_tensors(path, kind=KIND, needs=("anchors", "mu", "sigma"))
    about = decode(described, _About, where=f"The description in {path}")
    names = tuple(about.names)
    anchors, mu, sigma = (tensors[name].astype(np.float32) for name in ("anchors", "mu", "sigma"))
    shapes = {len(names), *anchors.shape[:1], mu.size, sigma.size}
    flat = (anchors.ndim, mu.ndim, sigma.ndim) == (2, 1, 1)
    if not flat or shapes != {TAGS} or not (sigma > 0).all():
        raise FormatError(f"{Path(path)} is not a complete tag space: sizes {sorted(shapes)}")
    unit = anchors / np.sqrt(np.einsum("kd,kd->k", anchors, anchors))[:, None]
    return TagSpace(names, unit.astype(np.float32), about.tau, mu, sigma)


def _length(row: NDArray[np.float64]) -> float:
    """Return the Euclidean length, with numpy's pairwise sum (no BLAS)."""
    return float(np.sqrt(np.sum(row * row)))
