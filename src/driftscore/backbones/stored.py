"""Embeddings that were computed elsewhere: by any model, in any language, on any machine.

A file with text embeddings (and clip embeddings, if there are any) takes the place of the model:
write the texts with `driftscore prompts`, encode them where the model runs, and load the file here.
There is no audio encoder; clip embeddings are scored with `driftscore score`. The file is an npz
without pickle:

    texts (n), text_embeddings (n x d)     what `driftscore prompts` lists, encoded
    files (m), audio_embeddings (m x d)    what `driftscore embed` writes
    spans (m x 2)                          of `embed --windows`: start and end in seconds
    model                                  optional: which model made them

Rows need not be unit: they are scaled when read. The fingerprint is the model's own where
driftscore made the file, else the model's name, else unknown.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Audio
from driftscore.backbones.protocol import Backbone, Features
from driftscore.backbones.vectors import Matrix, Vector, matrix, unit
from driftscore.errors import FormatError, UsageError
from driftscore.storage.checked import Text, decode
from driftscore.storage.files import is_stream, is_url, reading, replacing
from driftscore.storage.npz import FileArray, array_names, read_npy, read_npz, text_of, texts_of

_EMPTY = np.zeros((0, 0), np.float32)
_WHAT = "file of embeddings"
_ARRAYS = ("texts", "text_embeddings", "files", "audio_embeddings", "spans", "model", "fingerprint")


@dataclass(frozen=True, eq=False)
class EmbeddingFile:
    """Text vectors by text, clip vectors by file, and which model made them."""

    texts: tuple[str, ...] = ()
    text_rows: Matrix = field(default_factory=lambda: _EMPTY)
    files: tuple[str, ...] = ()
    audio_rows: Matrix = field(default_factory=lambda: _EMPTY)
    name: str = ""
    fingerprint: str = ""
    spans: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 2)))
    """Start and end of each row of `audio_rows` in seconds, if they are windows: (m, 2)."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file, whole or not at all."""
        content: dict[str, Any] = {
            "model": np.array(self.name),
            "fingerprint": np.array(self.fingerprint),
        }
        if self.texts:
            content |= {"texts": np.array(self.texts), "text_embeddings": self.text_rows}
        if self.files:
            content |= {"files": np.array(self.files), "audio_embeddings": self.audio_rows}
        if len(self.spans):
            content["spans"] = self.spans
        is_file = is_url(path) or not is_stream(path)
        if is_file and Path(path).suffix != ".npz":
            raise UsageError(f"Embeddings are written as npz; name a file like {path}.npz")
        with replacing(path) as partial, open(partial, "wb") as file:
            np.savez(file, **content)

    @staticmethod
    def load(path: str | PathLike[str], array: str = "") -> "EmbeddingFile":
        """Read an embedding file and scale its rows to unit length.

        `array` names the clip embeddings in an npz of another tool; without `files` they are
        numbered.
        """
        where = Path(path)
        content = read_npz(where, {*_ARRAYS, array or "files"}, what=_WHAT)
        with reading(where, _WHAT):
            if array:
                if array not in content:
                    names = array_names(where, what=_WHAT)[:20]
                    raise FormatError(f"{where} has no array {array!r}, but {', '.join(names)}")
                content["audio_embeddings"] = content[array]
                numbers = [f"{where.name}[{row}]" for row in range(len(content[array]))]
                content.setdefault("files", np.array(numbers))
            texts, text_rows = _pair(content, "texts", "text_embeddings", where)
            decode(list(texts), list[Text], where=f"texts in {where}")
            files, audio_rows = _pair(content, "files", "audio_embeddings", where)
            if not texts and not files:
                raise FormatError(
                    f"{where} has the arrays {array_names(where, what=_WHAT)[:20]}; wanted: texts "
                    "with text_embeddings, or files with audio_embeddings (one row each), or both"
                )
            name, maker = (
                text_of(content[array], what=array) if array in content else ""
                for array in ("model", "fingerprint")
            )
            spans = np.asarray(content.get("spans", np.zeros((0, 2))), np.float64)
            if len(spans) and (spans.shape != (len(files), 2) or not np.isfinite(spans).all()):
                raise FormatError(f"spans in {where} must be start and end of each of the files")
            return EmbeddingFile(texts, text_rows, files, audio_rows, name, maker or name, spans)


def load_vectors(path: str | PathLike[str], texts: tuple[str, ...]) -> EmbeddingFile:
    """Read text vectors: by their own texts, or as one bare array in the order of `texts`."""
    where = Path(path)
    if where.suffix != ".npy":
        return EmbeddingFile.load(where)
    needed = (
        f"`driftscore prompts` with the same options lists {len(texts)} texts, so {len(texts)} "
        "rows are wanted, in that order"
    )
    what = "array of text embeddings"
    rows = read_npy(where, what=what)
    if rows.ndim != 2 or len(rows) != len(texts):
        raise FormatError(f"{where} has shape {rows.shape}; {needed}")
    with reading(where, what):
        return EmbeddingFile(texts, unit(matrix(rows, what="The array"), what="The array"))


def _pair(
    content: Mapping[str, FileArray], names: str, rows: str, where: Path
) -> tuple[tuple[str, ...], Matrix]:
    """Return a list of names with its unit rows, or nothing if neither is there."""
    if names not in content and rows not in content:
        return (), _EMPTY
    if names not in content or rows not in content:
        raise FormatError(f"{where} has only one of {names} and {rows}; both are needed")
    labels = texts_of(content[names], what=names)
    vectors = matrix(content[rows], what=rows)
    if len(labels) != len(vectors):
        raise FormatError(
            f"{where} has {len(labels)} {names} and {len(vectors)} rows of {rows}; "
            "there must be one row each"
        )
    return labels, unit(vectors, what=rows)


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
        digest = hashlib.sha256("\n".join(content.texts).encode())
        digest.update(content.text_rows.tobytes())
        self.fingerprint = content.fingerprint or f"stored/{digest.hexdigest()}"
        self._row = {text: row for row, text in enumerate(content.texts)}

    def encode(self, features: Features) -> Vector:
        """Refuse: the file has embeddings, not the model that made them."""
        raise UsageError(
            f"{self.where} has stored embeddings and cannot embed audio; embed the clips with the "
            "model that made them and score them with `driftscore score`"
        )

    def embed_audio(self, clips: Sequence[Audio]) -> Matrix:
        """Refuse: the file has embeddings, not the model that made them."""
        return self.encode(_EMPTY)

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
    """Return whether `spec` names a file of stored embeddings."""
    return spec.endswith(".npz")


def load(path: str | PathLike[str]) -> Stored:
    """Load stored embeddings from an npz."""
    return Stored(EmbeddingFile.load(path), where=str(path))
