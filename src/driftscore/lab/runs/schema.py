"""The one definition of the lab's database: its tables, their columns, and the version.

SQLite keeps the version in `PRAGMA user_version`. Databases made before it was written have the
layout of version 1 and the number 0. Version 2 differs in the table of claims, which holds only
work in progress: an older one is replaced. Columns that we do not know are left as they are.
"""

import sqlite3

from driftscore.errors import StoreError

VERSION = 2

TABLES: dict[str, tuple[str, ...]] = {
    "rows": (
        "key TEXT PRIMARY KEY", "condition TEXT", "metric TEXT", "value REAL", "n INTEGER",
        "failed INTEGER", "difference REAL", "low REAL", "high REAL", "details TEXT",
        "outcomes BLOB", "error TEXT", "seconds REAL", "made_at TEXT", "versions TEXT",
    ),
    "failures": ("condition TEXT", "clip TEXT", "message TEXT"),
    "sets": ("name TEXT PRIMARY KEY", "content TEXT"),
    "drifts": ("condition TEXT", "scoring TEXT", "content TEXT"),
    "costs": ("backbone TEXT PRIMARY KEY", "clips INTEGER", "seconds REAL"),
    "grids": ("name TEXT PRIMARY KEY", "command TEXT", "content TEXT"),
    "claims": (
        "name TEXT PRIMARY KEY", "host TEXT", "pid INTEGER", "at REAL", "started TEXT",
    ),
}  # fmt: skip
"""Table -> its columns: rows (one per cell), failures (one per clip that could not be used), sets
(labels, ids and truth), drifts (per-class alignment), costs, grids, claims."""

KEYS = {"failures": ("condition", "clip"), "drifts": ("condition", "scoring")}
"""Primary keys of several columns."""

SENT = tuple(table for table in TABLES if table != "claims")
"""Tables that a worker on another machine fills and sends back."""


def create(db: sqlite3.Connection, where: str) -> None:
    """Create what is missing in a database, after checking its version."""
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found > VERSION:
        raise StoreError(
            f"The store {where} has version {found}; this driftscore reads version {VERSION}. "
            "Update driftscore, or use another folder"
        )
    if found == VERSION and not _incomplete(db):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        if "claims" in _incomplete(db):
            db.execute("DROP TABLE IF EXISTS claims")
        _check_columns(db, where)
        for statement in statements():
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def columns(table: str) -> tuple[str, ...]:
    """Return the names of a table's columns."""
    return tuple(column.split()[0] for column in TABLES[table])


def insertion(table: str) -> str:
    """Return the statement that adds rows to a table; equal keys are replaced, costs added up."""
    names, marks = ", ".join(columns(table)), ", ".join("?" * len(TABLES[table]))
    sums = ""
    if table == "costs":
        sums = (
            " ON CONFLICT (backbone) DO UPDATE SET "
            "clips = clips + excluded.clips, seconds = seconds + excluded.seconds"
        )
    return f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks}){sums}"  # noqa: S608 (ours)


def selection(table: str) -> str:
    """Return the statement that reads the columns of a table in our order."""
    return f"SELECT {', '.join(columns(table))} FROM {table}"  # noqa: S608 (our own names)


def statements() -> list[str]:
    """Return the statements that create every table and index that does not exist."""
    found = []
    for table, definitions in TABLES.items():
        key = KEYS.get(table)
        parts = [*definitions, *([f"PRIMARY KEY ({', '.join(key)})"] if key else [])]
        found.append(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(parts)})")
    found.append("CREATE INDEX IF NOT EXISTS rows_condition ON rows (condition)")
    return found


def _existing(db: sqlite3.Connection, table: str) -> tuple[str, ...]:
    return tuple(row[1] for row in db.execute(f"PRAGMA table_info({table})"))


def _incomplete(db: sqlite3.Connection) -> list[str]:
    """Return the tables that are missing or lack a column."""
    return [table for table in TABLES if not set(columns(table)) <= set(_existing(db, table))]


def _check_columns(db: sqlite3.Connection, where: str) -> None:
    """Raise an error if a table exists without one of our columns: a store of another layout."""
    for table in TABLES:
        found = _existing(db, table)
        if found and not set(columns(table)) <= set(found):
            raise StoreError(
                f"The store {where} has another layout: its table {table} has the columns "
                f"{', '.join(found)}. It was made by an old driftscore; use another folder, or "
                "run its grids again"
            )
