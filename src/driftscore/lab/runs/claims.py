"""Who works on what: claims of jobs in the store's database.

A claim names its holder (host, process id, start of that process) and the time of its last beat.
It is void as soon as its holder has ended, which on the same machine is looked up: a process id
that another process has now is not the holder's. On another machine the beat decides: it is renewed
every `BEAT_S` seconds while the holder works, and a claim without a beat for `STALE_S` is void.
Work that is done twice because of that is harmless: files and rows are replaced by equal ones.
"""

import os
import socket
import sqlite3
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

BEAT_S = 10.0
STALE_S = 60.0
_MINE = "host = ? AND pid = ? AND started = ?"


@dataclass(frozen=True)
class Holder:
    """A process that works: its host, its id, and what tells it from others with this id."""

    host: str
    pid: int
    started: str

    @property
    def values(self) -> tuple[str, int, str]:
        """The holder as columns of the table `claims`."""
        return self.host, self.pid, self.started


def this_process() -> Holder:
    """Return the holder of the claims that are made here."""
    return _holder(os.getpid())


@lru_cache(maxsize=1)
def _holder(pid: int) -> Holder:
    return Holder(socket.gethostname(), pid, start_of(pid))


def take(db: sqlite3.Connection, name: str) -> bool:
    """Claim a name inside a transaction; return False if another running process has it."""
    me = this_process()
    if is_held(db, name):
        return False
    db.execute("DELETE FROM claims WHERE name = ?", (name,))
    db.execute(
        "INSERT INTO claims (name, host, pid, started, at) VALUES (?, ?, ?, ?, ?)",
        (name, *me.values, time.time()),
    )
    return True


def give_up(db: sqlite3.Connection, name: str) -> None:
    """Delete the claim of this process to a name."""
    values = (name, *this_process().values)
    db.execute(f"DELETE FROM claims WHERE name = ? AND {_MINE}", values)  # noqa: S608 (our own)


def is_held(db: sqlite3.Connection, name: str) -> bool:
    """Return whether a running process other than this one has claimed a name."""
    query = "SELECT host, pid, started, at FROM claims WHERE name = ?"
    return any(_is_valid(*claim) for claim in db.execute(query, (name,)).fetchall())


def _is_valid(host: object, pid: object, started: object, at: object) -> bool:
    """Return whether a claim is that of a running process other than this one."""
    me = this_process()
    if not (isinstance(host, str) and isinstance(pid, int) and isinstance(started, str)):
        return False
    if not isinstance(at, int | float) or abs(time.time() - at) > STALE_S:
        return False
    if (host, pid, started) == me.values:
        return False
    if host == me.host and _machine(started) == _machine(me.started):
        return _runs(pid, started)
    return True


def _runs(pid: int, started: str) -> bool:
    """Return whether a process of this machine is still running."""
    if started:
        return start_of(pid) == started
    if os.name == "nt":  # signal 0 would end the process: the beat decides
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it belongs to another user
        return True
    return True


def start_of(pid: int) -> str:
    """Return the machine since it was started, and when on it a process was started.

    Empty if the process has ended, or where the system does not tell (it does on Linux).
    """
    try:
        about = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = about.rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        space = Path("/proc/self/ns/pid").readlink()
    except (OSError, ValueError):
        return ""
    if len(fields) < 20 or fields[0] in "ZX":  # it has ended, and its parent has not noticed yet
        return ""
    return f"{boot} {space} {fields[19]}"


def _machine(started: str) -> str:
    return started.rpartition(" ")[0]


class Heartbeat:
    """A thread that renews the claims of this process; it never ends a run."""

    def __init__(self, database: Path) -> None:
        self._database = database.absolute()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="claims", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for it."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        while not self._stopped.wait(BEAT_S):
            # mode=rw: a store that was deleted is not made again.
            where = f"file:{quote(str(self._database))}?mode=rw"
            with (
                suppress(sqlite3.Error, OSError),
                closing(sqlite3.connect(where, uri=True, timeout=5, isolation_level=None)) as db,
            ):
                values = (time.time(), *this_process().values)
                db.execute(f"UPDATE claims SET at = ? WHERE {_MINE}", values)  # noqa: S608
