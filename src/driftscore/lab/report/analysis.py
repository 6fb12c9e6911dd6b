"""Why a rule gains or loses: drift alignment, gains by class, and advice in words."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_WORTH_PP = 0.5  # a smaller gain is called small


@dataclass(frozen=True)
class Alignment:
    """Mean cosine of text and audio drift over classes, and the share that is positive."""

    mean: float
    positive: float
    classes: int


def summarise(cosines: Sequence[float | None]) -> Alignment | None:
    """Pool cosines of classes; None if there are none."""
    found = np.array([cosine for cosine in cosines if cosine is not None])
    if not len(found):
        return None
    return Alignment(float(found.mean()), float((found > 0).mean()), len(found))


def class_gains(
    truth: NDArray[np.int64], first: NDArray[np.int16], second: NDArray[np.int16], classes: int
) -> Floats:
    """Return for each class its accuracy by `first` minus that by `second`; NaN without a clip.

    `first` and `second` are chosen classes; a clip that failed in either (-1) is left out.
    """
    kept = (first >= 0) & (second >= 0)
    gained = (first == truth).astype(float) - (second == truth)
    counts = np.bincount(truth[kept], minlength=classes)
    sums = np.bincount(truth[kept], weights=gained[kept], minlength=classes)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


@dataclass(frozen=True)
class BetaGain:
    """The gain of DAS over cosine at one beta, pooled over noisy clips, in points."""

    beta: float
    difference: float
    low: float
    high: float


def advise(gains: Sequence[BetaGain], alignment: Alignment | None, *, what: str) -> str:
    """Return a sentence that says whether DAS helps, and with which beta."""
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
        verdict += " The best of several betas is an optimistic choice; check it on other clips."
    if alignment is not None:
        verdict += (
            f" Text and audio drift agree in direction for {alignment.positive:.0%} of classes "
            f"(mean cosine {alignment.mean:+.2f})."
        )
    return verdict
