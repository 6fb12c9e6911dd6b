"""A worker process of a run: it performs jobs, and ends with the process that started it.

Each worker waits, in a thread of its own, for the end of a pipe whose other end only the run has
open. The system closes it when the run ends for any reason, SIGKILL included; the run closes it
when it stops early. The worker then leaves its job, which removes what was half written, and exits.
"""

import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from types import FrameType

from driftscore.interrupts import Interrupted
from driftscore.lab.runs.jobs import Job, JobResult, perform

GRACE_S = 5.0
"""How long a worker may take to leave its job."""

_working = threading.Event()


def start_worker(run: "Connection[object, object]") -> None:
    """Prepare a new process: Ctrl-C is a matter of the run, whose end of the pipe is watched."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # blocked by the run while it started this process
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_watch, args=(run,), name="watch", daemon=True).start()


def work(job: Job) -> JobResult:
    """Perform a job in a worker."""
    _working.set()
    try:
        return perform(job)
    except Interrupted as error:
        os._exit(error.status)
    finally:
        _working.clear()


def _watch(run: "Connection[object, object]") -> None:
    with suppress(EOFError, OSError):
        run.recv_bytes()  # nothing is ever sent: it returns when the other end is closed
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(128 + signal.SIGTERM)


def _leave(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough: cleaning up has begun
    if not _working.is_set():
        os._exit(128 + number)
    raise Interrupted(number)
