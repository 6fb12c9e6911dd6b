"""Lower each class by how well a named background already matches it (ZS-Text).

score = z . C_c - tau * mean_k (e_k . C_c), e_k three sentences on the background. *Matched*
is the true scene ("street traffic"); the default, *generic*, is "background noise".
"""

from collections.abc import Sequence

from driftscore.scoring.bank import ClassBank
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import Needs, Variant
from driftscore.text.cache import TextEncoder
from driftscore.text.packs import load_pack
from driftscore.text.presets import fill

SHORT = "ZS-T-g"
NEEDS = Needs.TEXT
VARIANTS = (
    Variant(
        "matched",
        "ZS-T-m",
        "it is told the true place of each clip",
        setting="background",
    ),
)


GENERIC = "background noise"


def texts(labels: Sequence[str], *, background: str = GENERIC) -> list[str]:
    """Return the sentences about the background."""
    return [fill(t, p=background) for t in load_pack("background3").texts]


def compile(
    bank: ClassBank, *, text: TextEncoder, background: str = GENERIC, tau: float = 0.5
) -> Head:
    """Return the head that subtracts the named background's profile."""
    sentences = texts(bank.labels, background=background)
    profile = bank.prototypes @ text(sentences).mean(axis=0)
    return Head(bank.labels, bank.prototypes, -tau * profile)
