"""Whether a stored row fits the truth of its dataset, and the stored scores of multi-label rows."""

import numpy as np
from numpy.typing import NDArray

from driftscore.lab.conditions import Row
from driftscore.lab.runs.embedding import is_matrix
from driftscore.lab.runs.found import METRIC, find_detections
from driftscore.lab.runs.records import SHARES
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.truth import Truth
from driftscore.vectors import Scores


def find_scores(store: Store, row: Row, truth: Truth) -> tuple[Scores, NDArray[np.intp]] | None:
    """Return the scores of a row (clips x classes) and its clips; None without valid ones."""
    arrays = store.get_arrays("scores", row.cell.key)
    if arrays is None:
        return None
    scores, clips = arrays.get("scores"), arrays.get("clips")
    unchecked = np.zeros(row.n, np.bool_)  # a clip whose scores are all zero is possible
    if scores is None or not is_matrix(scores, row.n, len(truth.labels), usable=unchecked):
        return None
    if clips is None or clips.dtype.kind not in "iu" or clips.shape != (row.n,):
        return None
    numbers = clips.astype(np.intp)
    if len(np.unique(numbers)) != row.n or numbers.min() < 0 or numbers.max() >= len(truth.ids):
        return None
    return scores.astype(np.float64), numbers


def fits(store: Store, row: Row, truth: Truth) -> bool:
    """Return whether the counts, outcomes and scores of a row are those of the clips of a truth."""
    if row.outcomes is not None:
        in_range = (row.outcomes >= -1) & (row.outcomes < len(truth.labels))
        if row.outcomes.shape != (len(truth.ids),) or not in_range.all():
            return False
        if int((row.outcomes >= 0).sum()) != row.n:
            return False
    if row.metric in SHARES and row.n + row.failed != len(truth.ids):
        return False
    if row.metric == METRIC:
        return find_detections(store, row) is not None
    if row.metric == "accuracy":
        return row.outcomes is not None and not truth.multi_label
    return row.metric != "mAP" or find_scores(store, row, truth) is not None
