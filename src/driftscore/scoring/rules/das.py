"""Reward a class when the clip drifts where its noisy prompts predict (DAS, the paper).

score = z . C_c + beta * (z . d_c), so W_c = C_c + beta d_c: the cost of plain cosine.
With m_c the mean noisy prompt and r_c its distance from C_c (reference "prompt", direction
"mean"), W_c = (1 - beta / r_c) C_c + (beta / r_c) m_c.

Beyond the paper, with a calibration: `beta="auto"` takes the beta of the highest agreement between
clean and noisy copies of unlabelled clips, `beta="per-class"` one for each class; `refine` mixes
the measured drift of the clips nearest to a class into its text drift.
"""

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones.vectors import Matrix
from driftscore.errors import UsageError
from driftscore.scoring.bank import ClassBank
from driftscore.scoring.calibration import Calibration, agreement
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs, Variant

SHORT = "DAS"
NEEDS = Needs.DRIFTS
VARIANTS = (
    Variant(
        "standardised",
        "DAS, std.",
        "its scores are standardised by the calibration of the model",
        setting="calibration",
    ),
)
STANDARDISED = False  # the paper's scores, to the bit
BETAS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
_SHARPNESS = 20.0  # of the softmax that says which clips belong to a class
_MIN_CLIPS = 8  # clips that a class needs for a beta of its own


def compile(
    bank: ClassBank,
    *,
    beta: float | str = 0.25,
    refine: float = 0.0,
    calibration: Calibration | None = None,
) -> Head:
    """Return the head of Drift-Augmented Scoring."""
    drifts = refined(bank, _needed(calibration, "refine"), refine) if refine else bank.drifts
    if beta in ("auto", "per-class"):
        calibration = _needed(calibration, f"beta={beta!r}")
        common = chosen_beta(bank, drifts, calibration)
        if beta == "auto":
            return _head(bank, drifts, np.float32(common))
        betas = class_betas(bank, drifts, calibration, common)
        return _head(bank, drifts, betas[:, None].astype(np.float32))
    try:
        number = np.float32(float(beta))
    except ValueError:
        message = f"beta must be a number, 'auto' or 'per-class', got {beta!r}"
        raise UsageError(message) from None
    return _head(bank, drifts, number)


def refined(bank: ClassBank, calibration: Calibration, weight: float) -> Matrix:
    """Return unit drifts: of the text, and by `weight` of the clips that sound like the class."""
    moved = calibration.noisy.astype(np.float64) - calibration.clean
    logits = _SHARPNESS * (bank.prototypes.astype(np.float64) @ calibration.clean.T)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    measured = (shares / shares.sum(axis=1, keepdims=True)) @ moved
    measured /= np.linalg.norm(measured, axis=1, keepdims=True) + 1e-12
    both = (1 - weight) * bank.drifts + weight * measured
    unit: Matrix = (both / (np.linalg.norm(both, axis=1, keepdims=True) + 1e-12)).astype(np.float32)
    return unit


def chosen_beta(bank: ClassBank, drifts: Matrix, calibration: Calibration) -> float:
    """Return the beta with the highest agreement between clean and noisy clips."""
    heads = {beta: _head(bank, drifts, np.float32(beta)) for beta in BETAS}
    return max(BETAS, key=lambda beta: agreement(lambda _: heads[beta], calibration))


def class_betas(
    bank: ClassBank, drifts: Matrix, calibration: Calibration, common: float
) -> NDArray[np.float64]:
    """Return one beta per class: of the highest agreement over the clips that it is chosen for.

    A class with few clips has the common one.
    """
    first = _head(bank, drifts, np.float32(common)).scores(calibration.clean).argmax(axis=1)
    same = np.zeros((len(BETAS), len(bank.labels)))
    for row, beta in enumerate(BETAS):
        head = _head(bank, drifts, np.float32(beta))
        agree = head.scores(calibration.clean).argmax(axis=1) == head.scores(
            calibration.noisy
        ).argmax(axis=1)
        same[row] = np.bincount(first, weights=agree, minlength=len(bank.labels))
    counts = np.bincount(first, minlength=len(bank.labels))
    return np.where(counts >= _MIN_CLIPS, np.array(BETAS)[same.argmax(axis=0)], common)


def _head(bank: ClassBank, drifts: Matrix, beta: np.float32 | NDArray[np.float32]) -> Head:
    weights = bank.prototypes + beta * drifts
    return Head(bank.labels, weights)


def _needed(calibration: Calibration | None, what: str) -> Calibration:
    if calibration is None:
        raise UsageError(f"{what} of the rule 'das' needs a calibration of the backbone")
    return calibration
