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

Settings are chosen without labels by `agreement`: fit on one half of the clips; on the other half
compare the label that a clean clip gets with the label that its noisy copy gets.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones import Backbone, check_model
from driftscore.errors import MismatchError, UsageError
from driftscore.head import Head
from driftscore.reading import reading
from driftscore.schema import anything, mapping, number, table, text
from driftscore.tensorfile import read_tensors, write_tensors
from driftscore.vectors import Matrix

Statistics = NDArray[np.float64]
Setting = TypeVar("Setting")

KIND = "calibration"
UNIT = "standard deviations above what the label scores on other sounds"
"""The unit of a standardised score, in words."""
FEWEST = 20
"""The fewest clips of a calibration."""
_LEVELS = 127  # embeddings are stored as 8-bit integers, scaled row by row
_ABOUT = table(
    {
        "site_weight": number(0, 1),
        "settings": mapping(mapping(anything)),
        "default_rule": text,
        "made_by": mapping(anything),
    },
    {"quiet_window_s": number(0, 3600), "quiet_hop_s": number(0, 3600)},
    open_=True,
)


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
        if len(self.clean) < FEWEST // 2:  # settings are chosen with halves
            raise UsageError(
                f"A calibration needs at least {FEWEST} clips, got {len(self.clean)}; "
                "a few hundred are better"
            )

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return int(self.clean.shape[1])

    @cached_property
    def digest(self) -> str:
        """A digest of everything in it that can change a head."""
        digest = hashlib.sha256(repr((self.site_weight, self.settings)).encode())
        for rows in (self.clean, self.noisy, self.site):
            digest.update(rows.tobytes())
        return digest.hexdigest()

    @cached_property
    def mean(self) -> Statistics:
        """The mean over clean and noisy embeddings, and over the place: (d)."""
        everything = np.concatenate([self.clean, self.noisy]).astype(np.float64).mean(axis=0)
        return self._blend(everything, lambda site: site.mean(axis=0))

    @cached_property
    def covariance(self) -> Statistics:
        """The covariance over clean and noisy embeddings, and over the place: (d, d)."""
        everything = np.concatenate([self.clean, self.noisy]).astype(np.float64)
        return self._blend(_covariance(everything), _covariance)

    @cached_property
    def cross_covariance(self) -> Statistics:
        """The covariance of the clean (rows) with the noisy embeddings (columns): (d, d)."""
        clean, noisy = self.clean.astype(np.float64), self.noisy.astype(np.float64)
        product: Statistics = (clean - clean.mean(axis=0)).T @ (noisy - noisy.mean(axis=0))
        return product / len(clean)

    @cached_property
    def noisy_covariance(self) -> Statistics:
        """The covariance of the noisy embeddings: (d, d)."""
        return _covariance(self.noisy.astype(np.float64))

    @cached_property
    def displacement(self) -> Statistics:
        """The covariance of the noisy minus the clean embeddings: (d, d)."""
        return _covariance(self.noisy.astype(np.float64) - self.clean)

    def half(self, which: int) -> "Calibration":
        """Return the calibration of every other clip: the even ones (0) or the odd ones (1)."""
        return replace(self, clean=self.clean[which::2], noisy=self.noisy[which::2])

    def at_site(self, rows: Matrix, *, weight: float = 0.5) -> "Calibration":
        """Return the calibration adapted to a place, from embeddings of recordings of it."""
        if rows.ndim != 2 or rows.shape[1] != self.dim or not len(rows):
            raise MismatchError(
                f"Recordings of the place have embeddings of shape {rows.shape}; "
                f"expected rows of {self.dim} dimensions"
            )
        if not 0.0 <= weight <= 1.0:
            raise UsageError(f"The weight of the place must lie within 0 and 1, got {weight}")
        return replace(self, site=rows.astype(np.float32), site_weight=weight)

    def with_quiet(self, rows: Matrix, *, window_s: float, hop_s: float) -> "Calibration":
        """Return the calibration with the windows of a recording in which no label is present."""
        return replace(
            self, quiet=rows.astype(np.float32), quiet_window_s=window_s, quiet_hop_s=hop_s
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write as safetensors; embeddings are rounded to 8 bits, row by row."""
        tensors = {"clean": _rounded(self.clean), "noisy": _rounded(self.noisy)}
        tensors |= {
            name: _rounded(rows)
            for name, rows in (("site", self.site), ("quiet", self.quiet))
            if len(rows)
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
        tensors, about = read_tensors(
            path, kind=KIND, needs=("clean", "noisy"), may=("site", "quiet"), about=_ABOUT
        )
        with reading(Path(path), "complete calibration"):
            rows = {name: _unit(tensor) for name, tensor in tensors.items()}
            found = Calibration(
                **rows,
                site_weight=float(about["site_weight"]),
                quiet_window_s=float(about.get("quiet_window_s", 0.0)),
                quiet_hop_s=float(about.get("quiet_hop_s", 0.0)),
                settings=about["settings"],
                default_rule=str(about["default_rule"]),
                made_by=about["made_by"],
            )
        if backbone is not None:
            check_model(found.made_by, backbone, what=f"The calibration {Path(path)}")
        return found

    def _blend(
        self, everything: Statistics, statistic: Callable[[Statistics], Statistics]
    ) -> Statistics:
        if not len(self.site) or not self.site_weight:
            return everything
        place = statistic(self.site.astype(np.float64))
        return (1 - self.site_weight) * everything + self.site_weight * place


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
    made_by = {**head.made_by, "standardised": True, "unit": UNIT}
    return Head(head.labels, _single(weights / spread[:, None]), _single(offsets), made_by)


def agreement(compile_: Callable[[Calibration], Head], calibration: Calibration) -> float:
    """Return how often the noisy copy of a clip gets the label of the clean clip.

    The head is fitted on one half of the clips and compared on the other, both ways.
    """
    same = []
    for fitted, other in ((0, 1), (1, 0)):
        head = compile_(calibration.half(fitted))
        part = calibration.half(other)
        clean, noisy = head.scores(part.clean), head.scores(part.noisy)
        same.append(np.mean(clean.argmax(axis=1) == noisy.argmax(axis=1)))
    return float(np.mean(same))


def choose(
    candidates: Mapping[Setting, Callable[[Calibration], Head]], calibration: Calibration
) -> Setting:
    """Return the setting with the highest agreement; of several, the first."""
    found = {key: agreement(make, calibration) for key, make in candidates.items()}
    return max(found, key=lambda key: found[key])


def _covariance(rows: Statistics) -> Statistics:
    centred = rows - rows.mean(axis=0)
    product: Statistics = centred.T @ centred
    return product / len(rows)


def _single(values: Statistics) -> NDArray[np.float32]:
    return values.astype(np.float32)


def _rounded(rows: Matrix) -> NDArray[np.int8]:
    """Return rows as 8-bit integers; their lengths are lost, which unit rows do not need."""
    scale = _LEVELS / np.abs(rows).max(axis=1, keepdims=True)
    levels: NDArray[np.int8] = np.round(rows * scale).astype(np.int8)
    return levels


def _unit(rows: NDArray[np.generic]) -> Matrix:
    if rows.ndim != 2 or rows.dtype.kind not in "fi":
        raise UsageError(f"embeddings of type {rows.dtype} and shape {rows.shape} are not rows")
    wide = rows.astype(np.float64)
    length = np.sqrt(np.square(wide).sum(axis=1, keepdims=True))
    if not (length > 0).all():
        raise UsageError("an embedding is all zeros")
    unit: Matrix = (wide / length).astype(np.float32)
    return unit
