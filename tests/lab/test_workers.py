"""Workers end with their run, however it ends; several runs on one store all finish."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from driftscore.errors import StoreError
from driftscore.lab.conditions import clean_condition
from driftscore.lab.runs import embedding, jobs, runner
from driftscore.lab.runs.executors import open_executor
from driftscore.lab.runs.jobs import Job
from driftscore.lab.runs.runner import run
from driftscore.lab.runs.store import Store

from .small_lab import build, content, quick, small_grid

PROC = Path("/proc")
LONG = """
import sys, time
from driftscore.lab.runs.executors import open_executor
from driftscore.lab.runs.jobs import Job
from driftscore.lab.conditions import clean_condition

class Slow(Job):
    '''A job that writes a file and then takes for ever.'''
    def clips(self):
        from pathlib import Path
        from driftscore.storage.files import replacing
        with replacing(Path(self.store) / f"result-{self.chunk}.npz") as partial:
            partial.write_text("half")
            time.sleep(600)

from driftscore.system.process import Interrupted, interruptible
if __name__ == "__main__":
    try:
        with interruptible(), open_executor("local", 2) as executor:
            condition = clean_condition("d", "", 0, "fake", "")
            jobs = [Slow("detect", "", sys.argv[1], condition, {}, chunk=n) for n in range(4)]
            print(list(executor(jobs)))
    except Interrupted as error:
        sys.exit(error.status)
"""


def children(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    found = []
    for listed in PROC.glob(f"{pid}/task/*/children"):
        for child in map(int, listed.read_text().split()):
            found += [child, *children(child)]
    return found


def is_running(pid: int) -> bool:
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def waited(condition: object, seconds: float = 120) -> bool:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def working(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run whose two workers are in the middle of writing a file."""
    if not PROC.is_dir():
        pytest.skip("NOT RUN: no /proc to look for processes in")
    script = tmp_path / "slow.py"
    script.write_text(LONG)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "rows.sqlite").touch()
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "store")],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # if the suite ignores it
    )
    yield process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # the workers as well, if a test fails
    process.wait()
    assert process.stderr
    process.stderr.close()


@pytest.mark.parametrize(
    ("number", "group"),
    [
        (signal.SIGTERM, False),
        (signal.SIGKILL, False),
        (signal.SIGINT, True),
        (signal.SIGTERM, True),
    ],
)
def test_no_worker_and_no_half_file_is_left_when_a_run_is_ended(
    number: signal.Signals, group: bool, working: subprocess.Popen[str], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    assert waited(lambda: len(list(store.glob(".driftscore-*"))) == 2)
    workers = children(working.pid)
    assert len(workers) >= 2
    (os.killpg if group else os.kill)(working.pid, number)
    assert working.wait(timeout=120) == (-9 if number == signal.SIGKILL else 128 + number)
    assert waited(lambda: not any(map(is_running, workers)))
    assert not list(store.glob("*.npz"))
    assert not list(store.glob(".driftscore-*"))
    assert working.stderr
    assert "Traceback" not in working.stderr.read()


class Sleep(Job):
    """A job that takes a minute."""

    def clips(self) -> Any:
        time.sleep(60)


def test_an_error_ends_the_workers_at_once(tmp_path: Path) -> None:
    (tmp_path / "rows.sqlite").touch()
    started, condition = time.monotonic(), clean_condition("d", "", 0, "fake", "")
    jobs_ = [
        Sleep("detect", "", str(tmp_path), condition, {}),
        Job("embed", "", str(tmp_path / "elsewhere"), condition, {}),
    ]
    with (
        pytest.raises(StoreError, match="There is no store"),
        open_executor("local", 2) as executor,
    ):
        list(executor(jobs_))
    assert time.monotonic() - started < 50


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    quick(monkeypatch)
    return build(tmp_path / "home")


@pytest.mark.slow
def test_three_runs_at_once_all_finish_and_leave_no_row_with_an_error(
    home: Path, tmp_path: Path
) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from driftscore.lab.runs import embedding\n"
        "embedding.ANCHORS, embedding.ANCHOR_S, embedding.CHUNK = 4, 1.0, 5\n"
        "from driftscore.lab.runs.runner import run\n"
        "from driftscore.lab.runs.store import Store\n"
        "from small_lab import small_grid\n"
        f"grid = small_grid(Path({str(home)!r}), rules=['cosine', 'das', 'zs_audio', 'tgap'])\n"
        "done = run(grid, Store(sys.argv[1]))\n"
        "assert done.computed + done.already == done.cells, done\n"
        "sys.exit(bool(done.errors))\n"
    )
    folder = tmp_path / "store"
    runs = [subprocess.Popen([sys.executable, "-c", script, str(folder)]) for _ in range(3)]
    assert [process.wait(timeout=300) for process in runs] == [0, 0, 0]
    grid = small_grid(home, rules=["cosine", "das", "zs_audio", "tgap"])
    with Store(folder) as store, Store(tmp_path / "alone") as alone:
        assert run(grid, store).computed == 0
        run(grid, alone)
        assert content(store) == content(alone)
        assert not [row for row in store.rows() if row.error]


def test_a_run_waits_for_the_anchors_of_another_one(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run holds the claim for a while; then it ends, without having embedded them."""
    looked: list[str] = []

    def held(store: Store, *names: str) -> bool:
        if any(name.startswith("anchors") for name in names):
            looked.extend(names)
            return len(looked) > 8 and claim(store, *names)
        return claim(store, *names)

    claim, said = Store.claim, list[str]()
    monkeypatch.setattr(Store, "claim", held)
    monkeypatch.setattr(runner, "POLL_S", 0.0)
    grid = small_grid(home, rules=["cosine", "zs_audio"], snrs="[0]")
    with Store(tmp_path / "store") as store:
        outcome = run(grid, store, report=said.append)
        assert (outcome.computed, outcome.errors) == (4, 0)
        assert not [row for row in store.rows() if row.error]
    assert len(looked) > 8
    assert any("Waiting for another run" in line for line in said)


def test_a_job_of_another_run_that_did_it_meanwhile_is_not_done_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = small_grid(home, rules=["cosine", "das"], snrs="[0]")
    with Store(tmp_path / "store") as store, Store(tmp_path / "store") as theirs:
        original = jobs.parts_of

        def meanwhile(*arguments: Any) -> Iterator[Job]:
            monkeypatch.setattr(runner, "parts_of", original)
            run(grid, theirs)
            return original(*arguments)

        monkeypatch.setattr(runner, "parts_of", meanwhile)
        outcome = run(grid, store)
        assert (outcome.computed, outcome.already, outcome.cells) == (0, 4, 4)


def test_a_chunk_is_as_large_as_what_is_left() -> None:
    assert embedding.chunk_sizes(450) == [200, 200, 50]
