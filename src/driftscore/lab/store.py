"""Results in one folder: rows in SQLite, embeddings and scores in files named by their key.

    rows.sqlite          rows (one a cell), failures (one a clip that could not be used),
                         sets (labels, ids and truth), drifts (per-class alignment), claims
    embeddings/xx/*.npz  clip embeddings of a condition, a few hundred clips a file
    scores/xx/*.npz      every score of a multi-label cell: what its intervals are drawn from

A file is moved into place when whole and a row is one short transaction, so a run may be
killed at any moment, two may share a store, and a full disk ends a run with a sentence.
What is being worked on is claimed by name; the claim of a process that has died is void.

SQLite's locks cannot be trusted on a network folder. On a cluster only the run itself opens
the database; its workers write the files and note all else in memory (`Store.aside`), which
is sent home (`drain`) and added there (`merge`).
"""

import hashlib
import json
import os
import socket
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import FormatError, StoreError, UsageError
from driftscore.files import cache_home, replacing
from driftscore.lab.grid import Cell, Condition, Scoring, canonical

Arrays = dict[str, NDArray[Any]]
Tables = dict[str, list[tuple[Any, ...]]]
"""What was put into a database, table by table."""

_DATABASE = "rows.sqlite"
_TRIES = 50
_STALE_S = 6 * 3600  # a claim from another machine is void after this long
_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (
    key TEXT PRIMARY KEY, condition TEXT, metric TEXT, value REAL, n INTEGER, failed INTEGER,
    difference REAL, low REAL, high REAL, details TEXT, outcomes BLOB, error TEXT,
    seconds REAL, made_at TEXT, versions TEXT);
CREATE INDEX IF NOT EXISTS rows_condition ON rows (condition);
CREATE TABLE IF NOT EXISTS failures (
    condition TEXT, clip TEXT, message TEXT, PRIMARY KEY (condition, clip));
CREATE TABLE IF NOT EXISTS sets (name TEXT PRIMARY KEY, content TEXT);
CREATE TABLE IF NOT EXISTS drifts (
    condition TEXT, scoring TEXT, content TEXT, PRIMARY KEY (condition, scoring));
CREATE TABLE IF NOT EXISTS costs (backbone TEXT PRIMARY KEY, clips INTEGER, seconds REAL);
CREATE TABLE IF NOT EXISTS claims (name TEXT PRIMARY KEY, host TEXT, pid INTEGER, at REAL);
CREATE TABLE IF NOT EXISTS grids (name TEXT PRIMARY KEY, command TEXT, content TEXT);
"""
_WIDTHS = {"rows": 15, "failures": 3, "sets": 2, "drifts": 3, "costs": 3, "grids": 3}
_SUM = (
    " ON CONFLICT (backbone) DO UPDATE SET "
    "clips = clips + excluded.clips, seconds = seconds + excluded.seconds"
)


@dataclass(frozen=True)
class Row:
    """A cell's result; `error` says why there is none.

    `value` is a share in [0, 1]; `difference` is to cosine in the same condition, with its
    paired 95 % interval. `outcomes` is the chosen class of each clip (-1: failed), int16.
    """

    cell: Cell
    metric: str = ""
    value: float | None = None
    n: int = 0
    failed: int = 0
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    outcomes: NDArray[np.int16] | None = None
    error: str = ""
    seconds: float = 0.0
    made_at: str = ""
    versions: str = ""


class Store:
    """A folder of results; opening it makes what is missing."""

    def __init__(self, home: str | Path | None = None, *, database: str | None = None) -> None:
        self.home = Path(home).expanduser() if home else default_home()
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            self._db = _opened(database or self.home / _DATABASE)
        except (sqlite3.Error, OSError) as error:
            raise UsageError(f"The store {self.home} cannot be opened: {error}") from error

    @staticmethod
    def aside(home: str | Path) -> "Store":
        """Open a store as a worker on another machine does: its files, and a database in memory."""
        if not (Path(home) / _DATABASE).is_file():
            raise StoreError(
                f"The store {home} is not there; keep it in a folder that every node sees under "
                "the same name (--store)"
            )
        return Store(home, database=":memory:")

    def drain(self) -> Tables:
        """Return all that was put into the database: what a worker sends home."""
        return {
            table: self._db.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608
            for table in _WIDTHS
        }

    def merge(self, tables: Tables) -> None:
        """Put values into the database, all or none; what has the same key is replaced."""
        with self._writing() as db:
            for table, values in tables.items():
                marks = ", ".join("?" * _WIDTHS[table])
                sums = _SUM if table == "costs" else ""
                query = f"INSERT OR REPLACE INTO {table} VALUES ({marks}){sums}"  # noqa: S608
                db.executemany(query, values)

    def close(self) -> None:
        """Close the store; it can be opened again."""
        self._db.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Run one short transaction; a full disk is a sentence and leaves nothing half done."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise StoreError(
                f"The store {self.home} cannot be written ({error}); what is in it is whole. "
                "Make room on the disk, then run the same command again: it goes on from here"
            ) from error

    def put_rows(self, rows: Iterable[Row]) -> None:
        """Keep rows; a row that is there is replaced by its like."""
        self.merge({"rows": [_values(row) for row in rows]})

    def done(self, condition: Condition, *, failed_too: bool = True) -> set[str]:
        """Return the keys of a condition's rows; without those that hold an error if asked."""
        query = "SELECT key FROM rows WHERE condition = ?"
        query += "" if failed_too else " AND error = ''"
        return {key for (key,) in self._db.execute(query, (condition.key,))}

    def rows(self) -> Iterator[Row]:
        """Yield all rows in the order of their keys."""
        for values in self._db.execute("SELECT * FROM rows ORDER BY key"):
            yield _row(values)

    def put_failures(self, condition: Condition, failures: Mapping[str, str]) -> None:
        """Keep which clips of a condition could not be used, and why."""
        values = [(condition.key, clip, message) for clip, message in failures.items()]
        self.merge({"failures": values})

    def failures(self) -> list[tuple[Condition, str, str]]:
        """Return every clip that could not be used: condition, clip, why."""
        found = self._db.execute("SELECT * FROM failures ORDER BY condition, clip")
        return [(_condition(json.loads(key)), clip, why) for key, clip, why in found]

    def put_json(self, table: str, name: Sequence[str], content: Any) -> None:
        """Keep a JSON value by its name in `sets`, `drifts` or `grids`."""
        self.merge({_table(table): [(*name, json.dumps(content, sort_keys=True))]})

    def all_json(self, table: str) -> dict[tuple[str, ...], Any]:
        """Return every JSON value of a table by its name."""
        found = self._db.execute(f"SELECT * FROM {_table(table)}")  # noqa: S608
        return {tuple(row[:-1]): json.loads(row[-1]) for row in found}

    def add_cost(self, backbone: str, clips: int, seconds: float) -> None:
        """Note what embedding took, for estimates."""
        self.merge({"costs": [(backbone, clips, seconds)]})

    def clip_costs(self) -> dict[str, float]:
        """Return the measured seconds a clip takes on one core, by backbone."""
        found = self._db.execute("SELECT backbone, seconds / clips FROM costs WHERE clips > 0")
        return dict(found.fetchall())

    def claim(self, name: str) -> bool:
        """Return whether this process may work on `name`: nobody else alive does."""
        host, pid = socket.gethostname(), os.getpid()
        with self._writing() as db:
            held = db.execute("SELECT host, pid, at FROM claims WHERE name = ?", (name,)).fetchone()
            if held and (held[0], held[1]) != (host, pid) and _alive(*held):
                return False
            values = (name, host, pid, time.time())
            db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)", values)
        return True

    def release(self, name: str) -> None:
        """Give a claim up."""
        with self._writing() as db:
            db.execute("DELETE FROM claims WHERE name = ?", (name,))

    def path(self, kind: str, name: str) -> Path:
        """Return the file that belongs to a name: `kind` is embeddings or scores."""
        digest = hashlib.sha256(name.encode()).hexdigest()
        return self.home / kind / digest[:2] / f"{digest}.npz"

    def put_arrays(self, kind: str, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write arrays by their name, whole or not at all."""
        content: Arrays = {**arrays, "name": np.array(name)}
        try:
            with replacing(self.path(kind, name)) as partial, open(partial, "wb") as handle:
                np.savez(handle, **content)  # type: ignore[arg-type]
        except UsageError as error:
            raise StoreError(
                f"{error}. What is in the store is whole: make room on the disk, then run the "
                "same command again"
            ) from error

    def get_arrays(self, kind: str, name: str) -> Arrays | None:
        """Return the arrays of a name, or None; a damaged file is removed and counts as none."""
        path = self.path(kind, name)
        if not path.is_file():
            return None
        try:
            with np.load(path, allow_pickle=False) as data:
                found = {key: data[key] for key in data.files}
        except (OSError, ValueError, EOFError, KeyError, BadZipFile, zlib.error):
            path.unlink(missing_ok=True)
            return None
        if str(found.pop("name", "")) != name:
            raise FormatError(f"{path} belongs to another condition; delete it and run again")
        return found


def default_home() -> Path:
    """Return the store's folder: `$DRIFTSCORE_LAB`, or `lab` in the cache folder."""
    given = os.environ.get("DRIFTSCORE_LAB")
    return Path(given).expanduser() if given else cache_home() / "lab"


def read_cell(key: str) -> Cell:
    """Return the cell that a key describes."""
    content = json.loads(key)
    return Cell(_condition(content["condition"]), Scoring(**content["scoring"]))


def set_name(condition: Condition) -> str:
    """Return the name under which a condition's labels and truth are kept."""
    return canonical([condition.dataset, condition.data, condition.limit])


def _opened(path: str | Path) -> sqlite3.Connection:
    """Open the database; the switch to WAL does not wait for others by itself, so try again."""
    for left in range(_TRIES, 0, -1):
        db = sqlite3.connect(path, timeout=60, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.executescript(_SCHEMA)
        except sqlite3.OperationalError as error:
            db.close()
            if "locked" not in str(error) or left == 1:
                raise
            time.sleep(0.1)
        else:
            return db
    raise AssertionError("unreachable")


def _condition(content: dict[str, Any]) -> Condition:
    return Condition(**content)


def _values(row: Row) -> tuple[Any, ...]:
    outcomes = None if row.outcomes is None else row.outcomes.astype("<i2").tobytes()
    return (
        row.cell.key, row.cell.condition.key, row.metric, row.value, row.n, row.failed,
        row.difference, row.low, row.high, json.dumps(dict(row.details), sort_keys=True),
        outcomes, row.error, row.seconds, row.made_at, row.versions,
    )  # fmt: skip


def _row(values: Sequence[Any]) -> Row:
    key, _, metric, value, n, failed, difference, low, high, details, outcomes, *rest = values
    chosen = None if outcomes is None else np.frombuffer(outcomes, "<i2").astype(np.int16)
    return Row(
        read_cell(key), metric, value, n, failed, difference, low, high, json.loads(details),
        chosen, *rest,
    )  # fmt: skip


def _table(name: str) -> str:
    if name not in ("sets", "drifts", "grids"):
        raise UsageError(f"The store keeps no JSON in {name!r}")
    return name


def _alive(host: str, pid: int, at: float) -> bool:
    """Return whether the holder of a claim may still be at work."""
    if host != socket.gethostname() or os.name == "nt":  # there a signal 0 would end it
        return time.time() - at < _STALE_S
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
