"""A damaged store: what can be used is used, what is left out is said, a run computes it again."""

import json
import math
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driftscore.errors import DriftscoreError, StoreError
from driftscore.lab.conditions import Cell, Condition, read_key
from driftscore.lab.report import report
from driftscore.lab.runs.export import export
from driftscore.lab.runs.grid import Grid
from driftscore.lab.runs.runner import run
from driftscore.lab.runs.store import Store
from tests.mutation import DAMAGE, VALUES, Damage, damaged, replacements

from .small_lab import build, content, quick, small_grid
from .test_commands import call

RULES = ["cosine", "das", "zs_audio"]
VALUES_OF_SQL: list[object] = [
    None, 0, -1, 7, 1.5, 1e308, math.inf, 2**62, "", "words", "{}", "[]", '{"a": 1}', "\u1234", b"",
    b"\1" * 7, b"\xff" * 24, "x" * 5000,
]  # fmt: skip
COLUMNS = [  # one of each type: key, text, number, counts, bytes, JSON, and of each table
    ("rows", "key"), ("rows", "error"), ("rows", "value"), ("rows", "n"), ("rows", "outcomes"),
    ("rows", "details"), ("failures", "condition"), ("sets", "content"), ("drifts", "content"),
    ("costs", "clips"), ("grids", "content"),
]  # fmt: skip
Made = tuple[Path, Grid]


def make(home: Path, *, multi: bool) -> Made:
    build(home, clips=3, multi=multi)
    (home / "clips" / "rain-2.wav").write_bytes(b"not audio")
    grid = small_grid(home, rules=RULES, snrs='["clean", 0]')
    with Store(home / "store") as store:
        run(grid, store)
        store.put_json("grids", ("small", "driftscore lab run small.toml"), {"title": "Small"})
    return home / "store", grid


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Made]:
    """A store of a single-label grid, and one of a multi-label grid (True)."""
    home = tmp_path_factory.mktemp("stores")
    with pytest.MonkeyPatch.context() as patch:
        quick(patch)
        patch.setenv("DRIFTSCORE_CACHE", str(home / "cache"))
        return {multi: make(home / str(multi), multi=multi) for multi in (False, True)}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    monkeypatch.setattr(report, "figures", lambda results: [])  # drawing them takes seconds


def copied(store: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(store, to))


def records(store: Path, table: str) -> int:
    with closing(sqlite3.connect(store / "rows.sqlite")) as db:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def overwrite(store: Path, table: str, column: str, *values: object) -> None:
    """Write one value into each of the last records of a table."""
    with closing(sqlite3.connect(store / "rows.sqlite")) as db, db:
        last = db.execute(f"SELECT rowid FROM {table} ORDER BY rowid DESC").fetchall()
        for (number,), value in zip(last, values, strict=False):
            query = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?"
            db.execute(query, (value, number))


def used(store: Path, out: Path) -> int:
    """Use a store in every way; return how many rows it has. Only our own errors may come."""
    with Store(store) as opened:
        count = export(opened.rows(), out / "rows.csv")
        export(opened.rows(), out / "rows.jsonl")
        opened.failures()
        opened.clip_costs()
        with suppress(DriftscoreError):
            report.write_report(opened, out / "report.md")
    return count


@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=lambda name: name)
def test_a_foreign_value_in_any_column_ends_neither_export_nor_report(
    table: str, column: str, made: dict[bool, Made], tmp_path: Path
) -> None:
    complete, size = len(RULES) + 2 * len(RULES), records(made[False][0], table)
    step = max(size, len(VALUES_OF_SQL) // 4 + 1)
    for first in range(0, len(VALUES_OF_SQL), step):  # as many at once as the table has records
        values = VALUES_OF_SQL[first : first + min(size, step)]
        store = copied(made[False][0], tmp_path / "store")
        overwrite(store, table, column, *values)
        assert used(store, tmp_path) >= complete - len(values)
    overwrite(store, table, column, *["words"] * size)
    used(store, tmp_path)


@pytest.mark.parametrize(
    ("table", "column"),
    [("rows", "key"), ("rows", "details"), ("failures", "condition"), ("sets", "content"),
     ("drifts", "content"), ("drifts", "scoring"), ("grids", "content")],
)  # fmt: skip
def test_unknown_keys_and_types_in_json_end_neither_export_nor_report(
    table: str, column: str, made: dict[bool, Made], tmp_path: Path
) -> None:
    store = copied(made[False][0], tmp_path / "store")
    with closing(sqlite3.connect(store / "rows.sqlite")) as db:
        query = f"SELECT {column} FROM {table} ORDER BY rowid DESC LIMIT 1"
        original = json.loads(db.execute(query).fetchone()[0])
    few = tuple(value for value in VALUES if value not in ("x" * 5000, "{c}", True))
    others = [json.dumps(other) for other in replacements(original, few)]
    size = records(store, table)
    others = others[:: 1 + len(others) // (8 * size)]
    for first in range(0, len(others), size):
        overwrite(store, table, column, *others[first : first + size])
        used(store, tmp_path)


FOREIGN = [
    ("value", "words"), ("value", 1.5), ("value", None), ("n", 0), ("n", "many"), ("failed", -1),
    ("n", 5), ("low", None), ("details", "["), ("outcomes", b"\1"), ("outcomes", b"\1\0" * 3),
    ("outcomes", b"\7\0" * 9), ("outcomes", None), ("metric", ""), ("error", None),
    ("versions", b"3"),
]  # fmt: skip


@pytest.mark.parametrize("some", [FOREIGN[:8], FOREIGN[8:]])
def test_rows_with_foreign_values_are_reported_and_computed_again(
    some: list[tuple[str, object]], made: dict[bool, Made], tmp_path: Path
) -> None:
    store, grid = copied(made[False][0], tmp_path / "store"), made[False][1]
    with Store(store) as opened:
        before = content(opened)
        with closing(sqlite3.connect(store / "rows.sqlite")) as db, db:
            for number, (column, value) in enumerate(some, start=1):
                db.execute(f"UPDATE rows SET {column} = ? WHERE rowid = ?", (value, number))
        assert run(grid, opened).computed == len(some)
        assert content(opened) == before
        opened.damage.clear()
        assert run(grid, opened).computed == 0
        assert not opened.damage_in_words


def test_the_commands_say_what_is_left_out_and_end_with_status_one(
    made: dict[bool, Made], tmp_path: Path
) -> None:
    store = copied(made[False][0], tmp_path / "store")
    overwrite(store, "rows", "value", "words")
    out = str(tmp_path / "report.html")
    for command in (["status"], ["export", str(tmp_path / "rows.csv")], ["report", "-o", out]):
        done = call("lab", *command, "--store", store)
        assert done.exit_code == 1
        assert "1 entries of the store" in done.stderr
        assert "Expected `float | null`, got `str` - at `$.value`" in done.stderr
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == used(made[False][0], tmp_path)


def test_additional_columns_and_tables_are_left_as_they_are(
    made: dict[bool, Made], tmp_path: Path
) -> None:
    store, grid = copied(made[False][0], tmp_path / "store"), made[False][1]
    with closing(sqlite3.connect(store / "rows.sqlite")) as db, db:
        db.execute("ALTER TABLE rows ADD COLUMN comment TEXT DEFAULT 'mine'")
        db.execute("CREATE TABLE mine (x)")
    with Store(store) as opened:
        assert run(grid, opened).computed == 0
    assert used(store, tmp_path) == used(made[False][0], tmp_path)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=DAMAGE)
def test_a_damaged_database_is_one_sentence_and_what_can_be_read_is_used(
    made: dict[bool, Made], tmp_path_factory: pytest.TempPathFactory, changes: list[Damage]
) -> None:
    tmp_path = tmp_path_factory.mktemp("damaged")
    store = copied(made[False][0], tmp_path / "store")
    path = store / "rows.sqlite"
    path.write_bytes(damaged(path.read_bytes(), changes))
    try:
        used(store, tmp_path)
    except StoreError as error:
        said = str(error)
    else:
        said = str(store)
    assert str(store) in said
    assert "\n" not in said


@pytest.mark.parametrize("kind", ["folder", "text", "empty"])
def test_what_is_not_a_database_is_one_sentence(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.sqlite"
    if kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"" if kind == "empty" else b"some text of a user\n" * 400)
    if kind == "empty":  # as SQLite leaves it when a process is killed early
        assert call("lab", "status", "--store", tmp_path).exit_code == 0
        return
    said = call("lab", "status", "--store", tmp_path).exception
    assert isinstance(said, StoreError)
    assert "cannot be opened" in str(said)


def changed(arrays: dict[str, np.ndarray], change: str) -> dict[str, np.ndarray] | None:
    """Return the arrays of a file after a change; None for one that is not of arrays."""
    main = "scores" if "scores" in arrays else "rows"
    rows = arrays[main]
    others = {"one row": rows[:1], "no row": rows[:0]}
    if change in others:
        return {**arrays, main: others[change]}
    if change == "without its rows":
        return {name: array for name, array in arrays.items() if name != main}
    if change == "without its other arrays":
        return {"name": arrays["name"], main: rows}
    if change == "of another name":
        return {**arrays, "name": np.array("other")}
    return None


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) * 3 // 4],
    "flipped": lambda data: data[:200] + bytes([data[200] ^ 255]) + data[201:],
    "text": lambda data: b"words",
    "huge": lambda data: data.replace(b"'shape': (", b"'shape': (9" * 1),
}
CHANGES = [
    *CUTS,
    "one row",
    "no row",
    "without its rows",
    "without its other arrays",
    "of another name",
]


def damage_file(path: Path, change: str) -> None:
    if change in CUTS:
        path.write_bytes(CUTS[change](path.read_bytes()))
        return
    with np.load(path) as data:
        arrays = changed({name: data[name] for name in data.files}, change)
    assert arrays is not None
    np.savez(path, **arrays)  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [0, 5])
def test_damaged_files_of_embeddings_are_computed_again_in_the_same_run(
    first: int, made: dict[bool, Made], tmp_path: Path
) -> None:
    store, grid = copied(made[False][0], tmp_path / "store"), made[False][1]
    with Store(store) as opened:
        before = content(opened)
        paths = sorted((store / "embeddings").rglob("*.npz"))
        assert len(paths) > 5
        for number, path in enumerate(paths, start=first):  # each in another way
            change = CHANGES[number % len(CHANGES)]
            with np.load(path) as data:
                alone = set(data.files) == {"name", "rows"}
            if not (alone and change == "without its other arrays"):  # anchors have no others
                damage_file(path, change)
        with closing(sqlite3.connect(store / "rows.sqlite")) as db, db:
            db.execute("DELETE FROM rows")
        outcome = run(grid, opened)
        assert (outcome.computed, outcome.errors) == (outcome.cells, 0)
        assert content(opened) == before


@pytest.mark.parametrize("first", [0, 6])
def test_damaged_scores_of_rows_are_left_out_of_the_report_and_computed_again(
    first: int, made: dict[bool, Made], tmp_path: Path
) -> None:
    store, grid = copied(made[True][0], tmp_path / "store"), made[True][1]
    changes = [*CHANGES, "gone"][first : first + 6]
    paths = sorted((store / "scores").rglob("*.npz"))
    for path, change in zip(paths, changes, strict=False):
        if change == "gone":
            path.unlink()
        else:
            damage_file(path, change)
    with Store(store) as opened:
        before = content(opened)
        report.write_report(opened, tmp_path / "report.md")
        assert "its outcomes or scores are not those of its clips" in opened.damage_in_words
        assert len(opened.damage) == len(changes)
        assert run(grid, opened).computed == len(changes)
        assert content(opened) == before
        opened.damage.clear()
        report.write_report(opened, tmp_path / "report.md")
        assert not opened.damage


@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.text() | st.lists(st.none() | st.floats() | st.text()))
def test_a_key_is_a_condition_or_an_error_of_ours(key: object) -> None:
    text = key if isinstance(key, str) else json.dumps(key)
    with pytest.raises(DriftscoreError):
        read_key(Cell, text)
    with pytest.raises(DriftscoreError):
        read_key(Condition, text)
