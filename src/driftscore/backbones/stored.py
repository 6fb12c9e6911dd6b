"""Embeddings that already exist: vectors of any model, in any language, from any machine.

An npz of text vectors (and of clip vectors, if there are any) stands in for the model:
write the texts with `driftscore prompts`, encode them where the model runs, and load the
file here. There is no audio encoder; clip vectors go to `driftscore score`.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np

from driftscore.audio import Audio
from driftscore.backbones.protocol import Backbone
from driftscore.embeddings import EmbeddingFile
from driftscore.errors import UsageError
from driftscore.vectors import Matrix


class Stored(Backbone):
    """A backbone that looks its text vectors up."""

    caches_text = False  # a look-up: the text cache would only keep it twice
    rate = 48_000
    seconds = 10.0

    def __init__(self, content: EmbeddingFile, *, where: str) -> None:
        if not content.texts:
            raise UsageError(f"{where} holds no text vectors; add texts and text_embeddings")
        self.content = content
        self.where = where
        self._row = {text: row for row, text in enumerate(content.texts)}

    @property
    def name(self) -> str:
        """The model that made the vectors, or the file's name."""
        return self.content.name or Path(self.where).name

    @cached_property
    def fingerprint(self) -> str:
        """The model's own fingerprint where it is known, else the digest of the vectors."""
        if self.content.fingerprint:
            return self.content.fingerprint
        digest = hashlib.sha256("\n".join(self.content.texts).encode())
        digest.update(self.content.text_rows.tobytes())
        return f"stored/{digest.hexdigest()}"

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self.content.text_rows.shape[1])

    def embed_audio(self, clips: Sequence[Audio]) -> Matrix:
        """Refuse: vectors were stored, not the model that made them."""
        raise UsageError(
            f"{self.where} holds stored vectors and cannot hear; embed the clips with their model "
            "and score them with `driftscore score`"
        )

    def encode(self, features):
        return self.embed_audio([])

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return the stored rows of `texts`."""
        missing = [text for text in texts if text not in self._row]
        if missing:
            raise UsageError(
                f"{self.where} lacks texts that are needed, such as {missing[0]!r}; "
                "list them all with `driftscore prompts` and the same options"
            )
        return np.stack([self.content.text_rows[self._row[text]] for text in texts])


def accepts(spec: str) -> bool:
    """Whether a user points at stored embeddings."""
    return spec.endswith(".npz")


def load(path: str | PathLike[str]) -> Stored:
    """Load stored embeddings from an npz."""
    return Stored(EmbeddingFile.load(path), where=str(path))
