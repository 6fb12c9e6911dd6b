"""A bounded queue of work: some requests run, some wait, and one more is refused at once.

Decoding, embedding and the compilation of heads run in its threads; the event loop only waits. A
refusal says after how many seconds to try again, from how long work has taken lately.
"""

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

from driftscore.errors import DriftscoreError

Answer = TypeVar("Answer")
_LONGEST_WAIT_S = 60
_WEIGHT = 0.1
"""Of the last duration in the running mean."""


class BusyError(DriftscoreError):
    """Work that is refused for now; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class WorkQueue:
    """Threads with a bounded queue; `run` is called from one event loop."""

    def __init__(self, *, workers: int, waiting: int) -> None:
        self.workers = workers
        self.most_waiting = waiting
        self.admitted = 0
        """Requests that run or wait."""
        self.mean_s = 0.1
        self._closed = False
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(workers, "driftscore-service")

    @property
    def running(self) -> int:
        """How many requests are in work."""
        return min(self.admitted, self.workers)

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return max(0, self.admitted - self.workers)

    @property
    def retry_after(self) -> int:
        """Seconds after which a refused client should try again."""
        expected = self.mean_s * (self.waiting + 1) / self.workers
        return max(1, min(_LONGEST_WAIT_S, math.ceil(expected)))

    def check_room(self) -> None:
        """Refuse work if too much of it waits already, or if the queue is closed."""
        if self._closed:
            raise BusyError("The service is shutting down; try again in a moment")
        if self.admitted >= self.workers + self.most_waiting:
            raise BusyError(
                f"The service is busy: {self.admitted} requests are in work; try again in "
                f"{self.retry_after} s",
                self.retry_after,
            )

    async def run(self, function: Callable[[], Answer]) -> Answer:
        """Run a function in a thread when it is its turn; refuse it if too many wait already."""
        self.check_room()
        with self._lock:
            self.admitted += 1
        future = self._pool.submit(self._timed, function)
        # Counted until the thread is done, even if the client has gone meanwhile.
        future.add_done_callback(self._release)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Take no more work, drop what waits and let the rest finish."""
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _release(self, _: object) -> None:
        with self._lock:
            self.admitted -= 1

    def _timed(self, function: Callable[[], Answer]) -> Answer:
        start = time.perf_counter()
        try:
            return function()
        finally:
            self.mean_s += _WEIGHT * (time.perf_counter() - start - self.mean_s)
