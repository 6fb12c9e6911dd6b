"""Texts that the service has encoded, in memory: one more word costs only what is new.

Words of strangers are not kept on disk, as `textcache.TextCache` would. The most recently used rows
are kept; a label's statistics take about 6 kB for `mini`.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock

from driftscore.textcache import TextCache
from driftscore.vectors import Vector

MOST_ROWS = 4000


class MemoryTextCache(TextCache):
    """A text cache that never touches the disk; it is bounded, and shared by threads."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        super().__init__()
        self.most_rows = most_rows
        self._rows: OrderedDict[tuple[str, str, str], Vector] = OrderedDict()
        self._lock = Lock()

    @property
    def row_count(self) -> int:
        """How many rows it has; not its length: an empty cache must not count as none."""
        return len(self._rows)

    def _get(self, table: str, model: str, keys: Sequence[str]) -> dict[str, Vector]:
        with self._lock:
            found = {key: self._rows.get((table, model, key)) for key in keys}
            for key, row in found.items():
                if row is not None:
                    self._rows.move_to_end((table, model, key))
        return {key: row for key, row in found.items() if row is not None}

    def _put(self, table: str, model: str, rows: Mapping[str, Vector]) -> None:
        with self._lock:
            for key, row in rows.items():
                self._rows[table, model, key] = row.copy()
            while len(self._rows) > self.most_rows:
                self._rows.popitem(last=False)
