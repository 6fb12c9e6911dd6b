"""Results in one folder: rows in SQLite, embeddings and scores in files named by their key.

    rows.sqlite          rows (one per cell), failures (one per clip that could not be used), sets
                         (labels, ids and truth), drifts (per-class alignment), costs, grids
    embeddings/xx/*.npz  clip embeddings of a condition, a few hundred clips per file
    scores/xx/*.npz      every score of a multi-label cell: what its intervals are computed from
    locks/*.lock         work in progress, each locked by the run that does it

A file is moved into place when it is complete, and what a job adds to the database is one short
transaction, so a run may be killed at any moment, several runs may share a store, and a full disk
ends a run with a message. Only the run itself opens the database (SQLite locks do not work reliably
on a network folder); its workers use the files (`ArrayFiles`). The system releases the locks of a
run that ends. Work that is done twice is harmless: files and rows are replaced by equal ones.

A damaged file, or a row that cannot be decoded, counts as missing; `Store.damage` lists such rows.
A database that SQLite cannot read is a `StoreError`.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from driftscore.errors import FormatError, StoreError, UsageError, WriteError
from driftscore.lab.conditions import Cell, Condition, Row, read_key
from driftscore.lab.metrics import Interval
from driftscore.storage.files import chosen_home, replacing
from driftscore.storage.npz import array_names, read_npz

Array = NDArray[np.generic]
Arrays = Mapping[str, Array]

_DATABASE = "rows.sqlite"
_VERSION = 2
_FILE = "file of the lab's store"
_Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
_Count = Annotated[int, msgspec.Meta(ge=0)]
T = TypeVar("T")


class _RowRecord(msgspec.Struct):
    """A record of the table `rows`; it may come from a damaged file or another program."""

    key: str
    condition: str
    metric: str
    value: Annotated[float, msgspec.Meta(ge=0, le=1)] | None
    n: _Count
    failed: _Count
    difference: _Finite | None
    low: _Finite | None
    high: _Finite | None
    details: str
    outcomes: bytes | None
    error: str
    seconds: _Finite | None
    made_at: str
    versions: str


COLUMNS = {
    "rows": _RowRecord.__struct_fields__,
    "failures": ("condition", "clip", "message"),
    "sets": ("name", "content"),
    "drifts": ("condition", "scoring", "content"),
    "costs": ("backbone", "clips", "seconds"),
    "grids": ("name", "command", "content"),
}
"""The columns of each table; a database may have others, which are left as they are."""

_KEYS = {"failures": "condition, clip", "drifts": "condition, scoring"}  # of others: the first one


@dataclass
class Entries:
    """What a job returns: entries of the database, and notes for whoever runs the grid.

    `failures` are clips that could not be used, with the reason; `values` are JSON values by table
    (sets, drifts or grids) and name; `costs` are clips and the seconds that embedding them took, by
    backbone. A job is `lost` if every worker that had it ended.
    """

    rows: list[Row] = field(default_factory=list)
    failures: list[tuple[Condition, str, str]] = field(default_factory=list)
    values: list[tuple[str, tuple[str, ...], object]] = field(default_factory=list)
    costs: list[tuple[str, int, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost: bool = False


class ArrayFiles:
    """The files of a store: arrays by name."""

    def __init__(self, home: str | Path) -> None:
        self.home = Path(home).expanduser()

    def path(self, kind: str, name: str) -> Path:
        """Return the file that belongs to a name: `kind` is embeddings or scores."""
        digest = hashlib.sha256(name.encode()).hexdigest()
        return self.home / kind / digest[:2] / f"{digest}.npz"

    def put_arrays(self, kind: str, name: str, arrays: Arrays) -> None:
        """Write arrays by their name, completely or not at all."""
        content: dict[str, Array] = {**arrays, "name": np.array(name)}
        try:
            with replacing(self.path(kind, name)) as partial, open(partial, "wb") as handle:
                np.savez(handle, **content)  # type: ignore[arg-type]
        except (WriteError, UsageError) as error:
            raise StoreError(
                f"{error}. The content of the store is intact: make room on the disk, then run "
                "the same command again"
            ) from error

    def get_arrays(self, kind: str, name: str) -> dict[str, Array] | None:
        """Return the arrays of a name, or None if there are none that can be read."""
        path = self.path(kind, name)
        try:
            arrays = read_npz(path, array_names(path, what=_FILE), what=_FILE)
        except FormatError:
            return None
        return arrays if str(arrays.pop("name", "")) == name else None


def open_files(home: str | Path) -> ArrayFiles:
    """Return the files of a store that exists, for a worker."""
    if not (Path(home) / _DATABASE).is_file():
        raise StoreError(
            f"There is no store at {home}; it must be in a folder that every node has under the "
            "same name (--store)"
        )
    return ArrayFiles(home)


class Store(ArrayFiles):
    """A folder of results, `lab` in the cache folder by default; opening it creates the tables."""

    def __init__(self, home: str | Path | None = None) -> None:
        super().__init__(home or chosen_home("lab"))
        self.damage: dict[str, str] = {}
        """What was left out because it cannot be used, and why."""
        self._locks: dict[str, FileLock] = {}
        path = self.home / _DATABASE
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file():
                raise OSError(f"{path.name} is not a regular file")
            self._db = sqlite3.connect(path, timeout=60, isolation_level=None)
            # Damaged bytes make another text, which is then not that of a row.
            self._db.text_factory = lambda data: data.decode("utf-8", "replace")
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise
        except (sqlite3.Error, OSError, ValueError) as error:
            raise StoreError(
                f"The store {self.home} cannot be opened: {error}. Use another folder (--store), "
                f"or delete its {_DATABASE} and run its grids again"
            ) from error

    def _prepare(self) -> None:
        """Create the tables of a new database; refuse one of another version."""
        db = self._db
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        db.execute("PRAGMA synchronous = NORMAL")
        if version == _VERSION:
            return
        if version or tables:
            raise StoreError(
                f"The store {self.home} has version {version}; this driftscore reads version "
                f"{_VERSION}. Use another folder (--store), and run its grids there"
            )
        with db:
            db.execute("BEGIN IMMEDIATE")
            for table, columns in COLUMNS.items():
                names, key = ", ".join(columns), _KEYS.get(table, columns[0])
                db.execute(f"CREATE TABLE IF NOT EXISTS {table} ({names}, PRIMARY KEY ({key}))")
            db.execute("CREATE INDEX IF NOT EXISTS rows_condition ON rows (condition)")
            db.execute(f"PRAGMA user_version = {_VERSION}")

    def close(self) -> None:
        """Close the store; it can be opened again."""
        self.release(*self._locks)
        self._db.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(self, entries: Entries) -> None:
        """Store entries in one transaction; equal keys are replaced, costs are added up."""
        records: dict[str, list[tuple[object, ...]]] = {
            "rows": [_record(row) for row in entries.rows],
            "failures": [(condition.key, *failure) for condition, *failure in entries.failures],
            "costs": list(entries.costs),
        }
        for table, name, content in entries.values:
            records.setdefault(table, []).append((*name, json.dumps(content, sort_keys=True)))
        try:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                for table, values in records.items():
                    names, marks = ", ".join(COLUMNS[table]), ", ".join("?" * len(COLUMNS[table]))
                    statement = f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})"  # noqa: S608
                    if table == "costs":
                        statement += (
                            " ON CONFLICT (backbone) DO UPDATE SET clips = clips + excluded.clips, "
                            "seconds = seconds + excluded.seconds"
                        )
                    self._db.executemany(statement, values)
        except sqlite3.OperationalError as error:
            raise StoreError(
                f"The store {self.home} cannot be written ({error}); its content is intact. Make "
                "room on the disk, then run the same command again: it continues from here"
            ) from error
        except sqlite3.Error as error:  # "disk image is malformed"
            raise self._damaged(error) from error

    def put_json(self, table: str, name: Sequence[str], content: object) -> None:
        """Store a JSON value by its name in `sets`, `drifts` or `grids`."""
        self.put(Entries(values=[(table, tuple(name), content)]))

    def done(self, condition: Condition) -> dict[str, Row]:
        """Return a condition's rows by key."""
        rows = self._read("rows", _row, "WHERE condition = ?", condition.key)
        return {row.cell.key: row for row in rows}

    def rows(self) -> list[Row]:
        """Return all rows in the order of their keys."""
        return sorted(self._read("rows", _row), key=lambda row: row.cell.key)

    def failures(self) -> list[tuple[Condition, str, str]]:
        """Return every clip that could not be used: condition, clip, reason."""
        return self._read("failures", _failure, "ORDER BY condition, clip")

    def all_json(self, table: str) -> dict[tuple[str, ...], dict[str, object]]:
        """Return every JSON value of `sets`, `drifts` or `grids` by its name."""
        return dict(self._read(table, _named_json))

    def clip_costs(self) -> dict[str, float]:
        """Return the measured seconds per clip on one core, by backbone."""
        return dict(self._read("costs", _cost))

    def _read(
        self, table: str, convert: Callable[[tuple[object, ...]], T], where: str = "", *values: str
    ) -> list[T]:
        """Return every record of a table that can be used; the others are noted as damage."""
        query = f"SELECT {', '.join(COLUMNS[table])} FROM {table} {where}"  # noqa: S608 (our names)
        try:
            records = self._db.execute(query, values).fetchall()
        except (sqlite3.Error, OverflowError, MemoryError) as error:
            raise self._damaged(error) from error
        entries = []
        for number, record in enumerate(records, start=1):
            try:
                entries.append(convert(record))
            except (FormatError, ValueError, RecursionError) as error:
                self.damage[f"{table} {str(record[0])[:400]!r} {number}"] = str(error)
        return entries

    def _damaged(self, error: Exception) -> StoreError:
        return StoreError(
            f"The store {self.home} cannot be read ({str(error) or type(error).__name__}). If it "
            f"is damaged, delete its {_DATABASE} and run its grids again: its embeddings are used"
        )

    @property
    def damage_in_words(self) -> str:
        """One sentence about what was left out; empty if nothing was."""
        if not self.damage:
            return ""
        what, why = next(iter(self.damage.items()))
        return (
            f"{len(self.damage):,} entries of the store {self.home} cannot be used and are left "
            f"out, the first: {what[:200]} ({why[:200]}). Run the grid again to compute them"
        )

    def claim(self, *names: str) -> bool:
        """Claim names, all or none: return whether neither this run nor another works on any."""
        claimed: list[str] = []
        for name in names:
            digest = hashlib.sha256(name.encode()).hexdigest()
            lock = FileLock(self.home / "locks" / f"{digest[:32]}.lock")
            try:
                Path(lock.lock_file).parent.mkdir(exist_ok=True)
                if name in self._locks:
                    raise Timeout(lock.lock_file)
                lock.acquire(blocking=False)
            except Timeout:
                self.release(*claimed)
                return False
            except OSError as error:
                raise StoreError(f"The store {self.home} cannot be written ({error})") from error
            self._locks[name] = lock
            claimed.append(name)
        return True

    def release(self, *names: str) -> None:
        """Give up claims."""
        for name in names:
            lock = self._locks.pop(name)
            with suppress(OSError):  # while it is locked: who waits for it takes a new file
                Path(lock.lock_file).unlink()
            lock.release()


def _record(row: Row) -> tuple[object, ...]:
    """Return a row as a record."""
    values = vars(row) | (vars(row.gain) if row.gain else {})
    values |= {"key": row.cell.key, "condition": row.cell.condition.key}
    values["details"] = json.dumps(dict(row.details), sort_keys=True)
    if row.outcomes is not None:
        values["outcomes"] = row.outcomes.astype("<i2").tobytes()
    return tuple(values.get(name) for name in COLUMNS["rows"])


def _row(values: tuple[object, ...]) -> Row:
    """Return the row of a record."""
    named = dict(zip(COLUMNS["rows"], values, strict=True))
    record = msgspec.convert(named, _RowRecord, builtin_types=(bytes,))
    cell = read_key(Cell, record.key)
    if record.condition != cell.condition.key:
        raise FormatError("its condition is not that of its key")
    if not record.error and (not record.metric or record.value is None or not record.n):
        raise FormatError("it has neither a result nor an error")
    gain, bounds = None, (record.difference, record.low, record.high)
    if bounds != (None, None, None):
        gain = Interval(*msgspec.convert(bounds, tuple[float, float, float]))
    details = msgspec.json.decode(record.details, type=dict[str, int | float])
    outcomes = None
    if record.outcomes is not None:
        outcomes = np.frombuffer(record.outcomes, "<i2").astype(np.int16)
    return Row(
        cell, record.metric, record.value, record.n, record.failed, gain, details, outcomes,
        record.error, record.seconds or 0.0, record.made_at, record.versions,
    )  # fmt: skip


def _failure(values: tuple[object, ...]) -> tuple[Condition, str, str]:
    condition, clip, message = msgspec.convert(values, tuple[str, str, str])
    return read_key(Condition, condition), clip, message


def _named_json(values: tuple[object, ...]) -> tuple[tuple[str, ...], dict[str, object]]:
    *name, text = msgspec.convert(values, tuple[str, ...])
    # Names of files that are not UTF-8 have surrogates, which only this JSON accepts.
    return tuple(name), msgspec.convert(json.loads(text), dict[str, object])


def _cost(values: tuple[object, ...]) -> tuple[str, float]:
    clips = Annotated[int, msgspec.Meta(ge=1)]
    seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    record = msgspec.convert(values, tuple[str, clips, seconds])
    return record[0], record[2] / record[1]
