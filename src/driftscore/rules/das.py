"""Reward a class when the clip drifts where its noisy prompts predict (DAS, the paper).

score = z . C_c + beta * (z . d_c), so W_c = C_c + beta d_c: the cost of plain cosine.
With m_c the mean noisy prompt and r_c its distance from C_c (reference "prompt", direction
"mean"), W_c = (1 - beta / r_c) C_c + (beta / r_c) m_c.
"""

import numpy as np

from driftscore.bank import ClassBank
from driftscore.head import Head
from driftscore.rules.protocol import Needs

SHORT = "DAS"
NEEDS = Needs.DRIFTS


def compile(bank: ClassBank, *, beta: float = 0.25) -> Head:
    """Return the head of Drift-Augmented Scoring."""
    weights = bank.prototypes + np.float32(beta) * bank.drifts
    return Head(bank.labels, weights, np.zeros(len(bank.labels), np.float32))
