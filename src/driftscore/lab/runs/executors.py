"""Executors: where the jobs of a run are performed: this process, several, or a Ray cluster."""

import multiprocessing
import secrets
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Protocol

from driftscore.engines._ray_tasks import Lost, connected, run_tasks
from driftscore.errors import UsageError, WorkerError, unknown
from driftscore.lab.runs.jobs import Job, JobResult, perform, perform_remotely
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.workers import start_worker, work

ENGINES = ("local", "ray")


class Executor(Protocol):
    """Performs jobs; entered once per run."""

    def __enter__(self) -> "Executor":
        """Start what is needed."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop it; at once if there is an error."""

    def perform(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobResult]]:
        """Yield each job with its result, as they are done."""


def open_executor(engine: str, workers: int, store: Store, address: str | None) -> Executor:
    """Return the executor of an engine: "local", with so many workers, or "ray"."""
    if workers < 1:
        raise UsageError(f"workers must be at least 1, got {workers}")
    if engine == "ray":
        if workers > 1:
            raise UsageError("A Ray cluster has as many workers as cores; leave out the number")
        return ClusterExecutor(store, address)
    if engine != "local":
        raise unknown("engine", engine, ENGINES)
    return SerialExecutor() if workers == 1 else ProcessExecutor(workers)


class SerialExecutor:
    """Executor that performs one job at a time in this process."""

    def __enter__(self) -> "SerialExecutor":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        pass

    def perform(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobResult]]:
        """Yield each job with its result."""
        for job in jobs:
            yield job, perform(job)


class ProcessExecutor:
    """Executor with several processes, spawned so that no thread or generator is inherited.

    They end with this process, however it ends (see `workers`).
    """

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.watched, self.held = context.Pipe(duplex=False)
        self.pool = ProcessPoolExecutor(
            workers, mp_context=context, initializer=start_worker, initargs=(self.watched,)
        )

    def __enter__(self) -> "ProcessExecutor":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # stopped: what is in work is computed by the next run
            self.held.close()
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.held.close()
        self.watched.close()

    def perform(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobResult]]:
        """Yield each job with its result, as they are done."""
        try:
            with _no_interrupts():  # a Ctrl-C is for this process, not for one that is starting
                waiting: dict[Future[JobResult], Job] = {
                    self.pool.submit(work, job): job for job in jobs
                }
            while waiting:
                finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield waiting.pop(future), future.result()
        except BrokenProcessPool as error:
            raise WorkerError(
                "A worker process ended unexpectedly (killed, or out of memory); what it finished "
                "is stored. Run the same command again, perhaps with fewer workers"
            ) from error


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


class ClusterExecutor:
    """Executor that performs jobs on a Ray cluster; this process claims them and stores rows."""

    def __init__(self, store: Store, address: str | None) -> None:
        self.store = store
        self.connection: AbstractContextManager[object] = connected(address)
        self.run = secrets.token_hex(8)

    def __enter__(self) -> "ClusterExecutor":
        self.connection.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.connection.__exit__(kind, *error)  # type: ignore[arg-type]

    def perform(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobResult]]:
        """Yield each job with its result, as they are done; by then it is stored."""
        claimed_elsewhere: list[Job] = []

        def claimed() -> Iterator[Job]:
            for job in jobs:
                if self.store.claim(job.claim):
                    yield job
                else:
                    claimed_elsewhere.append(job)

        for job, found in run_tasks(partial(perform_remotely, run=self.run), claimed()):
            if isinstance(found, Lost):
                why = f"{job.condition.title}: every worker that had it was lost ({found.reason})"
                result = JobResult(errors=1, notes=[why])
            else:
                result, tables = found
                self.store.merge(tables)
            self.store.release(job.claim)
            yield job, result
        for job in claimed_elsewhere:
            yield job, JobResult(blocked=job.claim)
