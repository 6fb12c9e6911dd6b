"""Text drift against audio drift, class by class.

audio drift of class c    a_c = mean z (noisy clips of c) - mean z (the same clips, clean)
alignment                 cos(a_c, d_c), d_c the unit text drift
common share              |mean_c d_c|^2: the part of the drifts that all classes share, which
                          changes no argmax (1: all the same, 1 / C: practically unrelated)
"""

import numpy as np
from numpy.typing import NDArray

from driftscore.vectors import VANISHING, Matrix

Floats = NDArray[np.float64]


def drift_cosines(
    clean: Matrix, noisy: Matrix, present: NDArray[np.bool_], drifts: Matrix
) -> Floats:
    """Return for each class the cosine of audio and text drift; NaN if either has no direction.

    `clean` and `noisy` are embeddings of the same clips; `present` is which classes each has.
    """
    moved = noisy.astype(np.float64) - clean
    cosines = np.full(len(drifts), np.nan)
    for number, (members, drift) in enumerate(zip(present.T, drifts, strict=True)):
        if members.any():
            audio = moved[members].mean(axis=0)
            lengths = np.linalg.norm(audio) * np.linalg.norm(drift)
            if lengths > VANISHING:
                cosines[number] = audio @ drift / lengths
    return cosines


def direction_agreement(mean: Matrix, svd: Matrix) -> Floats:
    """Return for each class the cosine between its mean and its SVD drift."""
    products: Floats = (mean.astype(np.float64) * svd).sum(axis=1)
    return products


def common_share(drifts: Matrix) -> float:
    """Return how much of the unit drifts is common to all classes, in [0, 1]."""
    centre = drifts.astype(np.float64).mean(axis=0)
    return float(centre @ centre)
