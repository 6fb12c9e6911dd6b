"""Text embeddings on disk: a text, and the statistics of a label, are encoded only once.

One SQLite file in the cache folder, safe for several processes at once, with two tables:

    texts_2    (model, text)                       ->  the text's embedding
    classes_2  (model, digest of a label's texts)  ->  prototype, drift, radius and noisy mean

The second table holds the result of a label's 208 noisy prompts instead of their embeddings, which
would take a hundred times the space. Each row has a checksum; one that does not fit is computed
again. It is a cache: if it cannot be opened, is damaged or stays locked for two seconds, work
continues without it and a warning says so.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock

import numpy as np

from driftscore.backbones import MinimalBackbone, check_backbone
from driftscore.backbones.vectors import Matrix, Vector, matrix
from driftscore.errors import MismatchError
from driftscore.storage.files import cache_home
from driftscore.storage.sqlite import CacheFile, is_usable, row_checksum
from driftscore.system.progress import Advance, progress_bar

BATCH = 128
_MIN_SHOWN = 64  # below this many texts no progress bar is shown

TEXTS, CLASSES = "texts_2", "classes_2"
_SCHEMA = tuple(
    f"CREATE TABLE IF NOT EXISTS {name} (model TEXT, key TEXT, vector BLOB, checksum INTEGER, "
    "PRIMARY KEY (model, key)) WITHOUT ROWID"
    for name in (TEXTS, CLASSES)
)


class TextCache:
    """The embeddings that were computed already, in one SQLite file."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path else cache_home() / "texts.sqlite"
        self._file = CacheFile("text", self.path, *_SCHEMA)

    def get(self, table: str, model: str, keys: Sequence[str]) -> dict[str, Vector]:
        """Return the rows of a table (`TEXTS` or `CLASSES`) that are present, by key."""
        query = f"SELECT key, vector, checksum FROM {table} WHERE model = ? AND key IN"  # noqa: S608
        return {
            key.decode(): np.frombuffer(blob, "<f4").astype(np.float32)
            for key, blob, checksum in self._file.get(query, keys, model)
            if type(key) is type(blob) is bytes
            and checksum == row_checksum(model, "\n", key, "\n", blob)
        }

    def put(self, table: str, model: str, rows: Mapping[str, Vector]) -> None:
        """Store rows of a table by key."""
        blobs = {key: row.astype("<f4").tobytes() for key, row in rows.items() if is_usable(row)}
        values = [
            (model, key, blob, row_checksum(model, "\n", key, "\n", blob))
            for key, blob in blobs.items()
        ]
        self._file.put(**{table: values})


class MemoryTextCache(TextCache):
    """A text cache that never touches the disk, for the words of strangers in the service.

    The most recently used rows are kept; a label's statistics take about 6 kB for `mini`. Threads
    may share it.
    """

    def __init__(self, max_rows: int = 4000) -> None:
        super().__init__()
        self.max_rows = max_rows
        self._rows: OrderedDict[tuple[str, str, str], Vector] = OrderedDict()
        self._lock = Lock()

    def get(self, table: str, model: str, keys: Sequence[str]) -> dict[str, Vector]:
        """Return the rows of a table that are present, by key."""
        rows: dict[str, Vector] = {}
        with self._lock:
            for key in keys:
                if (row := self._rows.get((table, model, key))) is not None:
                    self._rows.move_to_end((table, model, key))
                    rows[key] = row
        return rows

    def put(self, table: str, model: str, rows: Mapping[str, Vector]) -> None:
        """Keep rows of a table by key."""
        with self._lock:
            for key, row in rows.items():
                self._rows[table, model, key] = row.copy()
            while len(self._rows) > self.max_rows:
                self._rows.popitem(last=False)


class TextEncoder:
    """The text side of a backbone behind the cache: call it with texts to get unit rows."""

    def __init__(
        self,
        backbone: MinimalBackbone,
        *,
        cache: TextCache | None = None,
        progress: bool | None = None,
    ) -> None:
        self.backbone = check_backbone(backbone)
        self.cache = cache if self.backbone.caches_text else None
        self.model = self.backbone.cache_key
        self.progress = progress

    def __call__(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text, encoding only those that are not in the cache."""
        distinct = sorted(set(texts), key=lambda text: (len(text), text))
        stored = self.cache.get(TEXTS, self.model, distinct) if self.cache else {}
        vectors = {text: row for text, row in stored.items() if row.shape == (self.backbone.dim,)}
        todo = [text for text in distinct if text not in vectors]
        show = self.progress if len(todo) >= _MIN_SHOWN else False
        with progress_bar("Encoding texts", len(todo), show=show) as advance:
            for first in range(0, len(todo), BATCH):
                batch = self.encode(todo[first : first + BATCH], advance)
                vectors |= batch
                if self.cache:
                    self.cache.put(TEXTS, self.model, batch)
        return np.stack([vectors[text] for text in texts])

    def encode(self, texts: Sequence[str], advance: Advance) -> dict[str, Vector]:
        """Return the embeddings of distinct texts by text, without the cache.

        Texts of similar length are encoded together: batches are padded.
        """
        vectors: dict[str, Vector] = {}
        ordered = sorted(texts, key=lambda text: (len(text), text))
        for first in range(0, len(ordered), BATCH):
            batch = ordered[first : first + BATCH]
            rows = matrix(self.backbone.embed_text(batch), what="Text embeddings")
            if rows.shape != (len(batch), self.backbone.dim):
                raise MismatchError(
                    f"{self.backbone.name} returned text embeddings of shape {rows.shape} for "
                    f"{len(batch)} texts; expected ({len(batch)}, {self.backbone.dim})"
                )
            vectors |= zip(batch, rows, strict=True)
            advance(len(batch))
        return vectors
