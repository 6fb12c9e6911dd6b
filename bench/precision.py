"""Average precision beside scikit-learn's, at the size of FSD50K.

10,231 clips x 200 classes with 2 % positives and float scores; both get the same numbers, in
turns, and the time is that of the processor. It is measured in two processes: with what numpy
finds in the processor, and without the vectors of AVX512 and AVX2 (NPY_DISABLE_CPU_FEATURES), as
on a virtual machine that hides them.
"""

import json
import os
import subprocess
import sys
import time

import numpy as np

from bench.figures import Figure, in_turns, ratio, scaled
from bench.machine import describe_machine

THREADS = 1
CLIPS, CLASSES, BAR = 10_231, 200, 10
_PLAIN = "AVX512_SPR AVX512_ICL X86_V4 X86_V3"


def _simd() -> str:
    """Return the widest vectors that numpy uses."""
    from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

    features = _multiarray_umath.__cpu_features__
    levels = {"X86_V4": "AVX512", "X86_V3": "AVX2", "ASIMD": "ASIMD"}
    return next((text for name, text in levels.items() if features.get(name)), "neither")


def _timed(clips: int, turns: int) -> dict[str, object]:
    """Return the seconds of both libraries in each turn, and how far they are apart."""
    from sklearn.metrics import average_precision_score

    from driftscore.lab.metrics import average_precisions

    rng = np.random.default_rng(0)
    truth = rng.random((clips, CLASSES)) < 0.02
    scores = (rng.standard_normal(truth.shape) + truth).astype(np.float32).astype(np.float64)
    theirs = average_precision_score(truth, scores, average=None)
    seconds = in_turns(
        {
            "ours": lambda: average_precisions(truth, scores),
            "theirs": lambda: average_precision_score(truth, scores, average=None),
        },
        turns,
        clock=time.process_time,
    )
    gap = float(np.abs(average_precisions(truth, scores) - theirs).max())
    return {**seconds, "gap": gap, "simd": _simd()}


def measure(*, quick: bool) -> list[Figure]:
    """Measure the average precision of every class with both libraries."""
    clips, turns = (1_000, 3) if quick else (CLIPS, 9)
    cpu, figures = describe_machine()["cpu"], []
    for disabled in ("", _PLAIN):
        child = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "bench.precision", str(clips), str(turns)],
            env=os.environ | {"NPY_DISABLE_CPU_FEATURES": disabled},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        timed = json.loads(child.stdout)
        times = ratio(timed["theirs"], timed["ours"])
        without = ", numpy without AVX512 and AVX2" if disabled else ""
        figures.append(
            Figure(
                f"macro average precision, {clips:,} x {CLASSES}{without}",
                scaled(timed["ours"], 1e3), "ms",
                peer="scikit-learn", theirs=scaled(timed["theirs"], 1e3), ratio=times,
                bar=f">= {BAR}x", met=times.median >= BAR,
                note=f"largest difference over the classes {timed['gap']:.1e}; seen on {cpu}, "
                f"numpy with {timed['simd']}",
                details={"largest_difference": timed["gap"]},
            )
        )  # fmt: skip
    return figures


if __name__ == "__main__":
    print(json.dumps(_timed(int(sys.argv[1]), int(sys.argv[2]))))
