"""Search stored windows for labels: the best places of an archive.

For each label the threshold is lowered until `top` separate places reach it. A place is a run of
overlapping windows of one recording that all reach the threshold; its score is that of its best
window. All windows are scored, in blocks as they are read, and there is no index: the time grows
with the number of windows and nothing else.

A block is scored in float32, and what may be among the best again as everywhere (`Head.scores`), so
the results depend neither on the blocks nor on the threads. Dropping windows below the threshold
that the windows so far need is safe: windows that follow can only raise it, because the windows of
a recording are in order of time and never join two places that are both before them.

How many of the best k places of a label are right can be expected without a labelled one, from the
scores of other sounds, those of the calibration:

    S(t)        the share of them that scores t or more; beyond their 98 % quantile q an exponential
                tail, S(t) = 0.02 exp((q - t) / mean excess over q)
    precision = 1 - windows / windows that overlap * S(score of the k-th) / k

at least 0, and never lower than that of more places; 0 if S is above 0.01. The calibration may hold
sounds of the label, which makes it cautious; where an archive is full of sounds that resemble the
label, it is not.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from driftscore.backbones.vectors import Scores, lengths
from driftscore.engines.archive import BLOCK, RowBlock, StoredRows
from driftscore.engines.protocol import thread_count
from driftscore.errors import MismatchError, UsageError
from driftscore.scoring.calibration import Calibration
from driftscore.scoring.head import Head

_ROUNDING = 1e-5
"""A float32 product may be wrong by this share of the length of the weights."""
_STEP = 64
"""Rows per product. Of larger ones OpenBLAS gives some to threads of its own, beside ours: a search
for five words then takes twice the time of the processor."""
_WAITING = 512
_TAIL = 0.02
"""The share of other sounds whose scores beyond are taken for an exponential tail."""
_FITS = 0.01
"""A place that more than this share of other sounds reaches is not expected to be right."""


@dataclass(frozen=True, slots=True)
class Place:
    """A label in a recording, from the start of its first window to the end of its last one."""

    source: str
    start_s: float
    end_s: float
    label: str
    score: float


def search(head: Head, windows: StoredRows, *, top: int, labels: int | None = None) -> list[Place]:
    """Return the best places of each of the first `labels` labels of a head (all by default).

    Places are in the order of the labels, best first.
    """
    if top < 1:
        raise UsageError(f"top must be positive, got {top}")
    head = Head(head.labels[:labels], head.weights[:labels], head.offsets[:labels], head.made_by)
    floors = np.full(len(head.labels), -np.inf)
    rankings = [_Ranking(top) for _ in head.labels]

    def search_part(part: Callable[[], Iterator[RowBlock]]) -> list[_Ranking]:
        own = [_Ranking(top) for _ in head.labels]
        weights = np.ascontiguousarray(head.weights.T)
        margins = _ROUNDING * lengths(head.weights)
        buffer = np.zeros((BLOCK, head.dim), np.float32)  # a new one each time takes longer
        for block in part():
            if block.codes.shape[1] != head.dim:
                raise MismatchError(
                    f"{windows.path} has embeddings of {block.codes.shape[1]} dimensions, the "
                    f"head {head.dim}: they come from different models"
                )
            count = len(block.codes)
            np.copyto(buffer[:count], block.codes, casting="unsafe")
            products = (buffer.reshape(-1, _STEP, head.dim) @ weights).reshape(BLOCK, -1)[:count]
            rough = products * block.scales[:, None] + head.offsets
            candidates = np.flatnonzero((rough >= floors - margins).any(axis=1))
            if not len(candidates):
                continue
            # Add the windows that may be among the best, and raise the thresholds.
            scores = head.scores(block.rows(candidates))
            for c, ranking in enumerate(own):
                for at in np.flatnonzero(scores[:, c] >= floors[c]).tolist():
                    row = int(candidates[at])
                    span = (0.0, 0.0) if block.spans is None else block.spans[row].tolist()
                    ranking.windows.append((-float(scores[at, c]), block.files[row], *span))
                if len(ranking.windows) > ranking.most:
                    ranking.places()
                    if ranking.floor > floors[c]:  # of another thread: a lower one only costs time
                        floors[c] = ranking.floor
        return own

    with ThreadPoolExecutor(min(thread_count(None), len(windows.parts))) as pool:
        for of_part in pool.map(search_part, windows.parts):
            for ranking, more in zip(rankings, of_part, strict=True):
                ranking.windows += more.windows
    return [
        Place(source, start_s, end_s, label, score)
        for label, ranking in zip(head.labels, rankings, strict=True)
        for source, start_s, end_s, score in ranking.places()
    ]


def expected_precision(scores: Sequence[float], others: Scores, separate: float) -> list[float]:
    """Return how many of the places up to each one are expected to be right, as a share.

    `scores` are those of the best places of a label, best first, and `others` what the label scores
    on other sounds; `separate` is how many windows do not overlap.
    """
    high = np.quantile(others, 1 - _TAIL)
    excess = max(1e-9, float((others[others >= high] - high).mean()))
    levels = np.array(scores)
    reached = (others[None] >= levels[:, None]).mean(axis=1)
    tail = _TAIL * np.exp(np.minimum(0.0, high - levels) / excess)
    share = np.where(levels > high, tail, reached)
    right = np.maximum(0.0, 1 - separate * share / np.arange(1, len(levels) + 1))
    right[share > _FITS] = 0.0
    return list(np.maximum.accumulate(right[::-1])[::-1].tolist())


def expected_precisions(
    places: Sequence[Place], head: Head, calibration: Calibration | None, windows: StoredRows
) -> list[float | None]:
    """Return the expected precision up to each place of a `search`; None where it cannot be told.

    It needs a calibration of the model, and windows that say how long they are.
    """
    if calibration is None or (spans := next(windows.blocks()).spans) is None:
        return [None] * len(places)
    steps, length_s = np.diff(spans[:, 0]), float(np.median(spans[:, 1] - spans[:, 0]))
    hop_s = float(np.median(steps[steps > 0])) if (steps > 0).any() else length_s
    separate = windows.count / max(1.0, length_s / hop_s)
    others = head.scores(np.concatenate([calibration.clean, calibration.noisy]))
    precisions: list[float | None] = []
    for c, label in enumerate(head.labels):
        scores = [place.score for place in places if place.label == label]
        precisions += expected_precision(scores, others[:, c], separate) if scores else []
    return precisions


class _Ranking:
    """The windows of one label that may belong to its best places."""

    def __init__(self, top: int) -> None:
        self.top = top
        self.windows: list[tuple[float, str, float, float]] = []
        """Negative score, recording, start and end; sorted, the best one is the first."""
        self.floor = -np.inf
        self.most = _WAITING

    def places(self) -> list[tuple[str, float, float, float]]:
        """Return the places with their scores, best first; forget windows below the threshold."""
        self.windows.sort()
        places: dict[str, list[tuple[float, float, float]]] = {}
        count = 0
        for number, (negative, source, start_s, end_s) in enumerate(self.windows):
            score, others = -negative, []
            joined = (start_s, end_s, score)
            for place in places.get(source, ()):
                if place[0] < joined[1] and joined[0] < place[1]:
                    joined = (min(place[0], joined[0]), max(place[1], joined[1]),
                              max(place[2], joined[2]))  # fmt: skip
                else:
                    others.append(place)
            size = len(others) + 1 - len(places.get(source, ()))
            if count + size > self.top:
                self.floor = score
                del self.windows[number:]
                break
            count += size
            places[source] = [*others, joined]
        self.most = max(_WAITING, 2 * len(self.windows))
        listed = [(source, *place) for source, several in places.items() for place in several]
        return sorted(listed, key=lambda place: (-place[3], place[0], place[1]))
