"""Play down the directions in which noise moves embeddings (within-class whitening, WCCN).

W_c = C_c (I + a D d / trace D)^-1

with D the covariance of the noisy minus the clean embeddings of a calibration.
"""

import numpy as np

from driftscore.scoring.bank import ClassBank
from driftscore.scoring.calibration import Calibration, Statistics
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs

SHORT = "Whiten"
NEEDS = Needs.CALIBRATION
CHOICES = {"amount": (0.025, 0.1, 0.3, 1.0)}


def compile(bank: ClassBank, *, calibration: Calibration, amount: float = 0.1) -> Head:
    """Return the head that discounts the directions of noise."""
    return discounted(bank, calibration.displacement, amount)


def discounted(bank: ClassBank, covariance: Statistics, amount: float) -> Head:
    """Return the head of the weights C (I + amount * covariance * d / trace)^-1."""
    dim = len(covariance)
    matrix = np.eye(dim) + amount * dim / np.trace(covariance) * covariance
    weights = np.linalg.solve(matrix, bank.prototypes.astype(np.float64).T).T
    return Head(bank.labels, weights.astype(np.float32))
