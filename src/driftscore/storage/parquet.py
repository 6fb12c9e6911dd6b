"""Parquet files: shards of a dataset that are written whole or not at all, and read in batches.

A dataset is one file, or a folder of files that end in .parquet; names that begin with a dot are
left out. A file may come from anyone: lists are bounded before one is read. Files are not mapped
into memory: the resident memory of a process would be that of the whole dataset. pyarrow (extra
`archive`) is imported only here.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import FormatError, MissingExtraError, UsageError
from driftscore.storage.files import is_folder, reading, writing_to

KEY = b"driftscore"
"""Under this key of a file's metadata is what we say about it, as JSON."""
MAX_LIST = 2**16
ROW_GROUP = 16_384
_PAGE_BYTES = 2**18
_WHAT = "Parquet file"
Columns = Mapping[str, NDArray[np.generic] | Sequence[str]]


def is_dataset(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a Parquet file, or a folder that has one."""
    name = os.fspath(path)
    return name.lower().endswith(".parquet") or (is_folder(name) and any(_files(Path(name))))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob("*.parquet") if not path.name.startswith("."))


def open_shards(path: str | os.PathLike[str]) -> list["Shard"]:
    """Return the files of a dataset in the order of their names."""
    where = Path(path)
    paths = sorted(_files(where)) if is_folder(where) else [where]
    if not paths:
        raise FormatError(f"{where} holds no Parquet file")
    return [Shard(file) for file in paths]


@dataclass(frozen=True)
class Shard:
    """One file of a dataset."""

    path: Path

    @cached_property
    def file(self) -> Any:
        """The open file."""
        pyarrow = _pyarrow()
        if not self.path.is_file():
            raise FormatError(f"There is no {_WHAT} at {self.path}")
        with reading(self.path, _WHAT, advice="delete it and make it again"):
            file = pyarrow.parquet.ParquetFile(self.path)
            if "file" in file.schema_arrow.names:  # a name is stored once for many rows
                file = pyarrow.parquet.ParquetFile(
                    self.path, metadata=file.metadata, read_dictionary=["file"]
                )
            groups = (file.metadata.row_group(n) for n in range(file.metadata.num_row_groups))
            for group in groups:
                most = max(group.column(n).num_values for n in range(group.num_columns))
                if most > MAX_LIST * group.num_rows:
                    raise ValueError(f"it has lists of more than {MAX_LIST} numbers")
            return file

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self.file.metadata.num_rows)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.file.schema_arrow.names)

    @property
    def list_columns(self) -> list[str]:
        """The names of the columns that hold lists of numbers."""
        types = _pyarrow().types
        return [
            field.name
            for field in self.file.schema_arrow
            if types.is_fixed_size_list(field.type) or types.is_list(field.type)
            or types.is_large_list(field.type)
        ]  # fmt: skip

    @property
    def about(self) -> dict[str, object]:
        """What driftscore says about the file; empty if it is of another tool."""
        text = (self.file.schema_arrow.metadata or {}).get(KEY, b"{}")
        with reading(self.path, _WHAT):
            content = json.loads(text)
            if not isinstance(content, dict):
                raise ValueError("its description is not an object")
            return content

    def batches(self, columns: Sequence[str], size: int) -> Iterator["Batch"]:
        """Yield the rows in order, `size` at a time."""
        with reading(self.path, _WHAT, advice="delete it and make it again"):
            for batch in self.file.iter_batches(size, columns=list(columns), use_threads=False):
                yield Batch(self.path, batch)


class Batch:
    """Some rows of a file."""

    def __init__(self, path: Path, batch: Any) -> None:
        self._path = path
        self._batch = batch

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def numbers(self, column: str) -> NDArray[np.generic]:
        """Return a column of numbers."""
        array = self._batch.column(column)
        if array.null_count:
            raise FormatError(f"The column {column!r} of {self._path} has empty cells")
        values: NDArray[np.generic] = array.to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "fiu":
            raise FormatError(f"The column {column!r} of {self._path} does not hold numbers")
        return values

    def matrix(self, column: str) -> NDArray[np.generic]:
        """Return a column of lists of one length as a matrix, if possible without a copy."""
        array = self._batch.column(column)
        values = array.flatten()
        width = len(values) // len(array) if len(array) else 0
        alike = not (array.null_count or values.null_count) and width > 0
        if alike and not _pyarrow().types.is_fixed_size_list(array.type):
            alike = bool((np.diff(array.offsets.to_numpy()) == width).all())
        numbers = values.to_numpy(zero_copy_only=False) if alike else np.zeros(0, object)
        if numbers.dtype.kind not in "fiu":
            raise FormatError(
                f"The column {column!r} of {self._path} must hold lists of numbers, all of one "
                "length and none empty"
            )
        rows: NDArray[np.generic] = numbers.reshape(len(array), width)
        return rows

    def texts(self, column: str) -> list[str]:
        """Return a column as texts."""
        return [str(value) for value in self._batch.column(column).to_pylist()]

    def distinct(self, column: str) -> set[str]:
        """Return the different texts of a column."""
        return {str(value) for value in self._batch.column(column).unique().to_pylist()}

    def text(self, column: str, row: int) -> str:
        """Return one cell as a text."""
        return str(self._batch.column(column)[row].as_py())


def write_shard(path: Path, columns: Columns, about: Mapping[str, object]) -> None:
    """Write a new file: arrays of numbers, int8 matrices as lists of one length, and texts.

    The file appears under its name when it is on the disk as a whole.
    """
    pyarrow = _pyarrow()
    arrays, fields = [], []
    for name, values in columns.items():
        array = pyarrow.array(values.reshape(-1) if isinstance(values, np.ndarray) else values)
        if isinstance(values, np.ndarray) and values.ndim == 2:
            # Without nulls a list costs no levels: half the time of reading.
            item = pyarrow.field("element", array.type, nullable=False)
            array = pyarrow.FixedSizeListArray.from_arrays(
                array, type=pyarrow.list_(item, values.shape[1])
            )
        arrays.append(array)
        fields.append(pyarrow.field(name, array.type, nullable=False))
    schema = pyarrow.schema(fields, metadata={KEY: json.dumps(dict(about))})
    table = pyarrow.table(arrays, schema=schema)
    # Bytes of embeddings are as good as random; a dictionary has 8 bits for each of them, where
    # Parquet's own int8 has 32.
    lists = {name for name, values in columns.items() if np.ndim(values) == 2}
    compression = {name: "NONE" if name in lists else "ZSTD" for name in columns}
    partial = path.with_name(f".{path.name}.partial")
    with writing_to(path):
        try:
            with open(partial, "wb") as file:
                pyarrow.parquet.write_table(
                    table, file, row_group_size=ROW_GROUP, data_page_size=_PAGE_BYTES,
                    compression={f"{n}.list.element" if n in lists else n: c
                                 for n, c in compression.items()},
                )  # fmt: skip
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def column_of(shards: Sequence[Shard], name: str) -> str:
    """Return the column of embeddings: the one that is named, or the only one of lists."""
    shard = shards[0]
    names = shard.list_columns
    if name and name not in names:
        raise UsageError(
            f"{shard.path} has no column of lists called {name!r}, but {', '.join(names) or 'none'}"
        )
    if not name and len(names) != 1:
        raise UsageError(
            f"{shard.path} has {len(names)} columns of lists ({', '.join(names) or 'none'}); name "
            "the one with the embeddings: --column NAME"
        )
    return name or names[0]


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("Reading and writing Parquet", "archive") from error
    return pyarrow
