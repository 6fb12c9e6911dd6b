"""Score blocks of recordings with a head: one matrix product per block."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from driftscore.embedder import EmbeddedBlock
from driftscore.head import Head
from driftscore.result import ResultBlock
from driftscore.vectors import Matrix

_BLOCK = 2048


def score_blocks(head: Head, blocks: Iterable[EmbeddedBlock]) -> Iterator[ResultBlock]:
    """Yield the results of blocks of recordings.

    If the next block is ready already, a thread scores this one while that one is fetched.
    """
    with ThreadPoolExecutor(1, "driftscore-scorer") as scorer:
        before: Future[ResultBlock] | None = None
        for block in blocks:
            ahead = scorer.submit(_scored, head, block) if block.followed else None
            if before is not None:
                yield before.result()
            if ahead is None:
                yield _scored(head, block)
            before = ahead
        if before is not None:
            yield before.result()


def score_rows(head: Head, names: Sequence[str], rows: Matrix) -> Iterator[ResultBlock]:
    """Yield the results of recordings that were embedded before."""
    for first in range(0, len(rows), _BLOCK):
        part = slice(first, first + _BLOCK)
        size = len(rows[part])
        scores = head.scores(rows[part])
        yield ResultBlock(head.labels, names[part], scores, [0.0] * size, [""] * size)


def _scored(head: Head, block: EmbeddedBlock) -> ResultBlock:
    rows = block.embeddings()
    scores = head.scores(rows) if len(rows) else np.zeros((0, len(head.labels)))
    return ResultBlock(head.labels, block.sources, scores, block.seconds, block.errors)
