"""DAS with drifts that unlabelled audio corrects: the future work of the paper, to be compared.

W_c = unit(P_c + beta_c d_c), with one of these drifts (`drift`), all from a calibration:

- "text": the paper's, for comparison
- "refined": half of the text, half of what noise does to the clips that the class matches, m_c
- "aligned": the part of the text drift within the 20 strongest directions of D, the covariance of
  the noisy minus the clean embeddings
- "by_label": the text drift, with beta_c = beta * max(0, d_c . m_c) / its mean over the classes

P_c is the prototype of the class, or with `anchored` the weights of the rule `anchor`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import unknown
from driftscore.scoring.bank import ClassBank
from driftscore.scoring.calibration import Calibration, unit_wide
from driftscore.scoring.head import Head
from driftscore.scoring.rules import anchor
from driftscore.scoring.rules.protocol import Needs, Variant

SHORT = "DAS, refined"
NEEDS = Needs.DRIFTS | Needs.CALIBRATION
DRIFTS = ("text", "refined", "aligned", "by_label")
VARIANTS = (
    Variant("aligned", "DAS, aligned", "drift within the directions of noise",
            values=(("drift", "aligned"),)),
    Variant("by_label", "DAS, by label", "a beta for each label", values=(("drift", "by_label"),)),
    *(Variant(f"{drift}_anchored", f"Anchor + DAS, {drift}", "on top of the rule anchor",
              values=(("drift", drift), ("anchored", 1))) for drift in DRIFTS),
)  # fmt: skip
_SHARPNESS = 20.0  # of the softmax that says which clips belong to a class
_DIRECTIONS = 20


def compile(
    bank: ClassBank,
    *,
    calibration: Calibration,
    beta: float = 0.25,
    drift: str = "refined",
    anchored: int = 0,
) -> Head:
    """Return the head of DAS with drifts corrected by unlabelled audio."""
    if drift not in DRIFTS:
        raise unknown("drift", drift, DRIFTS)
    prototypes = bank.prototypes
    if anchored:
        chosen: Any = calibration.settings.get("anchor", {})
        prototypes = anchor.compile(bank, calibration=calibration, **chosen).weights
    drifts = bank.drifts.astype(np.float64)
    betas: NDArray[np.float64] = np.full((len(drifts), 1), beta)
    if drift == "refined":
        drifts = unit_wide(drifts + measured(bank, calibration))
    elif drift == "aligned":
        _, directions = np.linalg.eigh(calibration.displacement)
        strongest = directions[:, -_DIRECTIONS:]
        drifts = unit_wide(drifts @ strongest @ strongest.T)
    elif drift == "by_label":
        fits = np.maximum(0, (drifts * measured(bank, calibration)).sum(axis=1, keepdims=True))
        betas *= fits / max(float(fits.mean()), 1e-12)
    return Head(bank.labels, unit_wide(prototypes + betas * drifts).astype(np.float32))


def measured(bank: ClassBank, calibration: Calibration) -> NDArray[np.float64]:
    """Return for each class the unit drift in noise of the clips that it matches."""
    moved = calibration.noisy.astype(np.float64) - calibration.clean
    logits = _SHARPNESS * (bank.prototypes.astype(np.float64) @ calibration.clean.T)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return unit_wide((shares / shares.sum(axis=1, keepdims=True)) @ moved)
