"""Move each prototype towards the sounds that it matches, then play down what noise moves.

Q_c = unit((1 - w) C_c + w R_c),  R_c = unit(sum_i a_i (z_i - m)),  a_i = softmax_i(k s_ic)
W_c = unit(Q_c (I + a D d / trace D)^-1)

with the clean rows z_i of a calibration, their mean m, the standardised cosines s_ic of row i with
label c, and D the covariance of the noisy minus the clean rows. All rows of W have length one, so
that a score is a cosine and labels are compared on one scale.
"""

from driftscore.backbones.vectors import unit
from driftscore.scoring.bank import ClassBank
from driftscore.scoring.calibration import (
    ANCHOR_SHARPNESS,
    ANCHOR_WEIGHT,
    Calibration,
    anchored,
    discounted,
)
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs

SHORT = "Anchor"
NEEDS = Needs.CALIBRATION


def compile(
    bank: ClassBank,
    *,
    calibration: Calibration,
    weight: float = ANCHOR_WEIGHT,
    sharpness: float = ANCHOR_SHARPNESS,
    amount: float = 0.05,
) -> Head:
    """Return the head of anchored and whitened prototypes of unit length."""
    near = anchored(bank.prototypes, calibration, weight=weight, sharpness=sharpness)
    return Head(bank.labels, unit(discounted(near, calibration.displacement, amount)))
