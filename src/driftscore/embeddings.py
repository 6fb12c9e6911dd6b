"""Embedding files: npz, without pickle, of text vectors, of clip vectors, or of both.

    texts (n), text_embeddings (n x d)     what `driftscore prompts` lists, encoded
    files (m), audio_embeddings (m x d)    what `driftscore embed` writes
    model                                  optional: which model made them

Rows need not be unit: they are scaled when read. The fingerprint is the model's own where
driftscore made the file, else the model's name, else unknown.
"""

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from driftscore.errors import FormatError
from driftscore.files import replacing
from driftscore.vectors import Matrix, matrix, unit

_EMPTY = np.zeros((0, 0), np.float32)


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
            "fingerprint": np.array(self.fingerprint),
        }
        if self.texts:
            content |= {"texts": np.array(self.texts), "text_embeddings": self.text_rows}
        if self.files:
            content |= {"files": np.array(self.files), "audio_embeddings": self.audio_rows}
        if Path(path).suffix != ".npz":
            raise FormatError(f"Embeddings are written as npz; name a file like {path}.npz")
        with replacing(path) as partial:
            np.savez(partial, **content)

    @staticmethod
    def load(path: str | PathLike[str]) -> "EmbeddingFile":
        """Read an embedding file and scale its rows to unit length."""
        where = Path(path)
        try:
            with np.load(where, allow_pickle=False) as data:
                if isinstance(data, np.ndarray):
                    raise FormatError(f"{where} is one bare array; {_WANTED}")
                content = {key: data[key] for key in data.files}
        except FileNotFoundError:
            raise FormatError(f"There is no embedding file at {where}") from None
        except (OSError, ValueError, EOFError) as error:
            raise FormatError(
                f"{where} is not an npz that can be read without pickle: {error}"
            ) from error
        texts, text_rows = _pair(content, "texts", "text_embeddings", where)
        files, audio_rows = _pair(content, "files", "audio_embeddings", where)
        if not texts and not files:
            raise FormatError(f"{where} has the arrays {sorted(content)}; {_WANTED}")
        name = str(content.get("model", ""))
        fingerprint = str(content.get("fingerprint", "")) or name
        return EmbeddingFile(texts, text_rows, files, audio_rows, name, fingerprint)


_WANTED = (
    "wanted: texts with text_embeddings, or files with audio_embeddings (one row each), or both"
)


def load_vectors(path: str | PathLike[str], texts: tuple[str, ...]) -> EmbeddingFile:
    """Read text vectors: by their own texts, or as one bare array in the order of `texts`."""
    where = Path(path)
    if where.suffix != ".npy":
        return EmbeddingFile.load(where)
    try:
        rows = np.load(where, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FormatError(f"{where} cannot be read: {error}") from error
    if rows.ndim != 2 or len(rows) != len(texts):
        raise FormatError(
            f"{where} has shape {rows.shape}; `driftscore prompts` with the same options lists "
            f"{len(texts)} texts, so {len(texts)} rows are wanted, in that order"
        )
    return EmbeddingFile(texts, unit(matrix(rows, what=str(where)), what=str(where)))


def _pair(
    content: dict[str, Any], names: str, rows: str, where: Path
) -> tuple[tuple[str, ...], Matrix]:
    """Return a list of names with its unit rows, or nothing if neither is there."""
    if names not in content and rows not in content:
        return (), _EMPTY
    if names not in content or rows not in content:
        raise FormatError(f"{where} has only one of {names} and {rows}; both are needed")
    found = tuple(str(name) for name in np.atleast_1d(content[names]))
    vectors = matrix(content[rows], what=f"{rows} of {where}")
    if len(found) != len(vectors):
        raise FormatError(
            f"{where} has {len(found)} {names} and {len(vectors)} rows of {rows}; "
            "there must be one row each"
        )
    return found, unit(vectors, what=f"{rows} of {where}")
