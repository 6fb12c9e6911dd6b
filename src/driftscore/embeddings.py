"""Embedding files: npz, without pickle, of text vectors, of clip vectors, or of both.

    texts (n), text_embeddings (n x d)     what `driftscore prompts` lists, encoded
    files (m), audio_embeddings (m x d)    what `driftscore embed` writes
    model                                  optional: which model made them

Rows need not be unit: they are scaled when read. The fingerprint is the model's own where
driftscore made the file, else the model's name, else unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from driftscore.arrayfile import FileArray, array_names, read_npy, read_npz, text_of, texts_of
from driftscore.errors import FormatError, UsageError
from driftscore.files import is_stream, is_url, replacing
from driftscore.reading import reading
from driftscore.schema import items, text, validate
from driftscore.vectors import Matrix, matrix, unit

_EMPTY = np.zeros((0, 0), np.float32)
_MADE = "fingerprint"
_WHAT = "embedding file"
_ARRAYS = ("texts", "text_embeddings", "files", "audio_embeddings", "model", _MADE)
_MOST = 1_000_000_000


@dataclass(frozen=True, eq=False)
class EmbeddingFile:
    """Text vectors by text, clip vectors by file, and which model made them."""

    texts: tuple[str, ...] = ()
    text_rows: Matrix = field(default_factory=lambda: _EMPTY)
    files: tuple[str, ...] = ()
    audio_rows: Matrix = field(default_factory=lambda: _EMPTY)
    name: str = ""
    fingerprint: str = ""

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file, whole or not at all."""
        content: dict[str, Any] = {
            "model": np.array(self.name),
            _MADE: np.array(self.fingerprint),
        }
        if self.texts:
            content |= {"texts": np.array(self.texts), "text_embeddings": self.text_rows}
        if self.files:
            content |= {"files": np.array(self.files), "audio_embeddings": self.audio_rows}
        is_file = is_url(path) or not is_stream(path)
        if is_file and Path(path).suffix != ".npz":
            raise UsageError(f"Embeddings are written as npz; name a file like {path}.npz")
        with replacing(path) as partial, open(partial, "wb") as file:
            np.savez(file, **content)

    @staticmethod
    def load(path: str | PathLike[str]) -> "EmbeddingFile":
        """Read an embedding file and scale its rows to unit length.

        A bare array (npy) holds clips without names; they are numbered.
        """
        where = Path(path)
        if where.suffix.lower() == ".npy":
            return _numbered(where)
        content = read_npz(where, _ARRAYS, what=_WHAT)
        with reading(where, _WHAT):
            texts, text_rows = _pair(content, "texts", "text_embeddings", where)
            validate(list(texts), items(text, most=_MOST), where=f"texts in {where}")
            files, audio_rows = _pair(content, "files", "audio_embeddings", where)
            if not texts and not files:
                found = array_names(where, what=_WHAT)
                raise FormatError(f"{where} has the arrays {found[:20]}; {_WANTED}")
            name = text_of(content["model"], what="model") if "model" in content else ""
            made = text_of(content[_MADE], what=_MADE) if _MADE in content else ""
            return EmbeddingFile(texts, text_rows, files, audio_rows, name, made or name)


def _numbered(where: Path) -> EmbeddingFile:
    """Read clip embeddings from a bare array, one row per clip."""
    what = "array of clip embeddings"
    rows = read_npy(where, what=what)
    with reading(where, what):
        if rows.ndim != 2:
            raise UsageError(f"one row per clip is wanted, not the shape {rows.shape}")
        vectors = unit(matrix(rows, what="The array"), what="The array")
        names = tuple(f"{where.name}[{number}]" for number in range(len(vectors)))
        return EmbeddingFile(files=names, audio_rows=vectors)


_WANTED = (
    "wanted: texts with text_embeddings, or files with audio_embeddings (one row each), or both"
)


def load_vectors(path: str | PathLike[str], texts: tuple[str, ...]) -> EmbeddingFile:
    """Read text vectors: by their own texts, or as one bare array in the order of `texts`."""
    where = Path(path)
    if where.suffix != ".npy":
        return EmbeddingFile.load(where)
    rows = read_npy(where, what="array of text embeddings")
    if rows.ndim != 2 or len(rows) != len(texts):
        raise FormatError(
            f"{where} has shape {rows.shape}; `driftscore prompts` with the same options lists "
            f"{len(texts)} texts, so {len(texts)} rows are wanted, in that order"
        )
    with reading(where, "array of text embeddings"):
        return EmbeddingFile(texts, unit(matrix(rows, what="The array"), what="The array"))


def _pair(
    content: Mapping[str, FileArray], names: str, rows: str, where: Path
) -> tuple[tuple[str, ...], Matrix]:
    """Return a list of names with its unit rows, or nothing if neither is there."""
    if names not in content and rows not in content:
        return (), _EMPTY
    if names not in content or rows not in content:
        raise FormatError(f"{where} has only one of {names} and {rows}; both are needed")
    found = texts_of(content[names], what=names)
    vectors = matrix(content[rows], what=rows)
    if len(found) != len(vectors):
        raise FormatError(
            f"{where} has {len(found)} {names} and {len(vectors)} rows of {rows}; "
            "there must be one row each"
        )
    return found, unit(vectors, what=rows)
