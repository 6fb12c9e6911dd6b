"""Estimate the clean embedding from the noisy one before comparing (linear denoising, Wiener).

W_c = C_c A,  A = (S_zz' + l t I)(S_z'z' + l t I)^-1,  t = trace(S_z'z') / d

with the covariances of a calibration: A is the best linear estimate of the clean embedding, and
`strength` l shrinks it towards the identity (l = 0: no shrinkage, large l: plain cosine).
"""

import numpy as np

from driftscore.scoring.bank import ClassBank
from driftscore.scoring.calibration import Calibration
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs, standardised_variant

SHORT = "Denoise"
NEEDS = Needs.CALIBRATION
VARIANTS = (standardised_variant(SHORT),)


def compile(bank: ClassBank, *, calibration: Calibration, strength: float = 10.0) -> Head:
    """Return the head that scores the estimated clean embedding."""
    noisy, cross = calibration.noisy_covariance, calibration.cross_covariance
    ridge = strength * np.trace(noisy) / len(noisy) * np.eye(len(noisy))
    # C A = C (cross + ridge)(noisy + ridge)^-1; the last matrix is symmetric.
    target = bank.prototypes.astype(np.float64) @ (cross + ridge)
    weights = np.linalg.solve(noisy + ridge, target.T).T
    return Head(bank.labels, weights.astype(np.float32))
