"""Play down the directions in which noise moves embeddings (within-class whitening, WCCN).

W_c = C_c (I + a D d / trace D)^-1

with D the covariance of the noisy minus the clean embeddings of a calibration.
"""

import numpy as np

from driftscore.backbones.vectors import Matrix
from driftscore.scoring.bank import ClassBank
from driftscore.scoring.calibration import Calibration, Statistics
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs, standardised_variant

SHORT = "Whiten"
NEEDS = Needs.CALIBRATION
VARIANTS = (standardised_variant(SHORT),)


def compile(bank: ClassBank, *, calibration: Calibration, amount: float = 0.1) -> Head:
    """Return the head that discounts the directions of noise."""
    return Head(bank.labels, discounted(bank.prototypes, calibration.displacement, amount))


def discounted(prototypes: Matrix, covariance: Statistics, amount: float) -> Matrix:
    """Return prototypes (I + amount * covariance * d / trace)^-1."""
    dim = len(covariance)
    matrix = np.eye(dim) + amount * dim / np.trace(covariance) * covariance
    weights: Matrix = np.linalg.solve(matrix, prototypes.astype(np.float64).T).T.astype(np.float32)
    return weights
