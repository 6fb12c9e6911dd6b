"""Average several clean prompts of each class (not in the paper).

score = z . unit(mean_t E(S_t(c))), S_t the clean sentences of a template pack.
"""

from collections.abc import Sequence

import numpy as np

from driftscore.backbones.vectors import unit
from driftscore.scoring.bank import ClassBank
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs
from driftscore.text.cache import TextEncoder
from driftscore.text.packs import load_pack
from driftscore.text.presets import check_template, fill
from driftscore.text.prompts import words

SHORT = "Prompt ens."
NEEDS = Needs.TEXT


PACK = "clean8"


def texts(labels: Sequence[str], *, sentences: str = PACK) -> list[str]:
    """Return the clean sentences of each label, label by label."""
    templates = load_pack(sentences, kind="templates").texts
    for template in templates:
        check_template(template, needs="c")
    return [fill(t, c=words(label)) for label in labels for t in templates]


def compile(bank: ClassBank, *, text: TextEncoder, sentences: str = PACK) -> Head:
    """Return the head of the clean prompt ensemble."""
    rows = text(texts(bank.labels, sentences=sentences))
    means = rows.reshape(len(bank.labels), -1, bank.dim).mean(axis=1, dtype=np.float64)
    weights = unit(means.astype(np.float32), what="The mean prompts")
    return Head(bank.labels, weights)
