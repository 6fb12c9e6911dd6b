"""Average several clean prompts of each class (not in the paper).

score = z . unit(mean_t E(S_t(c))), S_t the clean sentences of a template pack.
"""

from collections.abc import Sequence

import numpy as np

from driftscore.bank import ClassBank
from driftscore.head import Head
from driftscore.prompts import check_template, fill, load_pack, words
from driftscore.rules.protocol import Needs
from driftscore.textcache import TextEncoder
from driftscore.vectors import unit

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
    return Head(bank.labels, weights, np.zeros(len(bank.labels), np.float32))
