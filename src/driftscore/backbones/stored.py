"""Embeddings that were computed elsewhere: by any model, in any language, on any machine.

An npz with text embeddings (and clip embeddings, if there are any) takes the place of the model:
write the texts with `driftscore prompts`, encode them where the model runs, and load the file here.
There is no audio encoder; clip embeddings are scored with `driftscore score`.
"""

import hashlib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from driftscore.audio import Audio
from driftscore.backbones.protocol import Backbone, Features
from driftscore.embeddings import EmbeddingFile
from driftscore.errors import UsageError
from driftscore.vectors import Matrix, Vector


class Stored(Backbone):
    """A backbone that looks up its text embeddings in a file."""

    rate = 48_000
    seconds = 10.0
    runtime = "no model: text embeddings are looked up in the file"
    caches_text = False  # the text cache would only store the same rows again

    def __init__(self, content: EmbeddingFile, *, where: str) -> None:
        if not content.texts:
            raise UsageError(f"{where} has no text embeddings; add texts and text_embeddings")
        self.content = content
        self.where = where
        self.name = content.name or Path(where).name
        self.dim = int(content.text_rows.shape[1])
        self.fingerprint = content.fingerprint or _digest(content)
        self._row = {text: row for row, text in enumerate(content.texts)}

    def encode(self, features: Features) -> Vector:
        """Refuse: the file has embeddings, not the model that made them."""
        raise self._no_model()

    def embed_audio(self, clips: Sequence[Audio]) -> Matrix:
        """Refuse: the file has embeddings, not the model that made them."""
        raise self._no_model()

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return the stored rows of `texts`."""
        missing = [text for text in texts if text not in self._row]
        if missing:
            raise UsageError(
                f"{self.where} lacks texts that are needed, such as {missing[0]!r}; "
                "list them all with `driftscore prompts` and the same options"
            )
        return np.stack([self.content.text_rows[self._row[text]] for text in texts])

    def _no_model(self) -> UsageError:
        return UsageError(
            f"{self.where} has stored embeddings and cannot embed audio; embed the clips with the "
            "model that made them and score them with `driftscore score`"
        )


def _digest(content: EmbeddingFile) -> str:
    """Return a fingerprint for the embeddings of an unknown model."""
    digest = hashlib.sha256("\n".join(content.texts).encode())
    digest.update(content.text_rows.tobytes())
    return f"stored/{digest.hexdigest()}"


def accepts(spec: str) -> bool:
    """Return whether `spec` names a file of stored embeddings."""
    return spec.endswith(".npz")


def load(path: str | PathLike[str]) -> Stored:
    """Load stored embeddings from an npz."""
    return Stored(EmbeddingFile.load(path), where=str(path))
