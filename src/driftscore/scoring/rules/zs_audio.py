"""Lower each class by how well the noise alone already matches it (ZS-Audio).

score = z . C_c - tau * (gbar . C_c), gbar the mean embedding of noise-only clips (the DAS
paper takes 200 of the matching corpus).
"""

from driftscore.backbones.vectors import Matrix
from driftscore.scoring.bank import ClassBank
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs

SHORT = "ZS-A-m"
NEEDS = Needs.NOISE


def compile(bank: ClassBank, *, noise: Matrix, tau: float = 0.5) -> Head:
    """Return the head that subtracts the noise's own profile."""
    profile = bank.prototypes @ noise.mean(axis=0)
    return Head(bank.labels, bank.prototypes, -tau * profile)
