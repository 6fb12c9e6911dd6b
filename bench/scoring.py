"""The cost of DAS beside plain cosine.

10,000 stored embeddings of 512 dimensions against 200 labels, the two heads in turns. Both rules
compile to the same kind of head, so the cost must be the same.
"""

import numpy as np

from bench.figures import Figure, in_turns, ratio, scaled
from driftscore import build_bank, compile_head, load_backbone
from driftscore.backbones.vectors import unit
from driftscore.text.presets import PromptSettings

THREADS = 1
CLIPS, LABELS, DIM = 10_000, 200, 512


def measure(*, quick: bool) -> list[Figure]:
    """Score the same clips with both heads."""
    clips, turns = (1_000, 7) if quick else (CLIPS, 101)
    model = load_backbone("fake", dim=DIM)
    labels = [f"sound {number}" for number in range(LABELS)]
    bank = build_bank(labels, model, settings=PromptSettings(pack="generic5"))
    cosine, das = compile_head(bank, "cosine"), compile_head(bank, "das")
    z = unit(np.random.default_rng(0).standard_normal((clips, DIM)).astype(np.float32))
    seconds = in_turns({"cosine": lambda: cosine.scores(z), "das": lambda: das.scores(z)}, turns)
    found = ratio(seconds["cosine"], seconds["das"])
    return [
        Figure(
            f"adding DAS to cosine: {clips:,} clips x {LABELS} labels",
            scaled(seconds["das"], 1e3),
            "ms",
            peer="cosine",
            theirs=scaled(seconds["cosine"], 1e3),
            ratio=found,
            bar="1.00x within noise",
            # Within noise: the middle half of the turns contains 1, or the median is within 1 %.
            met=found.low <= 1 <= found.high or abs(found.median - 1) < 0.01,
        )
    ]
