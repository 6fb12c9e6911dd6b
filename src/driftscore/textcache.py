"""Text embeddings on disk: a text, and the statistics of a label, are encoded only once.

One SQLite file in the cache folder, safe for several processes at once, with two tables:

    texts_2    (model, text)                       ->  the text's embedding
    classes_2  (model, digest of a label's texts)  ->  prototype, drift, radius and noisy mean

The second table holds the result of a label's 208 noisy prompts instead of their embeddings, which
would take a hundred times the space. Each row has a checksum; one that does not fit is computed
again. It is a cache: if it cannot be opened, is damaged or stays locked for two seconds, work
continues without it and a warning says so. Tables of earlier versions had no checksum and are not
used.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from driftscore.backbones import Backbone
from driftscore.databases import is_usable, open_database, row_checksum
from driftscore.errors import MismatchError
from driftscore.files import cache_home, warn_of_cache
from driftscore.progress import progress_bar
from driftscore.vectors import Matrix, Vector, matrix

BATCH = 128
_KEYS_PER_QUERY = 500  # SQLite accepts at least 999 variables
_FEW = 64  # below this many texts no progress bar is shown

_TABLES = ("texts_2", "classes_2")
_SCHEMA = tuple(
    f"CREATE TABLE IF NOT EXISTS {name} (model TEXT, key TEXT, vector BLOB, checksum INTEGER, "
    "PRIMARY KEY (model, key)) WITHOUT ROWID"
    for name in _TABLES
)


class TextCache:
    """The embeddings that were computed already, in one SQLite file."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path else cache_home() / "texts.sqlite"
        self._lost = False

    def get(self, model: str, texts: Sequence[str]) -> dict[str, Vector]:
        """Return the embeddings that are present, by text."""
        return self._get("texts_2", model, texts)

    def put(self, model: str, texts: Sequence[str], rows: Matrix) -> None:
        """Store the embeddings of texts."""
        self._put("texts_2", model, dict(zip(texts, rows, strict=True)))

    def get_classes(self, model: str, digests: Sequence[str]) -> dict[str, Vector]:
        """Return the statistics of labels that are present, by the digest of their texts."""
        return self._get("classes_2", model, digests)

    def put_classes(self, model: str, statistics: Mapping[str, Vector]) -> None:
        """Store the statistics of labels, by the digest of their texts."""
        self._put("classes_2", model, statistics)

    def _get(self, table: str, model: str, keys: Sequence[str]) -> dict[str, Vector]:
        found: dict[str, Vector] = {}
        if self._lost:
            return found
        query = f"SELECT key, vector, checksum FROM {table} WHERE model = ? AND key IN"  # noqa: S608
        try:
            with closing(open_database(self.path, *_SCHEMA)) as db:
                for first in range(0, len(keys), _KEYS_PER_QUERY):
                    some = keys[first : first + _KEYS_PER_QUERY]
                    marks = ", ".join("?" * len(some))
                    for name, blob, checksum in db.execute(f"{query} ({marks})", (model, *some)):
                        if (vector := _vector(model, name, blob, checksum)) is not None:
                            found[name] = vector
        except (sqlite3.Error, OSError, UnicodeError) as error:
            self._lose(error)
        return found

    def _put(self, table: str, model: str, rows: Mapping[str, Vector]) -> None:
        if self._lost:
            return
        try:
            blobs = {key: row.astype("<f4").tobytes() for key, row in rows.items()}
            values = [
                (model, key, blob, row_checksum(model, "\n", key, "\n", blob))
                for key, blob in blobs.items()
                if is_usable(rows[key])
            ]
            with closing(open_database(self.path, *_SCHEMA)) as db, db:
                db.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?)", values)  # noqa: S608
        except (sqlite3.Error, OSError, UnicodeError) as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        """Continue without the file, with one warning."""
        self._lost = True
        warn_of_cache("text", self.path, error)


def _vector(model: str, key: object, blob: object, checksum: object) -> Vector | None:
    """Return the vector of a row, or nothing if the row is damaged."""
    if not isinstance(key, str) or not isinstance(blob, bytes) or not blob or len(blob) % 4:
        return None
    if checksum != row_checksum(model, "\n", key, "\n", blob):
        return None
    vector = np.frombuffer(blob, "<f4").astype(np.float32)
    return vector if is_usable(vector) else None


class TextEncoder:
    """The text side of a backbone behind the cache: call it with texts to get unit rows."""

    def __init__(
        self, backbone: Backbone, *, cache: TextCache | None = None, progress: bool | None = None
    ) -> None:
        self.backbone = backbone
        self.cache = cache if backbone.caches_text else None
        self.progress = progress

    @property
    def model(self) -> str:
        """The key of this model in the cache."""
        return self.backbone.cache_key

    def __call__(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text, encoding only those that are not in the cache."""
        wanted = list(dict.fromkeys(texts))
        stored = self.cache.get(self.model, wanted) if self.cache else {}
        known = {text: row for text, row in stored.items() if row.shape == (self.backbone.dim,)}
        todo = [text for text in wanted if text not in known]
        show = self.progress if len(todo) >= _FEW else False
        with progress_bar("Encoding texts", len(todo), show=show) as advance:
            for batch, rows in self.batches(todo, advance):
                known.update(zip(batch, rows, strict=True))
                if self.cache:
                    self.cache.put(self.model, batch, rows)
        return np.stack([known[text] for text in texts])

    def encode(
        self, texts: Sequence[str], advance: Callable[[int], None] = lambda count: None
    ) -> dict[str, Vector]:
        """Return the embeddings of distinct texts by text, without the cache."""
        known: dict[str, Vector] = {}
        for batch, rows in self.batches(texts, advance):
            known.update(zip(batch, rows, strict=True))
        return known

    def batches(
        self, texts: Sequence[str], advance: Callable[[int], None]
    ) -> Iterator[tuple[list[str], Matrix]]:
        """Encode texts in batches, texts of similar length together: batches are padded."""
        ordered = sorted(texts, key=lambda text: (len(text), text))
        for first in range(0, len(ordered), BATCH):
            batch = ordered[first : first + BATCH]
            rows = matrix(self.backbone.embed_text(batch), what="Text embeddings")
            if rows.shape != (len(batch), self.backbone.dim):
                raise MismatchError(
                    f"{self.backbone.name} returned text embeddings of shape {rows.shape} for "
                    f"{len(batch)} texts; expected ({len(batch)}, {self.backbone.dim})"
                )
            yield batch, rows
            advance(len(batch))
