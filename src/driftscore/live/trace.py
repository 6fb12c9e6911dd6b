"""The scores of the last windows of a stream: what an event was decided from, for the audit."""

from collections import deque

import numpy as np

from driftscore.vectors import Scores

KEPT_S = 300.0
_BEFORE = 2  # windows
TracedWindow = tuple[float, float, Scores, Scores]
"""Start, end, scores above the background and what they are divided by."""


class ScoreTrace:
    """Keeps the scores of some minutes of windows."""

    def __init__(self, hop_s: float, kept_s: float = KEPT_S) -> None:
        self._windows: deque[TracedWindow] = deque(maxlen=max(2, round(kept_s / hop_s)))
        self._cut = False

    def add(self, start_s: float, end_s: float, above: Scores, spreads: Scores | float) -> None:
        """Add the next window."""
        self._cut = self._cut or len(self._windows) == self._windows.maxlen
        scale = np.broadcast_to(np.asarray(spreads, np.float64), above.shape)
        self._windows.append((start_s, end_s, above.copy(), scale.copy()))

    def since(self, start_s: float) -> list[TracedWindow] | None:
        """Return the windows of an event and some before them; None if those are gone.

        Windows before the event change nothing: it was not joined to anything in them.
        """
        windows = list(self._windows)
        first = next((n for n, window in enumerate(windows) if window[1] >= start_s), 0) - _BEFORE
        if first < 0 and self._cut:
            return None
        return windows[max(0, first) :]
