"""Encode texts in batches of a fixed shape, so that a text has the same bits in any list.

Matrix products of one shape give a row the same bits at every position; products of another shape
may not. A batch therefore has a fixed number of texts, all of one token length, and the first one
fills the free rows.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones.onnx.sessions import in_threads
from driftscore.vectors import Matrix, unit


def embed_alike(
    ids: Sequence[list[int]],
    embed: Callable[[NDArray[np.int64]], Matrix],
    *,
    rows: int,
    dim: int,
    parallel: int,
) -> Matrix:
    """Return one unit row per text, given its token ids; `embed` takes `rows` texts at a time."""
    order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
    batches: list[list[int]] = []
    for _, group in groupby(order, key=lambda row: len(ids[row])):
        alike = list(group)
        batches += [alike[at : at + rows] for at in range(0, len(alike), rows)]
    # The longest texts first: the last batch to finish should be a short one.
    batches.reverse()

    def embed_batch(batch: list[int]) -> Matrix:
        some = [ids[row] for row in batch]
        filled = np.array(some + [some[0]] * (rows - len(some)), np.int64)
        return unit(embed(filled)[: len(some)])

    found = in_threads(embed_batch, batches, parallel=parallel)
    together = np.zeros((len(ids), dim), np.float32)
    for batch, some in zip(batches, found, strict=True):
        together[batch] = some
    return together
