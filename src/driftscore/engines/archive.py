"""Archives of embeddings: one row per window in Parquet; and stored embeddings of any kind, read.

    file        the recording, as it was named
    start_s     start of the window in seconds
    end_s       its end
    embedding   one int8 per dimension, the largest of a row +-127
    scale       embedding * scale is the unit row

An archive is a folder of shards. The metadata of each, under the key `driftscore`, is a JSON object
with the model, its fingerprint, and the window and the hop in seconds. A recording is in one shard
with all of its windows, and a shard appears under its name when it is complete: a run that was
killed has lost the recordings after the last shard, and the next run embeds those, by name. The
time of change of a shard is when its run began: a recording that has changed since, such as one
that was still being written, is removed and embedded again.

Embeddings of other tools are read by blocks of rows as well: Parquet with a column of lists of
numbers (and `file`, `start_s` and `end_s`, if they are there), npy and npz. Rows need not be unit.
Files are not mapped into memory: pages of a map count as memory of the process. pyarrow (extra
`archive`) is imported only here.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from driftscore.backbones import Backbone, Named, check_model
from driftscore.backbones.protocol import LocalBackbone
from driftscore.backbones.stored import EmbeddingFile
from driftscore.backbones.vectors import Matrix, Vector, lengths, matrix, unit
from driftscore.engines.protocol import Embedded
from driftscore.errors import FormatError, MismatchError, MissingExtraError, UsageError
from driftscore.storage.checked import Text, decode
from driftscore.storage.files import is_folder, output_folder, reading, regular_size, writing_to
from driftscore.storage.npz import npy_blocks
from driftscore.system.lazy import lazy_property

LOCAL_WINDOW_S, LOCAL_HOP_S = 3.0, 1.5
"""Window and hop of an archive for a backbone whose windows are poolings of frames."""
BLOCK = 2048
_SHARD_ROWS = 131_072
_SHARD_S = 300.0
"""The longest that new rows wait to be written: what a killed run has lost."""
_ROW_GROUP, _PAGE_BYTES = 16_384, 2**18
_MAX_LIST = 2**16
_KEY = b"driftscore"
_WHAT, _AGAIN = "Parquet file", "delete it and make it again"


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
    codes = np.rint(rows * (127 / peaks)).astype(np.int8)
    return codes, (1 / lengths(codes.astype(np.float32))).astype(np.float32)


class ArchiveWriter:
    """Appends recordings to an archive; a second process that tries it meanwhile is refused.

        with ArchiveWriter(folder, backbone, window_s=3.0, hop_s=1.5) as archive:
            archive.missing(names)          # those that are not in it, or have changed since
            archive.add(embedded)

    What was added is written at the end of the block, also if it ends with an error.
    """

    def __init__(
        self, folder: str | os.PathLike[str], backbone: Backbone, *, window_s: float, hop_s: float
    ) -> None:
        self.folder = output_folder(folder)
        _pyarrow()  # a missing extra is reported before anything is embedded
        self.about = ArchiveAbout(backbone.name, backbone.fingerprint, window_s, hop_s)
        self._begun = time.time()
        self._done: dict[str, tuple[Path, float]] = {}
        """The shard of each recording that is in the archive, and when its run began."""
        self._backbone = backbone
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
            self._continue()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._write()
        finally:
            self._lock.release()

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return which recordings are to be embedded; rows of those that have changed go."""
        missing, changed = [], set[str]()
        for name in dict.fromkeys(names):
            stored = stored_name(name)
            path, begun = self._done.get(stored, (None, 0.0))
            with suppress(OSError, ValueError):  # a URL, or a recording that is gone
                if path is not None and os.stat(name).st_mtime > begun:  # noqa: PTH116 (faster)
                    changed.add(stored)
            if path is None or stored in changed:
                missing.append(name)
        for path, begun in {self._done[name] for name in changed}:
            blocks = list(open_embeddings(path).blocks())
            files = np.concatenate([block.files for block in blocks])
            rows = np.flatnonzero(~np.isin(files, list(changed)))
            if not len(rows):
                path.unlink()
                continue
            spans, codes, scales = (
                np.concatenate(parts)[rows]
                for parts in zip(*((b.spans, b.codes, b.scales) for b in blocks), strict=True)
            )
            write_shard(path, files[rows].tolist(), spans, codes, scales, self.about, begun)
        return missing

    def add(self, embedded: Embedded) -> None:
        """Append the windows of a recording, which must not be there yet."""
        self._waiting.append(embedded)
        late = time.monotonic() - self._written_at > _SHARD_S
        if late or sum(len(one.rows) for one in self._waiting) >= _SHARD_ROWS:
            self._write()

    def _continue(self) -> None:
        """Check that the rows that are there are of the same kind, and read their names."""
        for partial_file in self.folder.glob(".*.partial"):  # of a run that was killed
            partial_file.unlink()
        for path in _shards(self.folder):
            file, about = _open_shard(path)
            made_by = {"fingerprint": about.fingerprint, "backbone": about.model}
            check_model(made_by, self._backbone, what=str(self.folder))
            if (about.window_s, about.hop_s) != (self.about.window_s, self.about.hop_s):
                raise MismatchError(
                    f"{self.folder} has windows of {about.window_s:g} s every {about.hop_s:g} s, "
                    f"not {self.about.window_s:g} s every {self.about.hop_s:g} s; use --window "
                    f"{about.window_s:g} --hop {about.hop_s:g}, or another folder"
                )
            with reading(path, _WHAT, advice=_AGAIN):
                names = file.read(["file"])["file"].unique().to_pylist()
            self._done |= dict.fromkeys(names, (path, path.stat().st_mtime))
            digits = path.stem.removeprefix("part-")
            if digits.isdecimal():
                self._number = max(self._number, int(digits) + 1)

    def _write(self) -> None:
        """Write a shard of what is waiting."""
        some, self._waiting = [one for one in self._waiting if len(one.rows)], []
        self._written_at = time.monotonic()
        if not some:
            return
        codes, scales = packed_rows(np.concatenate([one.rows for one in some]))
        spans = np.concatenate([one.spans for one in some])
        names = [stored_name(one.source) for one in some for _ in one.rows]
        path = self.folder / f"part-{self._number:06d}.parquet"
        write_shard(path, names, spans, codes, scales, self.about, self._begun)
        self._number += 1


def stored_name(source: str) -> str:
    """Return the name of a recording as an archive has it; one that is not UTF-8 has escapes."""
    return source.encode("utf-8", "backslashreplace").decode("utf-8")


def write_shard(
    path: Path,
    files: Sequence[str],
    spans: NDArray[np.float64],
    codes: NDArray[np.int8],
    scales: Vector,
    about: ArchiveAbout,
    begun: float,
) -> None:
    """Write a shard, which appears under its name when it is on the disk as a whole."""
    pyarrow = _pyarrow()

    def column(numbers: NDArray[Any]) -> Any:
        """Return a column of numbers: `pyarrow.array` imports pandas, 0.2 s of any run."""
        content = pyarrow.py_buffer(np.ascontiguousarray(numbers))
        kind = pyarrow.from_numpy_dtype(numbers.dtype)
        return pyarrow.Array.from_buffers(kind, numbers.size, [None, content])

    # Without nulls a list costs fewer levels. A dictionary has 8 bits for each int8, where
    # Parquet's own type has 32; the bytes of embeddings are as good as random.
    item = pyarrow.field("element", pyarrow.int8(), nullable=False)
    lists = pyarrow.FixedSizeListArray.from_arrays(
        column(codes), type=pyarrow.list_(item, codes.shape[1])
    )
    encoded = [name.encode() for name in files]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    parts = map(pyarrow.py_buffer, (ends, b"".join(encoded)))
    texts = pyarrow.StringArray.from_buffers(len(files), *parts)
    columns = {"file": texts, "start_s": column(spans[:, 0]), "end_s": column(spans[:, 1]),
               "embedding": lists, "scale": column(scales)}  # fmt: skip
    fields = [pyarrow.field(name, array.type, nullable=False) for name, array in columns.items()]
    compression = dict.fromkeys(columns, "ZSTD") | {"embedding.list.element": "NONE"}
    partial_path = path.with_name(f".{path.name}.partial")
    with writing_to(path), open(partial_path, "wb") as file:
        pyarrow.parquet.write_table(
            pyarrow.table(
                list(columns.values()),
                schema=pyarrow.schema(fields, metadata={_KEY: msgspec.json.encode(about)}),
            ),
            file, row_group_size=_ROW_GROUP, data_page_size=_PAGE_BYTES, compression=compression,
        )  # fmt: skip
        file.flush()
        os.fsync(file.fileno())
    with writing_to(path):
        os.utime(partial_path, (begun, begun))
        partial_path.replace(path)


@dataclass(eq=False)
class RowBlock:
    """Some rows of stored embeddings, in the numbers of the file until they are asked for."""

    path: Path
    codes: NDArray[np.generic]
    """The numbers as they are stored: (n, d)."""
    files: NDArray[np.object_]
    """The recording of each row."""
    spans: NDArray[np.float64] | None = None
    """Start and end of each window in seconds, (n, 2), if the file has them."""
    stored_scales: Vector | None = None

    @lazy_property
    def scales(self) -> Vector:
        """What makes each row of `codes` unit."""
        if self.stored_scales is not None:
            return self.stored_scales
        return (1 / np.maximum(lengths(self.codes.astype(np.float32)), 1e-12)).astype(np.float32)

    def rows(self, which: NDArray[np.intp] | slice = slice(None)) -> Matrix:
        """Return some of the rows, scaled to unit length."""
        with reading(self.path, "file of embeddings"):
            return unit(matrix(self.codes[which], what="The array"), what="The array")


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Embeddings in a file or an archive, whatever its format; they are read when asked for."""

    path: Path
    count: int
    parts: Sequence[Callable[[], Iterator[RowBlock]]]
    """The blocks of each part of the content, in order; threads may read several parts at once."""
    name: str = ""
    """The model that made them; empty if it is not known."""
    fingerprint: str = ""
    """The fingerprint of that model."""

    def blocks(self) -> Iterator[RowBlock]:
        """Yield all rows in order."""
        for part in self.parts:
            yield from part()

    def check(self, model: Named, *, what: str) -> None:
        """Refuse to use them with a model that did not make them; `what` names them in an error."""
        check_model({"fingerprint": self.fingerprint, "backbone": self.name}, model, what=what)

    def read(self) -> Matrix:
        """Return all rows at once, as unit rows."""
        return np.concatenate([block.rows() for block in self.blocks()])


def is_stored(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names stored embeddings: npz, npy, Parquet or an archive."""
    name = os.fspath(path)
    return name.lower().endswith((".npz", ".npy", ".parquet")) or bool(_shards(Path(name)))


def open_embeddings(path: str | os.PathLike[str], column: str = "") -> StoredRows:
    """Open clip or window embeddings: an archive, Parquet, npz or npy.

    `column` names the column (of Parquet) or the array (of an npz) that holds them, in a file of
    another tool that has several.
    """
    where = Path(path)
    ending = where.suffix.lower()
    if is_folder(where) or ending == ".parquet":
        return _open_parquet(where, column)
    if ending == ".npy":
        count, blocks = npy_blocks(where, BLOCK, what="array of clip embeddings")

        def numbered() -> Iterator[RowBlock]:
            for number, codes in enumerate(blocks()):
                yield RowBlock(where, codes, _numbers(where, number * BLOCK, len(codes)))

        return StoredRows(where, count, [numbered])
    content = EmbeddingFile.load(where, column)
    if not content.files:
        raise UsageError(f"{where} holds no clip embeddings (files with audio_embeddings)")
    files = np.array(content.files, object)

    def sliced() -> Iterator[RowBlock]:
        for part in (slice(at, at + BLOCK) for at in range(0, len(files), BLOCK)):
            spans = content.spans[part] if len(content.spans) else None
            yield RowBlock(where, content.audio_rows[part], files[part], spans)

    return StoredRows(where, len(files), [sliced], content.name, content.fingerprint)


def _numbers(path: Path, first: int, count: int) -> NDArray[np.object_]:
    """Return the names of rows that have none: their numbers in the file."""
    return np.array([f"{path.name}[{row}]" for row in range(first, first + count)], object)


def _shards(where: Path) -> list[Path]:
    """Return the Parquet files of a folder in the order of their names; those with a dot not."""
    if not is_folder(where):
        return []
    return sorted(path for path in where.glob("*.parquet") if path.name[0] != ".")


def _open_shard(path: Path) -> tuple[Any, ArchiveAbout]:
    """Return the open file, and what made it, if it is ours."""
    pyarrow = _pyarrow()
    regular_size(path, _WHAT)
    with reading(path, _WHAT, advice=_AGAIN):
        # By default a file holds all of its content once it was read.
        settings: dict[str, Any] = {"pre_buffer": False, "buffer_size": _PAGE_BYTES}
        file = pyarrow.parquet.ParquetFile(path, **settings)
        if "file" in file.schema_arrow.names:  # a name is stored once for many rows
            settings |= {"metadata": file.metadata, "read_dictionary": ["file"]}
            file = pyarrow.parquet.ParquetFile(path, **settings)
        for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
            most = max(group.column(n).num_values for n in range(group.num_columns))
            if most > _MAX_LIST * group.num_rows:  # it would take more memory than it has bytes
                raise ValueError(f"it has lists of more than {_MAX_LIST} numbers")
        stated = json.loads((file.schema_arrow.metadata or {}).get(_KEY, b"{}"))
        return file, decode(stated, ArchiveAbout, where=f"the metadata of {path}")


def _open_parquet(where: Path, column: str) -> StoredRows:
    paths = _shards(where) if is_folder(where) else [where]
    if not paths:
        raise FormatError(f"{where} holds no Parquet file")
    files = [_open_shard(path) for path in paths]
    about = files[0][1]
    lists = [field.name for field in files[0][0].schema_arrow if "list" in str(field.type)[:16]]
    if column not in lists and (column or len(lists) != 1):
        raise UsageError(
            f"{paths[0]} has {len(lists)} columns of lists ({', '.join(lists) or 'none'})"
            + (f", none called {column!r}" if column else "; name the one with the embeddings")
        )
    for path, (file, of_file) in zip(paths, files, strict=True):
        if (column or lists[0]) not in file.schema_arrow.names or of_file != about:
            raise FormatError(f"{path} has another column or model than {paths[0]}")
    parts = [
        partial(_parquet_blocks, path, file, column or lists[0], ours=bool(about.fingerprint))
        for path, (file, _) in zip(paths, files, strict=True)
    ]
    count = sum(file.metadata.num_rows for file, _ in files)
    return StoredRows(where, count, parts, about.model, about.fingerprint)


def _parquet_blocks(path: Path, file: Any, column: str, *, ours: bool) -> Iterator[RowBlock]:
    has = {"file", "start_s", "end_s", "scale"} & set(file.schema_arrow.names)
    first = 0
    with reading(path, _WHAT, advice=_AGAIN):
        for batch in file.iter_batches(BLOCK, columns=[*has, column], use_threads=False):
            size, codes = batch.num_rows, _list_rows(batch[column])
            if codes is None:
                raise FormatError(
                    f"The column {column!r} of {path} must hold lists of numbers, all of one "
                    "length and none empty"
                )
            if empty := [name for name in has if batch[name].null_count]:
                raise FormatError(
                    f"The column {empty[0]!r} of {path} has empty cells; fill or rename it"
                )
            # Not `to_numpy`, which imports pandas: that takes longer than many a search.
            numbers = {name: np.from_dlpack(batch[name]) for name in has - {"file"}}
            files, spans = _numbers(path, first, 0 if "file" in has else size), None
            if "file" in has:
                texts = batch["file"].dictionary_encode()
                files = np.array(texts.dictionary.to_pylist(), object)[
                    np.from_dlpack(texts.indices)
                ]
            if {"start_s", "end_s"} <= has:
                spans = np.stack([numbers["start_s"], numbers["end_s"]], 1).astype(np.float64)
            scales = numbers["scale"].astype(np.float32) if ours and "scale" in has else None
            yield RowBlock(path, codes, files, spans, scales)
            first += size


def _list_rows(array: Any) -> NDArray[np.generic] | None:
    """Return a column of lists of one length as a matrix, without a copy; None for any other."""
    values, count = array.flatten(), len(array)
    width = len(values) // count if count else 0
    if array.null_count or values.null_count or not width:
        return None
    if hasattr(array, "offsets") and (np.diff(np.from_dlpack(array.offsets)) != width).any():
        return None
    types = _pyarrow().types
    if not (types.is_integer(values.type) or types.is_floating(values.type)):
        return None
    numbers: NDArray[np.generic] = np.from_dlpack(values)
    return numbers.reshape(count, width)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet  # noqa: F401 (an attribute of the first)
    except ImportError as error:
        raise MissingExtraError("Reading and writing Parquet", "archive") from error
    return pyarrow
