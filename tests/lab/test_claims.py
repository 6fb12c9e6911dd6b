"""Claims: the holder is a running process, not a process id; a dead host never blocks a job."""

import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from driftscore.lab.runs import claims
from driftscore.lab.runs.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Another process that runs, on this machine."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    assert process.stdin
    process.stdin.close()


def put(
    store: Store, *, host: object = "", pid: object = 1, started: object = "", age_s: float = 0.0
) -> None:
    """Put a claim to "job" into the database."""
    with closing(sqlite3.connect(store.home / "rows.sqlite")) as db, db:
        db.execute(
            "INSERT OR REPLACE INTO claims (name, host, pid, started, at) VALUES (?, ?, ?, ?, ?)",
            ("job", host or socket.gethostname(), pid, started, time.time() - age_s),
        )


def start_of(process: subprocess.Popen[bytes]) -> str:
    found = claims.start_of(process.pid)
    if not found:
        pytest.skip("NOT RUN: this system does not tell when a process was started")
    return found


def test_a_claim_of_a_running_process_holds_until_it_ends(
    store: Store, other: subprocess.Popen[bytes]
) -> None:
    put(store, pid=other.pid, started=start_of(other))
    assert store.is_claimed("job")
    assert not store.claim("job")
    other.kill()
    other.wait()
    assert not store.is_claimed("job")
    assert store.claim("job")


def test_a_process_that_ended_but_is_not_yet_reaped_holds_nothing(
    store: Store, other: subprocess.Popen[bytes]
) -> None:
    put(store, pid=other.pid, started=start_of(other))
    other.kill()
    deadline = time.monotonic() + 10
    while claims.start_of(other.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert store.claim("job")


def test_a_process_id_that_another_process_has_now_does_not_hold(
    store: Store, other: subprocess.Popen[bytes]
) -> None:
    machine, _, ticks = start_of(other).rpartition(" ")
    put(store, pid=other.pid, started=f"{machine} {int(ticks) - 1}")
    assert store.claim("job")


def test_a_claim_of_another_host_holds_while_its_heart_beats(store: Store) -> None:
    put(store, host="far away", started="boot space 1", age_s=claims.STALE_S - 5)
    assert not store.claim("job")
    put(store, host="far away", started="boot space 1", age_s=claims.STALE_S + 5)
    assert store.claim("job")


def test_a_clock_that_is_ahead_does_not_hold_for_long(store: Store) -> None:
    put(store, host="far away", started="boot space 1", age_s=-3600)
    assert store.claim("job")


def test_a_stopped_process_holds_for_a_minute_only(
    store: Store, other: subprocess.Popen[bytes]
) -> None:
    put(store, pid=other.pid, started=start_of(other), age_s=claims.STALE_S + 5)
    assert store.claim("job")


@pytest.mark.parametrize(
    "values",
    [{"pid": None}, {"pid": "words"}, {"started": None}, {"started": 3}, {"host": b"\xff"},
     {"pid": 2**62, "started": ""}, {"pid": -5}],
    ids=str,
)  # fmt: skip
def test_foreign_values_in_a_claim_never_end_a_run(store: Store, values: dict[str, object]) -> None:
    put(store, age_s=claims.STALE_S + 1, **values)
    assert store.claim("job")
    put(store, **values)  # type: ignore[arg-type]
    store.claim("job")


def test_only_the_holder_gives_up_a_claim(store: Store) -> None:
    put(store, host="far away", started="boot space 1")
    store.release("job")
    assert store.is_claimed("job")
    assert store.claim("mine")
    assert store.claim("mine")  # its own
    assert not store.is_claimed("mine")
    store.release("mine")
    count = store._db.execute("SELECT count(*) FROM claims WHERE name = 'mine'").fetchone()
    assert count == (0,)


def test_the_heart_beats_while_a_claim_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "BEAT_S", 0.02)
    with Store(tmp_path / "a store?#%") as store:
        store.claim("job")
        query = "SELECT at FROM claims WHERE name = 'job'"
        first = store._db.execute(query).fetchone()
        deadline = time.monotonic() + 10
        while store._db.execute(query).fetchone() == first and time.monotonic() < deadline:
            time.sleep(0.01)
        assert store._db.execute(query).fetchone() > first


def test_a_store_that_was_deleted_is_not_made_again_by_the_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "BEAT_S", 0.01)
    with Store(tmp_path / "store") as store:
        store.claim("job")
        for path in (tmp_path / "store").iterdir():
            path.unlink()
        time.sleep(0.1)
        assert not (tmp_path / "store" / "rows.sqlite").exists()


def test_claims_of_earlier_versions_are_dropped_and_the_rows_kept(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add_cost("fake", 10, 2.0)
        store._db.execute("DROP TABLE claims")
        store._db.execute(
            "CREATE TABLE claims (name TEXT PRIMARY KEY, host TEXT, pid INTEGER, at REAL)"
        )
        held = ("job", socket.gethostname(), os.getppid(), time.time())
        store._db.execute("INSERT INTO claims VALUES (?, ?, ?, ?)", held)
        store._db.execute("PRAGMA user_version = 1")
    with Store(tmp_path) as store:
        assert store.claim("job")
        assert store.clip_costs() == {"fake": 0.2}
