"""Average the noisy prompts of each class and drop the clean one (not in the paper).

score = z . unit(m_c), m_c the mean of E(T_t(c, p)) over phrases and templates. DAS goes
only part of the way from C_c to m_c; this is the far end.
"""

from driftscore.backbones.vectors import unit
from driftscore.scoring.bank import ClassBank
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs

SHORT = "Noisy ens."
NEEDS = Needs.NOISY_MEANS


def compile(bank: ClassBank) -> Head:
    """Return the head of the noisy-prompt ensemble."""
    weights = unit(bank.noisy_means, what="The mean noisy prompts")
    return Head(bank.labels, weights)
