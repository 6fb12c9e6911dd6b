"""Average several clean prompts of each class (not in the paper).

score = z . unit(mean_t E(S_t(c))), S_t the clean sentences of a template pack.
"""

import numpy as np

from driftscore.bank import ClassBank
from driftscore.head import Head
from driftscore.prompts import check_template, fill, load_pack, words
from driftscore.rules.protocol import Needs
from driftscore.textcache import TextEncoder
from driftscore.vectors import unit

SHORT = "Prompt ens."
NEEDS = Needs.TEXT


def compile(bank: ClassBank, *, text: TextEncoder, sentences: str = "clean8") -> Head:
    """Return the head of the clean prompt ensemble."""
    templates = load_pack(sentences, kind="templates").texts
    for template in templates:
        check_template(template, needs="c")
    rows = text([fill(t, c=words(label)) for label in bank.labels for t in templates])
    means = rows.reshape(len(bank.labels), len(templates), -1).mean(axis=1, dtype=np.float64)
    weights = unit(means.astype(np.float32), what="The mean prompts")
    return Head(bank.labels, weights, np.zeros(len(bank.labels), np.float32))
