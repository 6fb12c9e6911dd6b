"""Retrieved audio prototypes, lowered by how well the noise matches them (TGAP-Audio).

score = z . P_c - tau * (gbar . P_c), P_c as in TGAP and gbar as in ZS-Audio.
"""

from dataclasses import replace

from driftscore.backbones.vectors import Matrix
from driftscore.scoring.bank import ClassBank
from driftscore.scoring.head import Head
from driftscore.scoring.rules import tgap
from driftscore.scoring.rules.protocol import Needs

SHORT = "TGAP-A"
NEEDS = Needs.POOL | Needs.NOISE
VARIANTS = (replace(tgap.VARIANTS[0], heading="TGAP-A, noisy pool"),)


def compile(
    bank: ClassBank, *, pool: Matrix, noise: Matrix, nearest: int = 10, tau: float = 0.5
) -> Head:
    """Return the head of TGAP with the noise's profile subtracted."""
    prototypes = tgap.compile(bank, pool=pool, nearest=nearest).weights
    return Head(bank.labels, prototypes, -tau * (prototypes @ noise.mean(axis=0)))
