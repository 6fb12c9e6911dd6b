"""Calibration: how noise moves the embeddings of one backbone, measured on unlabelled audio.

A calibration holds the embeddings of a few hundred clips, each clean (z) and in noise (z'), and
perhaps embeddings of the place where a microphone stands. It needs no labels and is made once per
backbone (`driftscore calibrate`). From it follow

    m, m'      means of z and z'               S_zz'      covariance of z with z'
    mu, S      mean and covariance of all      S_z'z'     covariance of z'
    D          covariance of z' - z            t          trace / d of the matrix that it scales

Rules use these to undo what noise does (`rules/denoise.py`, `rules/whiten.py`). `standardise` turns
the scores of any head into standard deviations above what each label scores on other sounds:

    W_c / s_c,  (b_c - W_c . mu) / s_c,  s_c = sqrt(W_c S W_c^T)

Standardising is right for thresholds, where each label is judged by itself, and wrong for choosing
between labels: those that are noise-like have a large spread, and would lose. `anchored` moves
prototypes towards the clean clips that they match (`rules/anchor.py`).
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import ArrayLike, NDArray

from driftscore.backbones import Backbone, Named, check_model
from driftscore.backbones.vectors import Matrix, matrix, unit
from driftscore.errors import MismatchError, UsageError
from driftscore.scoring.head import UNITS, Head
from driftscore.storage.checked import Text
from driftscore.storage.files import reading
from driftscore.storage.tensors import read_tensors, write_tensors
from driftscore.system.lazy import lazy_property

Statistics = NDArray[np.float64]

KIND = "calibration"
MIN_CLIPS = 20
ANCHOR_WEIGHT, ANCHOR_SHARPNESS = 0.1, 1.0
"""How far `anchored` moves a prototype, and how strongly it prefers the nearest clips."""
RECIPE = (
    "the recipe for every calibrated model: a gentle anchor, a gentle whitening, unit length; "
    "nothing was chosen for this model"
)
"""Why the rule of a calibration is what it is, unless it was chosen on labelled sets."""
_TINY = 1e-12
_LEVELS = 127  # embeddings are stored as 8-bit integers, scaled row by row


class _About(Struct):
    """The description of a calibration in its file."""

    site_weight: Annotated[float, Meta(ge=0, le=1)]
    settings: dict[str, dict[str, object]]
    default_rule: Text
    made_by: dict[str, object]
    quiet_window_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    quiet_hop_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0


@dataclass(frozen=True, eq=False)
class Calibration:
    """Paired clean and noisy embeddings of one backbone, and what follows from them."""

    clean: Matrix
    """Embeddings of clips: (n, d)."""
    noisy: Matrix
    """Embeddings of the same clips in noise: (n, d)."""
    site: Matrix = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    """Embeddings of recordings of one place, if it was adapted to one: (m, d)."""
    site_weight: float = 0.0
    """The weight of the place in the mean and covariance of all."""
    quiet: Matrix = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    """Embeddings of the windows of a recording in which no label is present, in order: (w, d)."""
    quiet_window_s: float = 0.0
    """Length of a window of the quiet recording."""
    quiet_hop_s: float = 0.0
    """Seconds from one of its windows to the next."""
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Settings of rules that were chosen for this backbone, by rule."""
    default_rule: str = ""
    """The rule that works best on this backbone; empty if none was chosen."""
    made_by: Mapping[str, object] = field(default_factory=dict)
    """Everything that made it: model, fingerprint, recordings, noises, version."""

    def __post_init__(self) -> None:
        if self.clean.ndim != 2 or self.clean.shape != self.noisy.shape:
            raise MismatchError(
                f"A calibration needs one noisy embedding per clean one, got shapes "
                f"{self.clean.shape} and {self.noisy.shape}"
            )
        for what, rows in (("place", self.site), ("quiet recording", self.quiet)):
            if len(rows) and rows.shape[1:] != self.clean.shape[1:]:
                raise MismatchError(
                    f"The embeddings of the {what} have shape {rows.shape}, those of the clips "
                    f"{self.clean.shape}: they come from different models"
                )
        if len(self.quiet) and not 0 < self.quiet_hop_s <= self.quiet_window_s:
            raise UsageError("A quiet recording needs its window and its hop in seconds")
        if len(self.clean) < MIN_CLIPS:
            raise UsageError(
                f"A calibration needs at least {MIN_CLIPS} clips, got {len(self.clean)}; "
                "a few hundred are better"
            )

    @staticmethod
    def from_embeddings(
        clean: ArrayLike, noisy: ArrayLike, *, model: str | Named = ""
    ) -> "Calibration":
        """Return a calibration from embeddings of clips and of the same clips in noise: (n, d).

        Rows need not have length one. `model` is the backbone that made them, or its name as in a
        file of stored embeddings; without it the calibration fits every model with d dimensions.
        The rule is `anchor` with gentle settings, measured on several label sets (docs/noise.md).
        """
        rows = [
            unit(matrix(rows, what=f"The {what} embeddings"), what=f"The {what} embeddings")
            for rows, what in ((clean, "clean"), (noisy, "noisy"))
        ]
        maker = {"backbone": model, "fingerprint": model}
        if not isinstance(model, str):
            maker = {"backbone": model.name, "fingerprint": model.fingerprint}
        made_by = {**maker, "clips": len(rows[0]), "default_why": RECIPE}
        return Calibration(rows[0], rows[1], default_rule="anchor", made_by=made_by)

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return int(self.clean.shape[1])

    @lazy_property
    def digest(self) -> str:
        """A digest of everything in it that can change a head."""
        digest = hashlib.sha256(repr((self.site_weight, self.settings)).encode())
        for rows in (self.clean, self.noisy, self.site):
            digest.update(rows.tobytes())
        return digest.hexdigest()

    @lazy_property
    def mean(self) -> Statistics:
        """The mean over clean and noisy embeddings, and over the place: (d)."""
        return self._of_all(lambda rows: rows.mean(axis=0))

    @lazy_property
    def covariance(self) -> Statistics:
        """The covariance over clean and noisy embeddings, and over the place: (d, d)."""
        return self._of_all(_covariance)

    @lazy_property
    def cross_covariance(self) -> Statistics:
        """The covariance of the clean (rows) with the noisy embeddings (columns): (d, d)."""
        clean, noisy = self.clean.astype(np.float64), self.noisy.astype(np.float64)
        return (clean - clean.mean(axis=0)).T @ (noisy - noisy.mean(axis=0)) / len(clean)

    @lazy_property
    def noisy_covariance(self) -> Statistics:
        """The covariance of the noisy embeddings: (d, d)."""
        return _covariance(self.noisy.astype(np.float64))

    @lazy_property
    def displacement(self) -> Statistics:
        """The covariance of the noisy minus the clean embeddings: (d, d)."""
        return _covariance(self.noisy.astype(np.float64) - self.clean)

    def at_site(self, rows: Matrix, *, weight: float = 0.5) -> "Calibration":
        """Return the calibration adapted to a place, from embeddings of recordings of it."""
        if not 0.0 <= weight <= 1.0:
            raise UsageError(f"The weight of the place must lie within 0 and 1, got {weight}")
        return replace(self, site=rows.astype(np.float32), site_weight=weight)

    def save(self, path: str | PathLike[str]) -> None:
        """Write as safetensors; embeddings are rounded to 8 bits, row by row."""
        tensors = {
            name: _rounded(rows)
            for name in ("clean", "noisy", "site", "quiet")
            if len(rows := getattr(self, name))
        }
        about = {
            "quiet_window_s": self.quiet_window_s,
            "quiet_hop_s": self.quiet_hop_s,
            "site_weight": self.site_weight,
            "settings": {rule: dict(values) for rule, values in self.settings.items()},
            "default_rule": self.default_rule,
            "made_by": dict(self.made_by),
        }
        write_tensors(path, tensors, kind=KIND, about=about)

    @staticmethod
    def load(path: str | PathLike[str], backbone: Backbone | None = None) -> "Calibration":
        """Read a calibration; with a backbone, refuse one that belongs to another model."""
        path = Path(path)
        tensors, described = read_tensors(
            path, kind=KIND, needs=("clean", "noisy"), may=("site", "quiet")
        )
        with reading(path, "complete calibration"):
            about = msgspec.convert(described, _About)
            rows: dict[str, Any] = {}
            for name, tensor in tensors.items():
                if tensor.ndim != 2 or tensor.dtype.kind not in "fi":
                    raise UsageError(
                        f"{name} of type {tensor.dtype}, shape {tensor.shape}, is not rows"
                    )
                wide = tensor.astype(np.float64)
                length = np.sqrt(np.square(wide).sum(axis=1, keepdims=True))
                if not (length > 0).all():
                    raise UsageError("an embedding is all zeros")
                rows[name] = (wide / length).astype(np.float32)
            calibration = Calibration(**rows, **msgspec.structs.asdict(about))
        if backbone is not None:
            check_model(about.made_by, backbone, what=f"The calibration {path}")
        return calibration

    def _of_all(self, statistic: Callable[[Statistics], Statistics]) -> Statistics:
        everything = statistic(np.concatenate([self.clean, self.noisy]).astype(np.float64))
        if not len(self.site) or not self.site_weight:
            return everything
        site = statistic(self.site.astype(np.float64))
        return (1 - self.site_weight) * everything + self.site_weight * site


def standardise(head: Head, calibration: Calibration) -> Head:
    """Return the head whose scores are standard deviations above those of other sounds."""
    if head.dim != calibration.dim:
        raise MismatchError(
            f"The head has {head.dim} dimensions, the calibration {calibration.dim}: "
            "they belong to different models"
        )
    weights = head.weights.astype(np.float64)
    spread = np.sqrt(np.einsum("cd,cd->c", weights @ calibration.covariance, weights))
    if not (spread > 0).all():
        label = head.labels[int(np.argmin(spread))]
        raise MismatchError(f"All calibration clips score the same for {label!r}")
    offsets = (head.offsets - weights @ calibration.mean) / spread
    made_by = {**head.made_by, "standardised": True, "unit": UNITS["sd"]}
    weights /= spread[:, None]
    return Head(head.labels, weights.astype(np.float32), offsets.astype(np.float32), made_by)


def anchored(
    prototypes: Matrix,
    calibration: Calibration,
    *,
    weight: float = ANCHOR_WEIGHT,
    sharpness: float = ANCHOR_SHARPNESS,
) -> Matrix:
    """Return unit prototypes, each moved a little towards the clean clips that it matches.

    s_i = z_i . C_c, standardised over the clips i;  a_i = softmax_i(sharpness * s_i)
    R_c = unit(sum_i a_i (z_i - m));  Q_c = unit((1 - weight) C_c + weight R_c)
    """
    if prototypes.shape[1] != calibration.dim:
        raise MismatchError(
            f"The prototypes have {prototypes.shape[1]} dimensions, the calibration "
            f"{calibration.dim}: they belong to different models"
        )
    wide, clean = prototypes.astype(np.float64), calibration.clean.astype(np.float64)
    scores = wide @ clean.T
    centred = scores - scores.mean(axis=1, keepdims=True)
    logits = sharpness * centred / (scores.std(axis=1, keepdims=True) + _TINY)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    nearest = unit_wide(shares @ (clean - clean.mean(axis=0)))
    return unit_wide((1 - weight) * wide + weight * nearest).astype(np.float32)


def discounted(prototypes: Matrix, covariance: Statistics, amount: float) -> Matrix:
    """Return prototypes (I + amount * covariance * d / trace)^-1."""
    dim = len(covariance)
    matrix = np.eye(dim) + amount * dim / np.trace(covariance) * covariance
    return np.linalg.solve(matrix, prototypes.astype(np.float64).T).T.astype(np.float32)


def unit_wide(rows: Statistics) -> Statistics:
    """Return rows in float64 with length one; a row of zeros stays."""
    return rows / (np.linalg.norm(rows, axis=1, keepdims=True) + _TINY)


def _covariance(rows: Statistics) -> Statistics:
    centred = rows - rows.mean(axis=0)
    return centred.T @ centred / len(rows)


def _rounded(rows: Matrix) -> NDArray[np.int8]:
    """Return rows as 8-bit integers; their lengths are lost, which unit rows do not need."""
    scale = _LEVELS / np.abs(rows).max(axis=1, keepdims=True)
    return np.round(rows * scale).astype(np.int8)
