"""Where a listener reports to, one file per output."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from driftscore.decisions.records import LiveReport
from driftscore.errors import DriftscoreError
from driftscore.live.outputs.delivery import Delivery

REPEAT_S, MAX_FAILURES = 3600.0, 100
"""How soon the same failure is reported again, and how many are remembered."""


class Output(Protocol):
    """Where events, levels and states go; called from the threads of sources, one at a time."""

    def send(self, report: LiveReport) -> None:
        """Take an event that began or ended, also a rejected one, a level, or a state."""

    def close(self) -> int | None:
        """Write what is left, stop, and return how many events could not be delivered."""


class Outputs:
    """Several outputs as one. One that fails is reported, and does not stop the others."""

    def __init__(self, outputs: Sequence[Output], notify: Callable[[str], None]) -> None:
        self._outputs = list(outputs)
        self.notify = notify
        """Shows a message to people."""
        self.undelivered = 0
        """Events that an output could not deliver, counted when it is closed."""
        self._failures: dict[str, float] = {}
        """What failed, and when that was last reported."""
        self._lock = threading.Lock()
        for output in self._outputs:
            if isinstance(output, Delivery):
                output.begin(self.send)

    def send(self, report: LiveReport) -> None:
        """Pass on a report."""
        with self._lock:
            self._each(lambda output: output.send(report))

    def close(self) -> None:
        """Close all of them in order; the threads of some may still report something."""

        def close(output: Output) -> None:
            self.undelivered += output.close() or 0

        self._each(close)

    def _each(self, call: Callable[[Output], None]) -> None:
        for output in self._outputs:
            try:
                call(output)
            except Exception as error:
                what = f"an output failed: {type(output).__name__}: {error}"
                if isinstance(error, DriftscoreError):  # a sentence
                    what = str(error)
                now_s = time.monotonic()
                if now_s - self._failures.get(what, -math.inf) > REPEAT_S:
                    if len(self._failures) == MAX_FAILURES:
                        self._failures.clear()
                    self._failures[what] = now_s
                    self.notify(f"error: {what}")


@dataclass(frozen=True)
class SourceView:
    """What a source does now, for a display."""

    name: str
    online: bool
    why: str
    level_db: float | None
    current: Sequence[tuple[str, float]] = ()
    active: frozenset[str] = frozenset()
    dropped_s: float = 0.0
    seconds: float = 0.0
