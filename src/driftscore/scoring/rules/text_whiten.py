"""Play down the directions in which noisy prompts differ from clean ones; needs no audio.

W_c = C_c (I + a N d / trace N)^-1

with N the covariance of the text drifts E("{c} with {p}") - C_c over all labels c and noise phrases
p: the drifts of DAS, used as directions to discount instead of a bonus.
"""

from collections.abc import Sequence

import numpy as np

from driftscore.scoring.bank import ClassBank
from driftscore.scoring.calibration import discounted
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs
from driftscore.text.cache import TextEncoder
from driftscore.text.packs import load_pack
from driftscore.text.presets import fill
from driftscore.text.prompts import words

SHORT = "Text-whiten"
NEEDS = Needs.TEXT
PACK = "das52"
TEMPLATE = "{c} with {p}"
_LABELS = 32  # the drifts of so many labels are enough to estimate a covariance


def texts(labels: Sequence[str], *, phrases: str = PACK) -> list[str]:
    """Return the noisy prompts of the first labels, label by label."""
    chosen = load_pack(phrases, kind="phrases").texts
    return [fill(TEMPLATE, c=words(label), p=p) for label in labels[:_LABELS] for p in chosen]


def compile(
    bank: ClassBank, *, text: TextEncoder, phrases: str = PACK, amount: float = 0.1
) -> Head:
    """Return the head that discounts the directions of the text drifts."""
    rows = text(texts(bank.labels, phrases=phrases)).astype(np.float64)
    some = bank.prototypes[:_LABELS].astype(np.float64)
    drifts = rows - np.repeat(some, len(rows) // len(some), axis=0)
    centred = drifts - drifts.mean(axis=0)
    covariance = centred.T @ centred / len(centred)
    return Head(bank.labels, discounted(bank.prototypes, covariance, amount))
