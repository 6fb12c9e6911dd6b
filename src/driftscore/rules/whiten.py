"""Play down the directions in which noise moves embeddings (within-class whitening, WCCN).

W_c = C_c (I + a D d / trace D)^-1

with D the covariance of the noisy minus the clean embeddings of a calibration.
"""

import numpy as np

from driftscore.bank import ClassBank
from driftscore.calibration import Calibration
from driftscore.head import Head
from driftscore.rules.protocol import Needs

SHORT = "Whiten"
NEEDS = Needs.CALIBRATION
CHOICES = {"amount": (0.025, 0.1, 0.3, 1.0)}


def compile(bank: ClassBank, *, calibration: Calibration, amount: float = 0.1) -> Head:
    """Return the head that discounts the directions of noise."""
    weights = discount(bank.prototypes.astype(np.float64), calibration.displacement, amount)
    return Head(bank.labels, weights.astype(np.float32), np.zeros(len(bank.labels), np.float32))


def discount(
    prototypes: np.typing.NDArray[np.float64],
    covariance: np.typing.NDArray[np.float64],
    amount: float,
) -> np.typing.NDArray[np.float64]:
    """Return C (I + amount * covariance * d / trace)^-1."""
    dim = len(covariance)
    matrix = np.eye(dim) + amount * dim / np.trace(covariance) * covariance
    found: np.typing.NDArray[np.float64] = np.linalg.solve(matrix, prototypes.T).T
    return found
