"""The thread that reads a source: it puts blocks into the queue and opens the source again.

After a failure it waits one second, twice as long after each further one, at most a minute. Half a
minute of audio is a healthy spell, after which the wait is short again.
"""

import threading
import time
from collections.abc import Callable

from driftscore.errors import DriftscoreError, MissingExtraError, UsageError
from driftscore.live.blocks import AudioBlock, BlockQueue
from driftscore.live.sources import Source

FIRST_WAIT_S, LONGEST_WAIT_S, HEALTHY_S = 1.0, 60.0, 30.0
_REPORT_S = 10.0
"""Dropped audio is reported this often at most."""
OnStatus = Callable[[bool, str], None]
"""Called with whether the source gives audio, and if not, why."""


class Backoff:
    """How long to wait before a source is opened again."""

    def __init__(self) -> None:
        self._wait_s = FIRST_WAIT_S
        self._healthy_s = 0.0

    def healthy(self, seconds: float) -> None:
        """Count audio that came; after enough of it the next wait is short again."""
        self._healthy_s += seconds
        if self._healthy_s >= HEALTHY_S:
            self._wait_s = FIRST_WAIT_S

    def failed(self) -> float:
        """Return the seconds to wait now; the next wait is twice as long."""
        now, self._wait_s = self._wait_s, min(2 * self._wait_s, LONGEST_WAIT_S)
        self._healthy_s = 0.0
        return now


class SourceReader:
    """Reads one source until it ends or is stopped."""

    def __init__(
        self,
        source: Source,
        queue: BlockQueue,
        *,
        on_status: OnStatus,
        notify: Callable[[str], None],
    ) -> None:
        self._source = source
        self._queue = queue
        self._on_status = on_status
        self._notify = notify
        self._end: float | None = None  # of the last block
        self._last = 0.0  # when it came
        self._dropped_s, self._reported = 0.0, 0.0
        self._backoff = Backoff()
        self._hopeless = False
        self.error = ""
        """Why the source ended, if it failed and is not opened again."""

    def run(self, stop: threading.Event) -> None:
        """Read until the source ends or `stop` is set; then close the queue."""
        try:
            while not stop.is_set():
                why = self._read(stop)
                if stop.is_set():
                    break
                if not why:
                    self._on_status(False, "ended")
                    break
                self._on_status(False, why)
                if self._hopeless or not self._source.endless:
                    self.error = why
                    break
                wait_s = self._backoff.failed()
                self._notify(f"{why}; opening it again in {wait_s:g} s")
                stop.wait(wait_s)
        finally:
            self._report_dropped(always=True)
            self._queue.close()

    def _read(self, stop: threading.Event) -> str:
        """Read the source once; return why it ended, empty if its audio is over."""
        first = True
        try:
            for block in self._source.blocks(stop):
                if first:
                    self._on_status(True, "")
                self._put(block, stop, reopened=first)
                first = False
        except DriftscoreError as error:
            self._hopeless = isinstance(error, (MissingExtraError, UsageError))
            return str(error)
        return "" if not self._source.endless else f"{self._source.describe()} has ended"

    def _put(self, block: AudioBlock, stop: threading.Event, *, reopened: bool) -> None:
        self._backoff.healthy(block.seconds)
        if reopened and self._end is not None:
            missing = max(0.0, block.at - self._end, time.monotonic() - self._last)
            block = AudioBlock(block.samples, block.rate, block.at, missing)
        self._end, self._last = block.at + block.seconds, time.monotonic()
        self._dropped_s += self._queue.put(block, stop, wait=self._source.waits)
        self._report_dropped()

    def _report_dropped(self, *, always: bool = False) -> None:
        now = time.monotonic()
        if self._dropped_s and (always or now - self._reported > _REPORT_S):
            self._notify(
                f"{self._source.describe()}: falling behind; the oldest {self._dropped_s:.1f} s of "
                "audio were dropped"
            )
            self._dropped_s, self._reported = 0.0, now
