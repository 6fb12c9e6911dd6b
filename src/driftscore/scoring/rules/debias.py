"""Project the noise phrases' main directions out of each prompt (orthogonal debiasing).

score = z . unit((I - V V^T) C_c), V the top right singular directions of the noise
phrases' embeddings (uncentred): the subspace family that the paper cites and does not run.
"""

from collections.abc import Sequence

import numpy as np

from driftscore.backbones.vectors import unit
from driftscore.errors import UsageError
from driftscore.scoring.bank import ClassBank
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs
from driftscore.text.cache import TextEncoder
from driftscore.text.packs import load_pack

SHORT = "Debias"
NEEDS = Needs.TEXT


PACK = "das52"


def texts(labels: Sequence[str], *, phrases: str = PACK) -> list[str]:
    """Return the noise phrases."""
    return list(load_pack(phrases, kind="phrases").texts)


def compile(
    bank: ClassBank, *, text: TextEncoder, phrases: str = PACK, directions: int = 10
) -> Head:
    """Return the head whose prompts are orthogonal to the noise directions."""
    rows = text(texts(bank.labels, phrases=phrases)).astype(np.float64)
    most = min(len(rows), bank.dim - 1)
    if not 1 <= directions <= most:
        raise UsageError(
            f"debias removes 1 to {most} directions of these phrases, not {directions}"
        )
    span = np.linalg.svd(rows, full_matrices=False)[2][:directions]
    clean = bank.prototypes - (bank.prototypes @ span.T) @ span
    weights = unit(clean.astype(np.float32), what="The debiased prompts")
    return Head(bank.labels, weights)
