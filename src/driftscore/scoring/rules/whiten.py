"""Play down the directions in which noise moves embeddings (within-class whitening, WCCN).

W_c = C_c (I + a D d / trace D)^-1

with D the covariance of the noisy minus the clean embeddings of a calibration.
"""

from driftscore.scoring.bank import ClassBank
from driftscore.scoring.calibration import Calibration, discounted
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs, standardised_variant

SHORT = "Whiten"
NEEDS = Needs.CALIBRATION
VARIANTS = (standardised_variant(SHORT),)


def compile(bank: ClassBank, *, calibration: Calibration, amount: float = 0.1) -> Head:
    """Return the head that discounts the directions of noise."""
    return Head(bank.labels, discounted(bank.prototypes, calibration.displacement, amount))
