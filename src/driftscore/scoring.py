"""Score blocks of recordings with a head: one matrix product per block."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from driftscore.embedder import EmbeddedBlock
from driftscore.head import Head
from driftscore.result import ResultBlock
from driftscore.vectors import Matrix, Scores

_BLOCK = 2048


def score_blocks(head: Head, blocks: Iterable[EmbeddedBlock]) -> Iterator[ResultBlock]:
    """Yield the results of blocks of recordings.

    If the next block is ready already, a thread scores this one while that one is fetched. It is
    given the product only: two threads of Python would wait for each other.
    """
    with ThreadPoolExecutor(1, "driftscore-scorer") as scorer:
        before: tuple[EmbeddedBlock, Future[Scores]] | None = None
        for block in blocks:
            rows = block.embeddings()
            ahead = (block, scorer.submit(head.scores, rows)) if block.followed else None
            if before is not None:
                yield _results(head, before[0], before[1].result())
            if ahead is None:
                scores = head.scores(rows) if len(rows) else np.zeros((0, len(head.labels)))
                yield _results(head, block, scores)
            before = ahead
        if before is not None:
            yield _results(head, before[0], before[1].result())


def score_rows(head: Head, names: Sequence[str], rows: Matrix) -> Iterator[ResultBlock]:
    """Yield the results of recordings that were embedded before."""
    for first in range(0, len(rows), _BLOCK):
        part = slice(first, first + _BLOCK)
        size = len(rows[part])
        scores = head.scores(rows[part])
        yield ResultBlock(head.labels, names[part], scores, [0.0] * size, [""] * size)


def _results(head: Head, block: EmbeddedBlock, scores: Scores) -> ResultBlock:
    return ResultBlock(head.labels, block.sources, scores, block.seconds, block.errors)
