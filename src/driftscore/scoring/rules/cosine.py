"""Rank labels by the cosine with their clean prompt (Base).

score = z . C_c
"""

from driftscore.scoring.bank import ClassBank
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs, standardised_variant

SHORT = "Base"
NEEDS = Needs.NOTHING
VARIANTS = (standardised_variant(SHORT),)


def compile(bank: ClassBank) -> Head:
    """Return the head of plain zero-shot classification."""
    return Head(bank.labels, bank.prototypes)
