"""Why a rule gains or loses: text drift against audio drift, and class by class.

audio drift of class c    a_c = mean z (noisy clips of c) - mean z (the same clips, clean)
alignment                 cos(a_c, d_c), d_c the unit text drift
common share              |mean_c d_c|^2: the part of the drifts that all classes have, which
                          moves no argmax (1: all the same, 1 / C: as good as unrelated)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driftscore.vectors import VANISHING, Matrix

Floats = NDArray[np.float64]
_WORTH_PP = 0.5  # a gain below half a point is called none


def drift_cosines(
    clean: Matrix, noisy: Matrix, present: NDArray[np.bool_], drifts: Matrix
) -> Floats:
    """Return each class's cosine of audio and text drift; NaN where either has no direction.

    `clean` and `noisy` hold the same clips; `present` says which classes each has.
    """
    moved = noisy.astype(np.float64) - clean
    cosines = np.full(len(drifts), np.nan)
    for number, (members, drift) in enumerate(zip(present.T, drifts, strict=True)):
        if members.any():
            audio = moved[members].mean(axis=0)
            lengths = np.linalg.norm(audio) * np.linalg.norm(drift)
            if lengths > VANISHING:
                cosines[number] = audio @ drift / lengths
    return cosines


def direction_agreement(mean: Matrix, svd: Matrix) -> Floats:
    """Return each class's cosine between its mean and its SVD drift."""
    products: Floats = (mean.astype(np.float64) * svd).sum(axis=1)
    return products


def common_share(drifts: Matrix) -> float:
    """Return how much of the unit drifts is common to all classes, in [0, 1]."""
    centre = drifts.astype(np.float64).mean(axis=0)
    return float(centre @ centre)


@dataclass(frozen=True)
class Alignment:
    """Mean cosine of text and audio drift over classes, and the share that is positive."""

    mean: float
    positive: float
    classes: int


def summarise(cosines: Sequence[float | None]) -> Alignment | None:
    """Pool per-class cosines; None if there is none."""
    found = np.array([cosine for cosine in cosines if cosine is not None])
    if not len(found):
        return None
    return Alignment(float(found.mean()), float((found > 0).mean()), len(found))


def class_gains(
    truth: NDArray[np.int64], first: NDArray[np.int16], second: NDArray[np.int16], classes: int
) -> Floats:
    """Return each class's accuracy by `first` minus that by `second`; NaN without a clip.

    `first` and `second` are chosen classes; a clip that failed in either (-1) is left out.
    """
    kept = (first >= 0) & (second >= 0)
    gained = (first == truth).astype(float) - (second == truth)
    counts = np.bincount(truth[kept], minlength=classes)
    sums = np.bincount(truth[kept], weights=gained[kept], minlength=classes)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


@dataclass(frozen=True)
class Gain:
    """What DAS gained over cosine at one beta, pooled over noisy clips, in points."""

    beta: float
    difference: float
    low: float
    high: float


def advise(gains: Sequence[Gain], alignment: Alignment | None, *, what: str) -> str:
    """Return a plain sentence: will DAS help here, and with which beta."""
    if not gains:
        return f"There is no measurement of DAS against cosine for {what} yet."
    best = max(gains, key=lambda gain: gain.difference)
    measured = f"{best.difference:+.1f} points, 95 % interval {best.low:+.1f} to {best.high:+.1f}"
    if best.low > 0 and best.difference >= _WORTH_PP:
        verdict = f"Use DAS for {what}: with beta {best.beta:g} it gains {measured} over cosine."
    elif best.low > 0:
        verdict = (
            f"DAS helps {what} by little: {measured} over cosine at its best beta, {best.beta:g}."
        )
    elif best.high < 0:
        verdict = f"Stay with cosine for {what}: every beta loses, the best ({measured}) too."
    else:
        verdict = (
            f"For {what} there is no clear gain: the best beta, {best.beta:g}, gives {measured}."
        )
    if len(gains) > 1 and best.low > 0:
        verdict += " The best of several betas flatters itself; check it on other clips."
    if alignment is not None:
        verdict += (
            f" Text and audio drift point the same way for {alignment.positive:.0%} of classes "
            f"(mean cosine {alignment.mean:+.2f})."
        )
    return verdict
