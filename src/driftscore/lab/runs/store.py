"""Results in one folder: rows in SQLite, embeddings and scores in files named by their key.

    rows.sqlite          see `schema`
    embeddings/xx/*.npz  clip embeddings of a condition, a few hundred clips per file
    scores/xx/*.npz      every score of a multi-label cell: what its intervals are computed from

A file is moved into place when it is complete and a row is one short transaction, so a run may be
killed at any moment, two runs may share a store, and a full disk ends a run with a message. Work in
progress is claimed by name; the claim of a process that has ended is void.

SQLite locks do not work reliably on a network folder. On a cluster only the run itself opens the
database; its workers write the files and keep everything else in memory (`Store.for_worker`), which
is returned (`drain`) and added to the database by the run (`merge`).
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
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import FormatError, StoreError, UsageError, WriteError
from driftscore.files import cache_home, replacing
from driftscore.lab.conditions import (
    Condition,
    Row,
    Stamp,
    read_cell,
    read_condition,
)
from driftscore.lab.metrics import Interval
from driftscore.lab.runs import schema

Array = NDArray[np.generic]
Arrays = Mapping[str, Array]
SqlValue = str | int | float | bytes | None
Tables = dict[str, list[tuple[SqlValue, ...]]]
"""What was put into a database, by table."""

_DATABASE = "rows.sqlite"
_TRIES = 50
_STALE_S = 6 * 3600  # a claim from another machine is void after this time
_JSON_TABLES = ("sets", "drifts", "grids")


class Store:
    """A folder of results; opening it creates what is missing."""

    def __init__(self, home: str | Path | None = None, *, database: str | None = None) -> None:
        self.home = Path(home).expanduser() if home else default_home()
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            self._db = _opened(database or self.home / _DATABASE, str(self.home))
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"The store {self.home} cannot be opened: {error}") from error

    @staticmethod
    def for_worker(home: str | Path) -> "Store":
        """Open a store on another machine: its files, and a database in memory."""
        if not (Path(home) / _DATABASE).is_file():
            raise StoreError(
                f"There is no store at {home}; it must be in a folder that every node has under "
                "the same name (--store)"
            )
        return Store(home, database=":memory:")

    def drain(self) -> Tables:
        """Return everything that was put into the database: what a worker sends back."""
        return {
            table: self._db.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608
            for table in schema.SENT
        }

    def merge(self, tables: Tables) -> None:
        """Put values into the database, all or none; equal keys are replaced."""
        with self._writing() as db:
            for table, values in tables.items():
                db.executemany(schema.insertion(table), values)

    def close(self) -> None:
        """Close the store; it can be opened again."""
        self._db.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Run one short transaction; an error leaves nothing half done."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise StoreError(
                f"The store {self.home} cannot be written ({error}); its content is intact. "
                "Make room on the disk, then run the same command again: it continues from here"
            ) from error

    def put_rows(self, rows: Iterable[Row]) -> None:
        """Store rows; a row of the same cell is replaced."""
        self.merge({"rows": [_values(row) for row in rows]})

    def done(self, condition: Condition, *, failed_too: bool = True) -> set[str]:
        """Return the keys of a condition's rows, with or without those that have an error."""
        query = "SELECT key FROM rows WHERE condition = ?"
        query += "" if failed_too else " AND error = ''"
        return {key for (key,) in self._db.execute(query, (condition.key,))}

    def rows(self) -> Iterator[Row]:
        """Yield all rows in the order of their keys."""
        for values in self._db.execute("SELECT * FROM rows ORDER BY key"):
            yield _row(*values)

    def put_failures(self, condition: Condition, failures: Mapping[str, str]) -> None:
        """Store which clips of a condition could not be used, and why."""
        self.merge({"failures": [(condition.key, clip, why) for clip, why in failures.items()]})

    def failures(self) -> list[tuple[Condition, str, str]]:
        """Return every clip that could not be used: condition, clip, reason."""
        found = self._db.execute("SELECT * FROM failures ORDER BY condition, clip")
        return [(read_condition(key), clip, why) for key, clip, why in found]

    def put_json(self, table: str, name: Sequence[str], content: object) -> None:
        """Store a JSON value by its name in `sets`, `drifts` or `grids`."""
        self.merge({_json_table(table): [(*name, json.dumps(content, sort_keys=True))]})

    def all_json(self, table: str) -> dict[tuple[str, ...], dict[str, object]]:
        """Return every JSON value of a table by its name."""
        found = self._db.execute(f"SELECT * FROM {_json_table(table)}")  # noqa: S608
        return {tuple(row[:-1]): json.loads(row[-1]) for row in found}

    def add_cost(self, backbone: str, clips: int, seconds: float) -> None:
        """Record how long embedding took, for estimates."""
        self.merge({"costs": [(backbone, clips, seconds)]})

    def clip_costs(self) -> dict[str, float]:
        """Return the measured seconds per clip on one core, by backbone."""
        found = self._db.execute("SELECT backbone, seconds / clips FROM costs WHERE clips > 0")
        return dict(found.fetchall())

    def claim(self, name: str) -> bool:
        """Return whether this process may work on `name`: no other running process does."""
        host, pid = socket.gethostname(), os.getpid()
        with self._writing() as db:
            held = db.execute("SELECT host, pid, at FROM claims WHERE name = ?", (name,)).fetchone()
            if held and (held[0], held[1]) != (host, pid) and _is_running(*held):
                return False
            db.execute(schema.insertion("claims"), (name, host, pid, time.time()))
        return True

    def release(self, name: str) -> None:
        """Give up a claim."""
        with self._writing() as db:
            db.execute("DELETE FROM claims WHERE name = ?", (name,))

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
    """Return the folder of the store: `$DRIFTSCORE_LAB`, or `lab` in the cache folder."""
    given = os.environ.get("DRIFTSCORE_LAB")
    return Path(given).expanduser() if given else cache_home() / "lab"


def _opened(path: str | Path, where: str) -> sqlite3.Connection:
    """Open the database; the switch to WAL does not wait for other processes, so try again."""
    for left in range(_TRIES, 0, -1):
        db = sqlite3.connect(path, timeout=60, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            schema.create(db, where)
        except sqlite3.OperationalError as error:
            db.close()
            if "locked" not in str(error) or left == 1:
                raise
            time.sleep(0.1)
        except BaseException:
            db.close()
            raise
        else:
            return db
    raise AssertionError("unreachable")


def _values(row: Row) -> tuple[SqlValue, ...]:
    outcomes = None if row.outcomes is None else row.outcomes.astype("<i2").tobytes()
    gain = (None,) * 3 if row.gain is None else (row.gain.difference, row.gain.low, row.gain.high)
    return (
        row.cell.key, row.cell.condition.key, row.metric, row.value, row.n, row.failed, *gain,
        json.dumps(dict(row.details), sort_keys=True), outcomes, row.error, row.stamp.seconds,
        row.stamp.made_at, row.stamp.versions,
    )  # fmt: skip


def _row(
    key: str, _: str, metric: str, value: float | None, n: int, failed: int,
    difference: float | None, low: float | None, high: float | None, details: str,
    outcomes: bytes | None, error: str, *stamp: object,
) -> Row:  # fmt: skip
    """Return the row of a record of the table `rows`."""
    gain = None
    if difference is not None and low is not None and high is not None:
        gain = Interval(difference, low, high)
    chosen = None if outcomes is None else np.frombuffer(outcomes, "<i2").astype(np.int16)
    made = Stamp(*stamp)  # type: ignore[arg-type]
    return Row(
        read_cell(key), metric, value, n, failed, gain, json.loads(details), chosen, error, made
    )


def _json_table(name: str) -> str:
    if name not in _JSON_TABLES:
        raise UsageError(f"The store has no JSON values in {name!r}")
    return name


def _is_running(host: str, pid: int, at: float) -> bool:
    """Return whether the holder of a claim may still be running."""
    if host != socket.gethostname() or os.name == "nt":  # on Windows signal 0 would end it
        return time.time() - at < _STALE_S
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
