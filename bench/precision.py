"""Average precision beside scikit-learn's on FSD50K's size: part of `make bench`.

10,231 clips x 200 classes, the two in turn; equal to 1e-12, the ratio of medians.
"""

import time

import numpy as np
from sklearn.metrics import average_precision_score

from driftscore.lab.metrics import average_precisions

CLIPS, CLASSES, ROUNDS = 10_231, 200, 7


def main() -> None:
    """Measure and print."""
    rng = np.random.default_rng(0)
    truth = rng.random((CLIPS, CLASSES)) < 0.02
    scores = (rng.standard_normal(truth.shape) + truth).astype(np.float32).astype(np.float64)
    seconds: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        marks = [time.perf_counter()]
        ours = average_precisions(truth, scores)
        marks.append(time.perf_counter())
        theirs = average_precision_score(truth, scores, average=None)
        marks.append(time.perf_counter())
        seconds.append((marks[1] - marks[0], marks[2] - marks[1]))
    medians = np.median(seconds, axis=0)
    gap = np.abs(ours - theirs).max()
    print(f"average precision, {CLIPS} x {CLASSES}: ours {medians[0] * 1e3:.0f} ms, ", end="")
    print(
        f"scikit-learn {medians[1] * 1e3:.0f} ms, {medians[1] / medians[0]:.1f} times as fast; ",
        end="",
    )
    print(f"largest difference {gap:.1e}")


if __name__ == "__main__":
    main()
