import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftscore.errors import DriftscoreError, StoreError
from driftscore.lab.conditions import Cell, Condition, Row, Scoring
from driftscore.lab.metrics import Interval
from driftscore.lab.runs.store import COLUMNS, Entries, Store

CONDITION = Condition("esc50", "d", 0, "musan", "n", "additive", 0.0, 1, "fake", "m")


def row(rule: str = "das", **values: Any) -> Row:
    return Row(Cell(CONDITION, Scoring(rule)), "accuracy", 0.5, 10, **values)


def test_rows_are_read_as_they_were_stored(tmp_path: Path) -> None:
    outcomes = np.array([0, 3, -1], np.int16)
    put = row(outcomes=outcomes, details={"fold_mean": 0.25}, gain=Interval(0.1, -0.1, 0.2))
    with Store(tmp_path) as store:
        store.put(Entries(rows=[put, row("cosine")]))
    with Store(tmp_path) as store:
        found = {r.cell.scoring.rule: r for r in store.rows()}
        assert set(store.done(CONDITION)) == {put.cell.key, row("cosine").cell.key}
    chosen = found["das"].outcomes
    assert chosen is not None
    assert chosen.tolist() == outcomes.tolist()
    assert found["das"].gain == put.gain
    assert found["das"].details == {"fold_mean": 0.25}
    assert found["das"].cell == put.cell


def test_arrays_are_found_by_their_name_and_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        assert store.get_arrays("embeddings", "a") is None
        store.put_arrays("embeddings", "a", {"rows": np.eye(3), "words": np.array(["x", ""])})
        found = store.get_arrays("embeddings", "a")
        assert found is not None
        assert found["rows"].tolist() == np.eye(3).tolist()
        assert found["words"].tolist() == ["x", ""]
        path = store.path("embeddings", "a")
        complete = path.read_bytes()
        for part in (b"", b"nonsense", complete[: len(complete) // 2]):
            path.write_bytes(part)
            assert store.get_arrays("embeddings", "a") is None
        path.write_bytes(complete)
        other = store.path("embeddings", "b")
        other.parent.mkdir(exist_ok=True)
        path.rename(other)
        assert store.get_arrays("embeddings", "b") is None  # it belongs to another name


def test_a_full_disk_is_reported_and_the_store_opens_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path) as store:
        store.put(Entries(rows=[row("cosine")]))

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(np, "savez", full)
            with pytest.raises(StoreError, match=r"No space left on device.*run the same command"):
                store.put_arrays("embeddings", "a", {"rows": np.eye(3)})
        assert not list(tmp_path.rglob("*.npz"))
        store._db.execute("PRAGMA max_page_count = 20")
        with pytest.raises(DriftscoreError, match=r"full.*Make room on the disk"):
            store.put(Entries(rows=[row(error="x" * 500_000)]))
        store._db.execute("PRAGMA max_page_count = 1000000")
        store.put(Entries(rows=[row("zs_text")]))
    with Store(tmp_path) as store:
        assert {r.cell.scoring.rule for r in store.rows()} == {"cosine", "zs_text"}
        assert store._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_several_processes_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    code = "import sys; from driftscore.lab.runs.store import Store; Store(sys.argv[1]).claim('x')"
    command = [sys.executable, "-c", code, str(tmp_path / "new")]
    assert [p.wait() for p in [subprocess.Popen(command) for _ in range(6)]] == [0] * 6


def test_a_store_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    (tmp_path / "rows.sqlite").write_text("this is not a database, but a text of some length" * 50)
    with pytest.raises(DriftscoreError, match="cannot be opened"):
        Store(tmp_path)


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_store_of_another_version_is_refused(version: int, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store._db.execute(f"PRAGMA user_version = {version}")
    said = f"has version {version}; this driftscore reads version 2. Use another folder"
    with pytest.raises(StoreError, match=said):
        Store(tmp_path)


def test_a_table_of_another_layout_is_one_sentence(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store._db.execute("ALTER TABLE rows DROP COLUMN outcomes")
        with pytest.raises(StoreError, match=r"cannot be read \(no such column: outcomes\)"):
            store.rows()


def test_the_tables_have_exactly_the_columns_that_are_read(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for table, columns in COLUMNS.items():
            info = store._db.execute(f"PRAGMA table_info({table})")
            assert tuple(column[1] for column in info) == columns


def test_entries_are_stored_completely_or_not_at_all(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        failure = (CONDITION, "dog.wav", "silent")
        store.put(Entries(rows=[row()], failures=[failure], costs=[("fake", 10, 1.0)]))
        store.put(Entries(costs=[("fake", 10, 3.0)]))
        with pytest.raises(StoreError):
            store.put(Entries(rows=[row("cosine")], costs=[("fake", 10, object())]))  # type: ignore[list-item]
    with Store(tmp_path) as store:
        assert [r.cell.scoring.rule for r in store.rows()] == ["das"]
        assert store.failures() == [failure]
        assert store.clip_costs() == {"fake": 0.2}


def test_a_claim_holds_until_it_is_given_up_or_its_process_ends(tmp_path: Path) -> None:
    code = (
        "import sys; from driftscore.lab.runs.store import Store\n"
        "store = Store(sys.argv[1]); print(store.claim('job'), flush=True); input()"
    )
    with Store(tmp_path) as store, Store(tmp_path) as other:
        assert store.claim("job")
        assert not store.claim("job")
        assert not other.claim("job")
        assert other.claim("another job")
        store.release("job")
        assert other.claim("job")
        other.release("job", "another job")
        assert not list(tmp_path.rglob("*.lock"))
        command = [sys.executable, "-c", code, str(tmp_path)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert not store.claim("job")
        process.kill()
        process.communicate()
        assert store.claim("job")
