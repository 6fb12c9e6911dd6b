"""The stored results of cells about events: counts by minute, and the curve over thresholds."""

import numpy as np
from numpy.typing import NDArray

from driftscore.lab.conditions import Row
from driftscore.lab.runs.store import Store

METRIC = "event F1"
"""The metric of rows about events; the report shows them in a section of their own."""

MinuteCounts = NDArray[np.int64]
"""Hits, missed events and false alarms of each minute, blocks x 3."""

CurveColumns = NDArray[np.float64]
"""Thresholds, precision, recall and false alarms per hour, 4 x points."""


def find_detections(store: Store, row: Row) -> tuple[MinuteCounts, CurveColumns] | None:
    """Return what is stored of a row about events; None without valid arrays."""
    arrays = store.get_arrays("scores", row.cell.key)
    if arrays is None:
        return None
    blocks, curve = arrays.get("blocks"), arrays.get("curve")
    if blocks is None or blocks.dtype.kind not in "iu" or blocks.shape[1:] != (3,):
        return None
    if curve is None or curve.dtype.kind != "f" or curve.ndim != 2 or len(curve) != 4:
        return None
    counts: MinuteCounts = blocks.astype(np.int64)
    if counts.min(initial=0) < 0 or counts[:, :2].sum() != row.n or not np.isfinite(curve).all():
        return None
    return counts, curve.astype(np.float64)
