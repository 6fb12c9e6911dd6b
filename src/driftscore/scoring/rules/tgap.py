"""Replace each prompt by the mean of the clips nearest to it (TGAP).

score = z . P_c, P_c the mean of the N pool clips with the highest a_i . C_c. P_c is NOT
scaled back to length one, as in the authors' code: a class with scattered neighbours
weighs less. N is 10 in the DAS paper (clean pool) and 35 in Acevedo et al. (noisy pool).
"""

import numpy as np

from driftscore.backbones.vectors import Matrix
from driftscore.errors import UsageError
from driftscore.scoring.bank import ClassBank
from driftscore.scoring.head import Head, products
from driftscore.scoring.rules.protocol import Needs, Variant

SHORT = "TGAP"
NEEDS = Needs.POOL
VARIANTS = (
    Variant(
        "noisy",
        "TGAP, noisy pool",
        "the noisy clips of the other folds are its pool",
        setting="pool",
        preset="acevedo2025",
    ),
)


def compile(bank: ClassBank, *, pool: Matrix, nearest: int = 10) -> Head:
    """Return the head of text-guided audio prototypes."""
    if not 1 <= nearest <= len(pool):
        raise UsageError(
            f"TGAP averages the {nearest} nearest clips of the pool, which has {len(pool)}; "
            "give a larger pool or another `nearest`"
        )
    ranked = np.argsort(-products(pool, bank.prototypes), axis=0, kind="stable")
    chosen = ranked[:nearest]  # nearest x C; ties by the order of the pool
    prototypes = pool[chosen].mean(axis=0, dtype=np.float64).astype(np.float32)
    return Head(bank.labels, prototypes)
