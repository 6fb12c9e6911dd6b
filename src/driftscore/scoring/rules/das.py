"""Reward a class when the clip drifts where its noisy prompts predict (DAS, the paper).

score = z . C_c + beta * (z . d_c), so W_c = C_c + beta d_c: the cost of plain cosine.
With m_c the mean noisy prompt and r_c its distance from C_c (reference "prompt", direction
"mean"), W_c = (1 - beta / r_c) C_c + (beta / r_c) m_c.
"""

import numpy as np

from driftscore.scoring.bank import ClassBank
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs, standardised_variant

SHORT = "DAS"
NEEDS = Needs.DRIFTS
VARIANTS = (standardised_variant(SHORT),)
STANDARDISED = False  # the paper's scores, to the bit


def compile(bank: ClassBank, *, beta: float = 0.25) -> Head:
    """Return the head of Drift-Augmented Scoring."""
    return Head(bank.labels, bank.prototypes + np.float32(beta) * bank.drifts)
