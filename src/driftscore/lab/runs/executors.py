"""Executors: where the jobs of a run are performed: this process, several, or a Ray cluster.

Jobs are taken from their iterator only as they can be performed, so that several runs share them.

A worker process ends with the run that started it. It waits, in a thread of its own, for the end of
a pipe whose other end only the run has open. The system closes it when the run ends for any reason,
SIGKILL included; the run closes it when it stops early. The worker then leaves its job, which
removes what was half written, and exits.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing.connection import Connection

from driftscore.engines.ray_tasks import Lost, connected, run_tasks
from driftscore.errors import UsageError, WorkerError, unknown
from driftscore.lab.runs.jobs import Job, perform
from driftscore.lab.runs.store import Entries
from driftscore.system.process import Interrupted, interruptible

ENGINES = ("local", "ray")
GRACE_S = 5.0
"""How long a worker may take to leave its job."""

Executor = Callable[[Iterable[Job]], Iterator[tuple[Job, Entries]]]
"""Performs jobs; yields each with what it returns, as they are done."""


@contextmanager
def open_executor(engine: str, workers: int, address: str | None = None) -> Iterator[Executor]:
    """Yield the executor of an engine: "local", with so many workers, or "ray"."""
    if workers < 1:
        raise UsageError(f"workers must be at least 1, got {workers}")
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if engine == "ray":
        if workers > 1:
            raise UsageError("A Ray cluster has as many workers as cores; leave out the number")

        def on_ray(jobs: Iterable[Job]) -> Iterator[tuple[Job, Entries]]:
            for job, result in run_tasks(perform, jobs):
                if isinstance(result, Lost):
                    why = f"{job.condition.title}: every worker that had it was lost"
                    result = Entries(notes=[f"{why} ({result.reason})"], lost=True)
                yield job, result

        with connected(address):
            yield on_ray
    elif workers == 1:
        yield lambda jobs: ((job, perform(job)) for job in jobs)
    else:
        with _processes(workers) as executor:
            yield executor


@contextmanager
def _processes(workers: int) -> Iterator[Executor]:
    """Yield an executor with several processes, spawned so that no thread is inherited."""
    context = multiprocessing.get_context("spawn")
    watched, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_start_worker, initargs=(watched,)
    )

    def executor(jobs: Iterable[Job]) -> Iterator[tuple[Job, Entries]]:
        waiting, submitted = iter(jobs), dict[Future[Entries], Job]()
        try:
            while True:
                for job in islice(waiting, 2 * workers - len(submitted)):
                    with _no_interrupts():  # a Ctrl-C is for this process, not for a starting one
                        submitted[pool.submit(_work, job)] = job
                if not submitted:
                    return
                finished, _ = wait(submitted, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield submitted.pop(future), future.result()
        except BrokenProcessPool as error:
            raise WorkerError(
                "A worker process ended unexpectedly (killed, or out of memory); what it finished "
                "is stored. Run the same command again, perhaps with fewer workers"
            ) from error

    try:
        yield executor
    except BaseException:
        held.close()  # stopped: what is in work is computed by the next run
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        held.close()
        watched.close()


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block; processes that are started in it never get one."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(run: "Connection[object, object]") -> None:
    """Prepare a new process: Ctrl-C is a matter of the run, whose end of the pipe is watched."""

    def watch() -> None:
        with suppress(EOFError, OSError):
            run.recv_bytes()  # nothing is ever sent: it returns when the other end is closed
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_S)
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):  # blocked by the run while it started this process
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=watch, name="watch", daemon=True).start()


def _work(job: Job) -> Entries:
    """Perform a job in a worker; SIGTERM leaves it, without a half-written file."""
    try:
        with interruptible():
            return perform(job)
    except Interrupted as error:
        os._exit(error.status)
