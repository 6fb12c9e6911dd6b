"""Average precision beside scikit-learn's, at the size of FSD50K.

10,231 clips x 200 classes with 2 % positives and float scores; both get the same numbers, in
turns. Ours sorts the scores of each class, which is much faster with the vectors of
AVX512 or AVX2: expect a smaller ratio on a processor without them
(NPY_DISABLE_CPU_FEATURES="AVX512_ICL X86_V4 X86_V3" turns them off).
"""

import numpy as np
from sklearn.metrics import average_precision_score

from bench.figures import Figure, in_turns, ratio, scaled
from driftscore.lab.metrics import average_precisions

THREADS = 1
CLIPS, CLASSES, BAR = 10_231, 200, 10


def _simd() -> str:
    """Return what numpy sorts with, which most of our time depends on."""
    from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

    features = _multiarray_umath.__cpu_features__
    names = ("AVX512_SKX", "X86_V4", "AVX2", "X86_V3", "ASIMD")
    return next((name for name in names if features.get(name)), "no vectors")


def measure(*, quick: bool) -> list[Figure]:
    """Measure the average precision of every class with both libraries."""
    clips, turns = (1_000, 3) if quick else (CLIPS, 9)
    rng = np.random.default_rng(0)
    truth = rng.random((clips, CLASSES)) < 0.02
    scores = (rng.standard_normal(truth.shape) + truth).astype(np.float32).astype(np.float64)
    ours = average_precisions(truth, scores)
    theirs = average_precision_score(truth, scores, average=None)
    gap = float(np.abs(ours - theirs).max())
    seconds = in_turns(
        {
            "ours": lambda: average_precisions(truth, scores),
            "theirs": lambda: average_precision_score(truth, scores, average=None),
        },
        turns,
    )
    found = ratio(seconds["theirs"], seconds["ours"])
    return [
        Figure(
            f"macro average precision, {clips:,} x {CLASSES}",
            scaled(seconds["ours"], 1e3),
            "ms",
            peer="scikit-learn",
            theirs=scaled(seconds["theirs"], 1e3),
            ratio=found,
            bar=f">= {BAR}x",
            met=found.median >= BAR,
            note=f"largest difference over the classes {gap:.1e}; numpy sorts with {_simd()} here",
            details={"largest_difference": gap},
        )
    ]
