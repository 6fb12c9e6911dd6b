"""Text vectors on disk by (model, text): a text is encoded once, ever.

One SQLite file in the cache folder, safe for several processes at once. It is a cache:
where it cannot be opened or is damaged, work goes on without it, and a warning says so.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from driftscore.backbones import Backbone, cache_key
from driftscore.errors import MismatchError
from driftscore.files import cache_home, warn_of_cache
from driftscore.progress import progress_bar
from driftscore.vectors import Matrix, Vector

BATCH = 128
_ASKED = 500  # texts a query: SQLite takes 999 at least
_FEW = 64  # below this many texts a bar would only flicker


class TextCache:
    """The vectors already computed, in one SQLite file."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path else cache_home() / "texts.sqlite"

    def get(self, model: str, texts: Sequence[str]) -> dict[str, Vector]:
        """Return the vectors that are there, by text."""
        found: dict[str, Vector] = {}
        try:
            with closing(self._open()) as db:
                for first in range(0, len(texts), _ASKED):
                    some = texts[first : first + _ASKED]
                    marks = ", ".join("?" * len(some))
                    query = "SELECT text, vector FROM texts WHERE model = ? AND text IN"
                    for text, vector in db.execute(f"{query} ({marks})", (model, *some)):
                        found[text] = np.frombuffer(vector, "<f4").astype(np.float32)
        except (sqlite3.Error, OSError) as error:
            warn_of_cache("text", self.path, error)
        return found

    def put(self, model: str, texts: Sequence[str], rows: Matrix) -> None:
        """Keep the vectors of `texts`."""
        values = [
            (model, text, row.astype("<f4").tobytes())
            for text, row in zip(texts, rows, strict=True)
        ]
        try:
            with closing(self._open()) as db, db:
                db.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?, ?)", values)
        except (sqlite3.Error, OSError) as error:
            warn_of_cache("text", self.path, error)

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self.path, timeout=60)
        db.execute(
            "CREATE TABLE IF NOT EXISTS texts (model TEXT, text TEXT, vector BLOB, "
            "PRIMARY KEY (model, text)) WITHOUT ROWID"
        )
        return db


class TextEncoder:
    """A backbone's text side behind the cache: call it with texts, get unit rows."""

    def __init__(
        self, backbone: Backbone, *, cache: TextCache | None = None, progress: bool | None = None
    ) -> None:
        self.backbone = backbone
        self.cache = cache if getattr(backbone, "encodes_text", True) else None
        self.progress = progress

    def __call__(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row a text, encoding only what was never encoded."""
        model = cache_key(self.backbone)
        wanted = list(dict.fromkeys(texts))
        known = self.cache.get(model, wanted) if self.cache else {}
        # Texts of like length go together: a batch is padded to its longest.
        todo = sorted((t for t in wanted if t not in known), key=lambda t: (len(t), t))
        show = self.progress if len(todo) >= _FEW else False
        with progress_bar("Encoding texts", len(todo), show=show) as advance:
            for first in range(0, len(todo), BATCH):
                batch = todo[first : first + BATCH]
                rows = self.backbone.embed_text(batch)
                if rows.shape != (len(batch), self.backbone.dim):
                    raise MismatchError(
                        f"{self.backbone.name} returned text vectors of shape {rows.shape} "
                        f"for {len(batch)} texts; ({len(batch)}, {self.backbone.dim}) was expected"
                    )
                known.update(zip(batch, rows, strict=True))
                if self.cache:
                    self.cache.put(model, batch, rows)
                advance(len(batch))
        return np.stack([known[text] for text in texts])
