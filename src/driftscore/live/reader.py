"""The thread that reads a source: it puts blocks into the queue and opens the source again.

After a failure it waits one second, twice as long after each further one, at most a minute. Half a
minute of audio is a healthy spell, after which the wait is short again.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from driftscore.errors import DriftscoreError, MissingExtraError, UsageError
from driftscore.live.blocks import BlockQueue
from driftscore.live.sources import Source

FIRST_WAIT_S, MAX_WAIT_S, HEALTHY_S = 1.0, 60.0, 30.0
_REPORT_S = 10.0
"""Dropped audio is reported this often at most."""


@dataclass(eq=False)
class SourceReader:
    """Reads one source until it ends or is stopped."""

    source: Source
    queue: BlockQueue
    on_status: Callable[[bool, str], None]
    """Called with whether the source gives audio, and if not, why."""
    notify: Callable[[str], None]
    first_wait_s: float = FIRST_WAIT_S
    error: str = ""
    """Why the source ended, if it failed and is not opened again."""
    _dropped_s: float = 0.0
    _reported: float = 0.0

    def run(self, stop: threading.Event) -> None:
        """Read until the source ends or `stop` is set; then close the queue."""
        source, wait_s, healthy_s = self.source, self.first_wait_s, 0.0
        end: float | None = None  # of the last block
        last = 0.0  # when it came
        try:
            while not stop.is_set():
                why, reopened, again = "", True, source.endless
                try:
                    for block in source.blocks(stop):
                        if reopened:
                            reopened = False
                            self.on_status(True, "")
                            if end is not None:
                                missing = max(0.0, block.at - end, time.monotonic() - last)
                                block = replace(block, gap_s=missing)
                        healthy_s += block.seconds
                        if healthy_s >= HEALTHY_S:
                            wait_s = self.first_wait_s
                        end, last = block.at + block.seconds, time.monotonic()
                        self._dropped_s += self.queue.put(block, stop, wait=source.waits)
                        self._report_dropped()
                    if source.endless:
                        why = f"{source.describe()} has ended"
                except DriftscoreError as error:
                    why = str(error)
                    again = again and not isinstance(error, (MissingExtraError, UsageError))
                if stop.is_set():
                    break
                self.on_status(False, why or "ended")
                if not again:
                    self.error = why
                    break
                self.notify(f"{why}; opening it again in {wait_s:g} s")
                stop.wait(wait_s)
                wait_s, healthy_s = min(2 * wait_s, MAX_WAIT_S), 0.0
        finally:
            self._report_dropped(always=True)
            self.queue.close()

    def _report_dropped(self, *, always: bool = False) -> None:
        now = time.monotonic()
        if self._dropped_s and (always or now - self._reported > _REPORT_S):
            self.notify(
                f"{self.source.describe()}: falling behind; the oldest {self._dropped_s:.1f} s of "
                "audio were dropped"
            )
            self._dropped_s, self._reported = 0.0, now
