"""Archives of embeddings: one row per window in Parquet; and stored embeddings of any kind, read.

    file        the recording, as it was named
    start_s     start of the window in seconds
    end_s       its end
    embedding   one int8 per dimension, the largest of a row +-127
    scale       embedding * scale is the unit row

An archive is a folder of shards. The metadata of each, under the key `driftscore`, is a JSON object
with the model, its fingerprint, and the window and the hop in seconds. A recording is in one shard
with all of its windows, so a run that was killed has lost the recordings after the last shard, and
nothing is there twice: the next run embeds what is missing, by name.

Embeddings of other tools are read by blocks of rows as well: Parquet with a column of lists of
numbers (and `file`, `start_s` and `end_s`, if they are there), npy and npz. Rows need not be unit.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from driftscore.backbones import Backbone, check_model
from driftscore.backbones.protocol import LocalBackbone
from driftscore.backbones.stored import EmbeddingFile
from driftscore.backbones.vectors import Matrix, Vector, lengths, matrix, unit
from driftscore.engines.protocol import Embedded
from driftscore.errors import FormatError, MismatchError, UsageError
from driftscore.storage.checked import Text, decode
from driftscore.storage.files import output_folder, reading, writing_to
from driftscore.storage.npz import npy_blocks
from driftscore.storage.parquet import (
    Shard,
    column_of,
    is_dataset,
    open_shards,
    write_shard,
)

LOCAL_WINDOW_S, LOCAL_HOP_S = 3.0, 1.5
"""Window and hop of an archive for a backbone whose windows are poolings of frames."""
BLOCK = 2048
_SHARD_ROWS = 131_072
_SHARD_S = 300.0
"""The longest that new rows wait to be written: what a killed run has lost."""
_LEVELS = 127
FileSpans = NDArray[np.float64]


class ArchiveAbout(msgspec.Struct, frozen=True):
    """What made the rows of an archive."""

    model: Text = ""
    fingerprint: Text = ""
    window_s: float = 0.0
    hop_s: float = 0.0


def archive_windows(backbone: Backbone) -> tuple[float, float]:
    """Return the window and the hop of an archive, if nothing else is asked for.

    A backbone that encodes each window gets those that it embeds recordings with.
    """
    if isinstance(backbone, LocalBackbone):
        return LOCAL_WINDOW_S, LOCAL_HOP_S
    return backbone.seconds, backbone.seconds / 2


def packed_rows(rows: Matrix) -> tuple[NDArray[np.int8], Vector]:
    """Return unit rows as int8, and the scale that makes each of them unit again."""
    peaks = np.abs(rows).max(axis=1, keepdims=True)
    codes = np.rint(rows * (_LEVELS / peaks)).astype(np.int8)
    return codes, (1 / lengths(codes.astype(np.float32))).astype(np.float32)


class ArchiveWriter:
    """Appends recordings to an archive; a second process that tries it at that time is refused.

        with ArchiveWriter(folder, backbone, window_s=3.0, hop_s=1.5) as archive:
            archive.done          # the names of recordings that are in it
            archive.add(embedded)

    What was added is written at the end of the block, also if it ends with an error.
    """

    def __init__(
        self, folder: str | os.PathLike[str], backbone: Backbone, *, window_s: float, hop_s: float
    ) -> None:
        self.folder = output_folder(folder)
        self.about = ArchiveAbout(backbone.name, backbone.fingerprint, window_s, hop_s)
        self.done: set[str] = set()
        self._number = 0
        self._waiting: list[Embedded] = []
        self._written_at = time.monotonic()

    def __enter__(self) -> "ArchiveWriter":
        from filelock import FileLock, Timeout  # here: most commands write no archive

        with writing_to(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.folder / ".lock")
            try:
                self._lock.acquire(timeout=0)
            except Timeout as error:
                raise UsageError(f"Another run is writing to {self.folder}; wait for it") from error
        try:
            for shard in open_shards(self.folder) if is_dataset(self.folder) else ():
                about = _about(shard)
                check_model(
                    {"fingerprint": about.fingerprint, "backbone": about.model},
                    _NamedModel(self.about.model, self.about.fingerprint), what=str(self.folder),
                )  # fmt: skip
                if (about.window_s, about.hop_s) != (self.about.window_s, self.about.hop_s):
                    raise MismatchError(
                        f"{self.folder} has windows of {about.window_s:g} s every {about.hop_s:g} "
                        f"s, not {self.about.window_s:g} s every {self.about.hop_s:g} s; use "
                        f"--window {about.window_s:g} --hop {about.hop_s:g}, or another folder"
                    )
                for batch in shard.batches(["file"], 2**20):
                    self.done |= batch.distinct("file")
                self._number = max(self._number, _number_of(shard.path) + 1)
            for partial in self.folder.glob(".*.partial"):  # of a run that was killed
                partial.unlink()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._write()
        finally:
            self._lock.release()

    def add(self, embedded: Embedded) -> None:
        """Append the windows of a recording, which must not be there yet."""
        self._waiting.append(embedded)
        late = time.monotonic() - self._written_at > _SHARD_S
        if late or sum(len(one.rows) for one in self._waiting) >= _SHARD_ROWS:
            self._write()

    def _write(self) -> None:
        some, self._waiting = [one for one in self._waiting if len(one.rows)], []
        self._written_at = time.monotonic()
        if not some:
            return
        codes, scales = packed_rows(np.concatenate([one.rows for one in some]))
        spans = np.concatenate([one.spans for one in some])
        names = [stored_name(one.source) for one in some for _ in one.rows]
        columns = {"file": names, "start_s": spans[:, 0].copy(), "end_s": spans[:, 1].copy(),
                   "embedding": codes, "scale": scales}  # fmt: skip
        path = self.folder / f"part-{self._number:06d}.parquet"
        write_shard(path, columns, msgspec.to_builtins(self.about))
        self._number += 1
        self.done |= {stored_name(one.source) for one in some}


def stored_name(source: str) -> str:
    """Return the name of a recording as an archive has it; one that is not UTF-8 has escapes."""
    return source.encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(frozen=True)
class _NamedModel:
    """The model that made something."""

    name: str
    fingerprint: str


def _about(shard: Shard) -> ArchiveAbout:
    return decode(shard.about, ArchiveAbout, where=f"the metadata of {shard.path}")


def _number_of(path: Path) -> int:
    digits = path.stem.removeprefix("part-")
    return int(digits) if digits.isdecimal() and len(digits) < 10 else -1


class RowBlock:
    """Some rows of stored embeddings, in the numbers of the file until they are asked for."""

    def __init__(
        self,
        path: Path,
        codes: NDArray[np.generic],
        scales: Vector | None,
        names: Callable[[int | None], Sequence[str]],
        spans: FileSpans | None = None,
    ) -> None:
        self._path = path
        self.codes = codes
        """The numbers as they are stored: (n, d)."""
        self._scales = scales
        self._names = names
        self.spans = spans
        """Start and end of each window in seconds, (n, 2), if the file has them."""

    @cached_property
    def scales(self) -> Vector:
        """What makes each row of `codes` unit."""
        if self._scales is not None:
            return self._scales
        return (1 / np.maximum(lengths(self.codes.astype(np.float32)), 1e-12)).astype(np.float32)

    @property
    def files(self) -> Sequence[str]:
        """The recording of each row."""
        return self._names(None)

    def file(self, row: int) -> str:
        """Return the recording of one row."""
        return self._names(row)[0]

    def rows(self, which: NDArray[np.intp] | slice = slice(None)) -> Matrix:
        """Return some of the rows, scaled to unit length."""
        with reading(self._path, "file of embeddings"):
            return unit(matrix(self.codes[which], what="The array"), what="The array")


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Embeddings in a file or an archive, whatever its format; they are read when asked for."""

    path: Path
    count: int
    parts: Sequence[Callable[[], Iterator[RowBlock]]]
    """The blocks of each part of the content, in order; threads may read several parts at once."""
    about: ArchiveAbout = ArchiveAbout()

    @property
    def name(self) -> str:
        """The model that made them; empty if it is not known."""
        return self.about.model

    @property
    def fingerprint(self) -> str:
        """The fingerprint of that model; empty if it is not known."""
        return self.about.fingerprint

    def blocks(self) -> Iterator[RowBlock]:
        """Yield all rows in order."""
        for part in self.parts:
            yield from part()

    def read(self) -> Matrix:
        """Return all rows at once, as unit rows."""
        return np.concatenate([block.rows() for block in self.blocks()])


def is_stored(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names stored embeddings: npz, npy, Parquet or an archive."""
    return os.fspath(path).lower().endswith((".npz", ".npy")) or is_dataset(path)


def open_embeddings(path: str | os.PathLike[str], column: str = "") -> StoredRows:
    """Open clip or window embeddings: an archive, Parquet, npz or npy.

    `column` names the column (of Parquet) or the array (of an npz) that holds them, in a file of
    another tool that has several.
    """
    where = Path(path)
    ending = where.suffix.lower()
    if is_dataset(where):
        return _open_parquet(where, column)
    if ending == ".npy":
        count, blocks = npy_blocks(where, BLOCK, what="array of clip embeddings")

        def numbered() -> Iterator[RowBlock]:
            first = 0
            for codes in blocks():
                yield RowBlock(where, codes, None, _numbered(where.name, first, len(codes)))
                first += len(codes)

        return StoredRows(where, count, [numbered])
    content = EmbeddingFile.load(where, column)
    if not content.files:
        raise UsageError(f"{where} holds no clip embeddings (files with audio_embeddings)")

    def sliced() -> Iterator[RowBlock]:
        for first in range(0, len(content.files), BLOCK):
            part = slice(first, first + BLOCK)
            spans = content.spans[part] if len(content.spans) else None
            names = _listed(content.files[part])
            yield RowBlock(where, content.audio_rows[part], None, names, spans)

    about = ArchiveAbout(content.name, content.fingerprint)
    return StoredRows(where, len(content.files), [sliced], about)


def _open_parquet(where: Path, column: str) -> StoredRows:
    shards = open_shards(where)
    about, embeddings = _about(shards[0]), column_of(shards, column)
    for shard in shards:
        if embeddings not in shard.columns or _about(shard) != about:
            raise FormatError(
                f"{shard.path} is of another model or has other columns than {shards[0].path}; an "
                "archive holds the windows of one model"
            )
    return StoredRows(
        where,
        sum(shard.count for shard in shards),
        [lambda shard=shard: _parquet_blocks(shard, embeddings) for shard in shards],
        about,
    )


def _parquet_blocks(shard: Shard, embeddings: str) -> Iterator[RowBlock]:
    names = {"file", "start_s", "end_s", "scale"} & set(shard.columns)
    ours = bool(shard.about) and "scale" in names
    first = 0
    for batch in shard.batches([*names, embeddings], BLOCK):
        spans, size = None, len(batch)
        if {"start_s", "end_s"} <= names:
            columns = (batch.numbers(name) for name in ("start_s", "end_s"))
            spans = np.stack([values.astype(np.float64) for values in columns], axis=1)

        def files(row: int | None, batch=batch) -> Sequence[str]:  # type: ignore[no-untyped-def]
            return batch.texts("file") if row is None else [batch.text("file", row)]

        yield RowBlock(
            shard.path,
            batch.matrix(embeddings),
            batch.numbers("scale").astype(np.float32) if ours else None,
            files if "file" in names else _numbered(shard.path.name, first, size),
            spans,
        )
        first += size


def _numbered(name: str, first: int, count: int) -> Callable[[int | None], Sequence[str]]:
    """Return the names of rows that have none: their numbers in the file."""

    def names(row: int | None) -> Sequence[str]:
        numbers = range(count) if row is None else [row]
        return [f"{name}[{first + number}]" for number in numbers]

    return names


def _listed(names: Sequence[str]) -> Callable[[int | None], Sequence[str]]:
    return lambda row: names if row is None else [names[row]]
