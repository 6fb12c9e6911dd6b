"""mn04, an AudioSet tagger with 0.98 M parameters, joined to MiniLM sentences by tag space.

    samples at 32 kHz -> log-mel (128, frames) -> 527 logits -> tag space
    text -> all-MiniLM-L6-v2 -> tag space

The tagger (EfficientAT, MIT licence) and the sentence encoder are not part of driftscore: see
`tagger` and `minilm` for where they are looked for.
"""

from driftscore.backbones.mn04.model import Mn04, load
from driftscore.backbones.mn04.tagger import RATE, SECONDS, Tagger, load_tagger

__all__ = ["RATE", "SECONDS", "Mn04", "Tagger", "load", "load_tagger"]
