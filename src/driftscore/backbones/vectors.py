"""Unit rows and their means: the numpy that the rest is written in.

A *matrix* is a 2-D float32 array of row vectors; *unit* rows have length one, so a
dot product is a cosine.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from driftscore.errors import UsageError

Matrix = NDArray[np.float32]
Vector = NDArray[np.float32]
Scores = NDArray[np.float64]

_BLOCK = 512
VANISHING = 1e-6
"""A vector shorter than this has no direction worth using (float32 noise is 1e-7)."""


def matrix(rows: ArrayLike, *, what: str) -> Matrix:
    """Return `rows` as a finite 2-D float32 array; `what` names it in the error."""
    array = np.asarray(rows)
    if array.dtype.kind not in "fiu":
        raise UsageError(f"{what} must be numbers, not {array.dtype}")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
        array = np.atleast_2d(array).astype(np.float32, copy=False)
    if array.ndim != 2 or array.size == 0:
        raise UsageError(f"{what} must be a non-empty matrix of rows, not of shape {array.shape}")
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise UsageError(f"{what} has a NaN or infinite value in row {bad}")
    return array


def lengths(rows: Matrix) -> NDArray[np.float64]:
    """Return the Euclidean length of each row, accumulated in float64."""
    wide = rows.astype(np.float64)
    return np.sqrt((wide * wide).sum(axis=1))


def unit(rows: Matrix, *, what: str = "embeddings") -> Matrix:
    """Scale each row to length one; a row of zeros has no direction and is an error.

    A block of rows at a time: in float64 all of them at once would take four times their
    memory, and most of the time would go into getting it.
    """
    scaled = np.empty(rows.shape, np.float32)
    for first in range(0, len(rows), _BLOCK):
        block = rows[first : first + _BLOCK]
        length = lengths(block)
        if (length < 1e-12).any():
            row = first + int(np.argmin(length))
            raise UsageError(f"{what}: row {row} is all zeros, it has no direction")
        scaled[first : first + _BLOCK] = block / length[:, None]
    return scaled


def unit_mean(rows: Iterable[Vector]) -> Vector:
    """Return the unit vector along the mean of unit `rows`; one row is returned as it is."""
    vectors = list(rows)
    if not vectors:
        raise UsageError("windows: there is nothing to average")
    if len(vectors) == 1:
        return vectors[0].astype(np.float32, copy=False)
    total = sum(vectors[1:], start=vectors[0].astype(np.float64))
    length = float(np.linalg.norm(total))
    if length < 1e-12:
        raise UsageError("windows cancel out: their mean has no direction")
    return (total / length).astype(np.float32)
