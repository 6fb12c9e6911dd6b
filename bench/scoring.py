"""What DAS costs beside plain cosine: `make bench`.

10,000 stored embeddings of 512 dimensions against 200 labels, the two heads in turn, many
times; the ratio is of medians, its spread the middle half of paired ratios.
"""

import platform
import time

import numpy as np

from driftscore import build_bank, compile_head, load_backbone
from driftscore.head import Head
from driftscore.vectors import unit

CLIPS, LABELS, ROUNDS = 10_000, 200, 41


def seconds(head: Head, z: np.ndarray) -> float:
    """Return how long scoring takes once."""
    start = time.perf_counter()
    head.scores(z)
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    model = load_backbone("fake", dim=512)
    bank = build_bank([f"sound {number}" for number in range(LABELS)], model, pack="generic5")
    cosine, das = compile_head(bank, "cosine"), compile_head(bank, "das")
    rng = np.random.default_rng(0)
    z = unit(rng.standard_normal((CLIPS, 512)).astype(np.float32))
    seconds(cosine, z)  # warm up
    pairs = np.array([(seconds(cosine, z), seconds(das, z)) for _ in range(ROUNDS)])
    low, middle, high = np.quantile(pairs[:, 1] / pairs[:, 0], [0.25, 0.5, 0.75])
    cost = np.median(pairs, axis=0) * 1e3
    print(f"{CLIPS} clips x {LABELS} labels, numpy {np.__version__}, {platform.machine()}")
    print(f"cosine {cost[0]:.1f} ms, das {cost[1]:.1f} ms")
    print(f"das / cosine: {middle:.3f} (middle half {low:.3f} to {high:.3f}, {ROUNDS} pairs)")


if __name__ == "__main__":
    main()
