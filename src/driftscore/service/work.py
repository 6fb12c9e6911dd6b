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

from starlette.exceptions import HTTPException

Answer = TypeVar("Answer")
_MAX_WAIT_S = 60
_WEIGHT = 0.1
"""Of the last duration in the running mean."""


class BusyError(HTTPException):
    """Work that is refused for now; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(503, message, {"Retry-After": str(retry_after)})


class WorkQueue:
    """Threads with a bounded queue; `run` is called from one event loop."""

    def __init__(self, *, workers: int, waiting: int) -> None:
        self.workers = workers
        self.max_waiting = waiting
        self.admitted = 0
        """Requests that run or wait."""
        self.mean_s = 0.1
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(workers, "driftscore-service")

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return max(0, self.admitted - self.workers)

    @property
    def retry_after(self) -> int:
        """Seconds after which a refused client should try again."""
        expected = self.mean_s * (self.waiting + 1) / self.workers
        return max(1, min(_MAX_WAIT_S, math.ceil(expected)))

    def check_room(self) -> None:
        """Refuse work if too much of it waits already."""
        if self.admitted >= self.workers + self.max_waiting:
            raise BusyError(
                f"The service is busy: {self.admitted} requests are in work; try again in "
                f"{self.retry_after} s",
                self.retry_after,
            )

    async def run(self, function: Callable[[], Answer]) -> Answer:
        """Run a function in a thread when it is its turn; refuse it if too many wait already."""
        self.check_room()

        def timed() -> Answer:
            start = time.perf_counter()
            try:
                return function()
            finally:
                self.mean_s += _WEIGHT * (time.perf_counter() - start - self.mean_s)

        def release(_: object) -> None:
            with self._lock:
                self.admitted -= 1

        with self._lock:
            self.admitted += 1
        future = self._pool.submit(timed)
        # Counted until the thread is done, even if the client has gone meanwhile.
        future.add_done_callback(release)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Drop what waits and let the rest finish; after this nothing may be run."""
        self._pool.shutdown(wait=True, cancel_futures=True)
