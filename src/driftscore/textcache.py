"""Text embeddings on disk: a text, and the statistics of a label, are encoded only once.

One SQLite file in the cache folder, safe for several processes at once, with two tables:

    texts    (model, text)                       ->  the text's embedding
    classes  (model, digest of a label's texts)  ->  prototype, drift, radius and noisy mean

The second table holds the result of a label's 208 noisy prompts instead of their embeddings, which
would take a hundred times the space. It is a cache: if it cannot be opened or is damaged, work
continues without it and a warning says so.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from driftscore.backbones import Backbone
from driftscore.errors import MismatchError
from driftscore.files import cache_home, warn_of_cache
from driftscore.progress import progress_bar
from driftscore.vectors import Matrix, Vector, matrix

BATCH = 128
_KEYS_PER_QUERY = 500  # SQLite accepts at least 999 variables
_FEW = 64  # below this many texts no progress bar is shown

_SCHEMA = """
CREATE TABLE IF NOT EXISTS texts (
    model TEXT, text TEXT, vector BLOB, PRIMARY KEY (model, text)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS classes (
    model TEXT, digest TEXT, vectors BLOB, PRIMARY KEY (model, digest)) WITHOUT ROWID;
"""
_COLUMNS = {"texts": ("text", "vector"), "classes": ("digest", "vectors")}


class TextCache:
    """The embeddings that were computed already, in one SQLite file."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path else cache_home() / "texts.sqlite"

    def get(self, model: str, texts: Sequence[str]) -> dict[str, Vector]:
        """Return the embeddings that are present, by text."""
        return self._get("texts", model, texts)

    def put(self, model: str, texts: Sequence[str], rows: Matrix) -> None:
        """Store the embeddings of texts."""
        self._put("texts", model, dict(zip(texts, rows, strict=True)))

    def get_classes(self, model: str, digests: Sequence[str]) -> dict[str, Vector]:
        """Return the statistics of labels that are present, by the digest of their texts."""
        return self._get("classes", model, digests)

    def put_classes(self, model: str, statistics: Mapping[str, Vector]) -> None:
        """Store the statistics of labels, by the digest of their texts."""
        self._put("classes", model, statistics)

    def _get(self, table: str, model: str, keys: Sequence[str]) -> dict[str, Vector]:
        found: dict[str, Vector] = {}
        key, value = _COLUMNS[table]
        try:
            with closing(self._open()) as db:
                for first in range(0, len(keys), _KEYS_PER_QUERY):
                    some = keys[first : first + _KEYS_PER_QUERY]
                    marks = ", ".join("?" * len(some))
                    query = f"SELECT {key}, {value} FROM {table} WHERE model = ? AND {key} IN"  # noqa: S608
                    for name, blob in db.execute(f"{query} ({marks})", (model, *some)):
                        found[name] = np.frombuffer(blob, "<f4").astype(np.float32)
        except (sqlite3.Error, OSError) as error:
            warn_of_cache("text", self.path, error)
        return found

    def _put(self, table: str, model: str, rows: Mapping[str, Vector]) -> None:
        values = [(model, key, row.astype("<f4").tobytes()) for key, row in rows.items()]
        try:
            with closing(self._open()) as db, db:
                db.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", values)  # noqa: S608
        except (sqlite3.Error, OSError) as error:
            warn_of_cache("text", self.path, error)

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self.path, timeout=60)
        db.executescript(_SCHEMA)
        return db


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
