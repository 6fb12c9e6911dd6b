"""Results in one folder: rows in SQLite, embeddings and scores in files named by their key.

    rows.sqlite          see `schema`
    embeddings/xx/*.npz  clip embeddings of a condition, a few hundred clips per file
    scores/xx/*.npz      every score of a multi-label cell: what its intervals are computed from

A file is moved into place when it is complete and a row is one short transaction, so a run may be
killed at any moment, several runs may share a store, and a full disk ends a run with a message.
Work in progress is claimed by name (see `claims`).

What is damaged counts as missing: a file that cannot be read, a row with foreign values, and what
a damaged database cannot return. `Store.damage` lists what was left out.

SQLite locks do not work reliably on a network folder. On a cluster only the run itself opens the
database; its workers write the files and keep everything else in memory (`Store.for_worker`), which
is returned (`drain`) and added to the database by the run (`merge`).
"""

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from driftscore.arrayfile import array_names, read_npz
from driftscore.errors import FormatError, StoreError, UsageError, WriteError
from driftscore.files import cache_home, replacing
from driftscore.lab.conditions import Condition, Row, read_condition
from driftscore.lab.runs import claims, schema
from driftscore.lab.runs.records import SqlValue, read_json, read_record, record_of

Array = NDArray[np.generic]
Arrays = Mapping[str, Array]
Tables = dict[str, list[tuple[SqlValue, ...]]]
"""What was put into a database, by table."""

_DATABASE = "rows.sqlite"
_TRIES = 50
_JSON_TABLES = ("sets", "drifts", "grids")
_FILE = "file of the lab's store"
T = TypeVar("T")


class Store:
    """A folder of results; opening it creates what is missing."""

    def __init__(self, home: str | Path | None = None, *, database: str | None = None) -> None:
        self.home = Path(home).expanduser() if home else default_home()
        self.damage: dict[str, str] = {}
        """What was left out because it cannot be used, and why."""
        path = self.home / _DATABASE
        self._heartbeat = None if database else claims.Heartbeat(path)
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file():
                raise OSError(f"{path.name} is not a regular file")
            self._db = _opened(database or path, str(self.home))
        except (sqlite3.Error, OSError, ValueError) as error:
            raise StoreError(
                f"The store {self.home} cannot be opened: {error}. Use another folder (--store), "
                f"or delete its {_DATABASE} and run its grids again"
            ) from error

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
            table: self._db.execute(schema.selection(table)).fetchall() for table in schema.SENT
        }

    def merge(self, tables: Tables) -> None:
        """Put values into the database, all or none; equal keys are replaced."""
        with self._writing() as db:
            for table, values in tables.items():
                db.executemany(schema.insertion(table), values)

    def close(self) -> None:
        """Close the store; it can be opened again."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
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
                with suppress(sqlite3.Error):  # it ends with the connection in any case
                    self._db.execute("ROLLBACK")
            raise StoreError(_write_problem(self.home, error)) from error

    def put_rows(self, rows: Iterable[Row]) -> None:
        """Store rows; a row of the same cell is replaced."""
        self.merge({"rows": [record_of(row) for row in rows]})

    def done(self, condition: Condition, *, failed_too: bool = True) -> dict[str, Row]:
        """Return a condition's rows by key, with or without those that have an error."""
        query = f"{schema.selection('rows')} WHERE condition = ?"
        found = self._read("rows", read_record, query, (condition.key,))
        return {row.cell.key: row for row in found if failed_too or not row.error}

    def rows(self) -> Iterator[Row]:
        """Yield all rows in the order of their keys."""
        found = self._read("rows", read_record, schema.selection("rows"))
        yield from sorted(found, key=lambda row: row.cell.key)

    def _read(
        self,
        table: str,
        read: Callable[[Sequence[object]], T],
        query: str,
        values: Sequence[str] = (),
    ) -> list[T]:
        """Return every record of a query that can be read; the others are noted as damage."""
        found = []
        try:
            for number, record in enumerate(self._db.execute(query, values), start=1):
                try:
                    found.append(read(record))
                except FormatError as error:
                    self.damage[f"{table} {str(record[0])[:400]!r} {number}"] = str(error)
        except (sqlite3.Error, OverflowError, MemoryError) as error:
            self.damage[f"table {table}"] = str(error) or type(error).__name__
        return found

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

    def put_failures(self, condition: Condition, failures: Mapping[str, str]) -> None:
        """Store which clips of a condition could not be used, and why."""
        self.merge({"failures": [(condition.key, clip, why) for clip, why in failures.items()]})

    def failures(self) -> list[tuple[Condition, str, str]]:
        """Return every clip that could not be used: condition, clip, reason."""
        query = f"{schema.selection('failures')} ORDER BY condition, clip"
        return self._read("failures", _failure, query)

    def put_json(self, table: str, name: Sequence[str], content: object) -> None:
        """Store a JSON value by its name in `sets`, `drifts` or `grids`."""
        self.merge({_json_table(table): [(*name, json.dumps(content, sort_keys=True))]})

    def all_json(self, table: str) -> dict[tuple[str, ...], dict[str, object]]:
        """Return every JSON value of a table by its name."""
        return dict(self._read(table, _named_json, schema.selection(_json_table(table))))

    def add_cost(self, backbone: str, clips: int, seconds: float) -> None:
        """Record how long embedding took, for estimates."""
        self.merge({"costs": [(backbone, clips, seconds)]})

    def clip_costs(self) -> dict[str, float]:
        """Return the measured seconds per clip on one core, by backbone."""
        return dict(self._read("costs", _cost, schema.selection("costs")))

    def claim(self, name: str) -> bool:
        """Return whether this process may work on `name`: no other running process does."""
        with self._writing() as db:
            taken = claims.take(db, name)
        if taken and self._heartbeat is not None:
            self._heartbeat.start()
        return taken

    def release(self, name: str) -> None:
        """Give up a claim."""
        with self._writing() as db:
            claims.give_up(db, name)

    def is_claimed(self, name: str) -> bool:
        """Return whether another running process works on `name`."""
        try:
            return claims.is_held(self._db, name)
        except sqlite3.Error as error:
            raise StoreError(f"The store {self.home} cannot be read: {error}") from error

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
            found = read_npz(path, array_names(path, what=_FILE), what=_FILE)
        except FormatError:
            return None
        return found if str(found.pop("name", "")) == name else None


def default_home() -> Path:
    """Return the folder of the store: `$DRIFTSCORE_LAB`, or `lab` in the cache folder."""
    given = os.environ.get("DRIFTSCORE_LAB")
    return Path(given).expanduser() if given else cache_home() / "lab"


def _opened(path: str | Path, where: str) -> sqlite3.Connection:
    """Open the database; the switch to WAL does not wait for other processes, so try again."""
    for left in range(_TRIES, 0, -1):
        db = sqlite3.connect(path, timeout=60, isolation_level=None)
        # Damaged bytes make another text, which is then not that of a row.
        db.text_factory = lambda data: data.decode("utf-8", "replace")
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


def _write_problem(home: Path, error: sqlite3.Error) -> str:
    if not isinstance(error, sqlite3.OperationalError):  # "database disk image is malformed"
        return (
            f"The store {home} is damaged ({error}). Save the rows that can be read with "
            f"`driftscore lab export`, then delete its {_DATABASE} and run its grids again"
        )
    return (
        f"The store {home} cannot be written ({error}); its content is intact. Make room on the "
        "disk, then run the same command again: it continues from here"
    )


def _failure(record: Sequence[object]) -> tuple[Condition, str, str]:
    condition, clip, why = record
    if not (isinstance(condition, str) and isinstance(clip, str) and isinstance(why, str)):
        raise FormatError("it is not a clip with a reason")
    return read_condition(condition), clip, why


def _named_json(record: Sequence[object]) -> tuple[tuple[str, ...], dict[str, object]]:
    name = tuple(part for part in record[:-1] if isinstance(part, str))
    if len(name) != len(record) - 1:
        raise FormatError("its name is not a text")
    return name, read_json(record[-1])


def _cost(record: Sequence[object]) -> tuple[str, float]:
    backbone, clips, seconds = record
    wrong = FormatError("it is not a number of clips and seconds")
    if not isinstance(backbone, str) or not isinstance(clips, int) or clips < 1:
        raise wrong
    if not isinstance(seconds, int | float) or not 0 <= seconds < 1e12:
        raise wrong
    return backbone, seconds / clips


def _json_table(name: str) -> str:
    if name not in _JSON_TABLES:
        raise UsageError(f"The store has no JSON values in {name!r}")
    return name
