"""Repeated confirmation: how often a label must be found within a minute before it is reported."""

from collections import deque

from driftscore.watchlist import WatchList

WITHIN_S = 60.0


class Confirmation:
    """Counts the events of each label of one stream."""

    def __init__(self, watch: WatchList) -> None:
        self._needed = {label.name: label.confirm for label in watch.labels}
        self._ends: dict[str, deque[float]] = {
            label.name: deque(maxlen=label.confirm) for label in watch.labels
        }

    def missing(self, label: str, end_s: float) -> str:
        """Count an event; return why it is not confirmed yet, empty if it is."""
        ends = self._ends[label]
        ends.append(end_s)
        count, needed = self._recent(label, end_s), self._needed[label]
        return "" if count >= needed else f"unconfirmed: {count} of {needed} within a minute"

    def would_confirm(self, label: str, now_s: float) -> bool:
        """Return whether an event that ends now would be confirmed."""
        return self._recent(label, now_s) + 1 >= self._needed[label]

    def _recent(self, label: str, now_s: float) -> int:
        return sum(now_s - end_s <= WITHIN_S for end_s in self._ends[label])
