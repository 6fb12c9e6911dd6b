"""Blocks of audio between the thread that reads a source and the one that works on it.

The queue is bounded in seconds. Where a source cannot wait, such as a microphone, the oldest audio
is dropped and counted; where it can, such as a file, the reader waits.
"""

import threading
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from driftscore.audio.recordings import Samples
from driftscore.errors import AudioError

BLOCK_S = 0.1
"""Length of a block that a source gives."""
STALL_S = 5.0
"""A source that gives no audio for so long has stalled."""
QUEUE_S = 30.0
"""Audio that may wait for the worker."""


class SourceError(AudioError):
    """A source that cannot be opened, has ended or gives no audio any more."""


@dataclass(frozen=True, eq=False)
class AudioBlock:
    """Mono samples of a source.

    Attributes:
        samples: float32.
        rate: in Hz.
        at: when the first sample was recorded, on the clock of `time.monotonic`.
        gap_s: seconds of audio that are missing before it.

    """

    samples: Samples
    rate: int
    at: float
    gap_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return len(self.samples) / self.rate


class BlockQueue:
    """A bounded queue of blocks between two threads."""

    def __init__(self, max_s: float = QUEUE_S) -> None:
        self._max_s = max_s
        self._blocks: deque[AudioBlock] = deque()
        self._seconds = 0.0
        self._closed = False
        self._changed = threading.Condition()
        self.dropped_s = 0.0
        """Seconds of audio that were dropped so far."""

    def put(self, block: AudioBlock, stop: threading.Event, *, wait: bool) -> float:
        """Add a block; return the seconds that were dropped for it.

        With `wait` nothing is dropped: it returns when there is room, or when `stop` is set.
        """
        with self._changed:
            while wait and self._full(block) and not stop.is_set():
                self._changed.wait(0.2)
            dropped = 0.0
            while not wait and self._full(block):
                old = self._blocks.popleft()
                self._seconds -= old.seconds
                dropped += old.seconds
                missing = old.gap_s + old.seconds
                if self._blocks:
                    first = self._blocks[0]
                    self._blocks[0] = replace(first, gap_s=first.gap_s + missing)
                else:
                    block = replace(block, gap_s=block.gap_s + missing)
            self.dropped_s += dropped
            self._blocks.append(block)
            self._seconds += block.seconds
            self._changed.notify_all()
            return dropped

    def get(self, timeout_s: float, *, joined_s: float = 0.0) -> AudioBlock | None:
        """Return the next block; None if there is none in time.

        Those that wait behind it are joined to it until it has `joined_s`, or up to a gap.
        """
        with self._changed:
            if not self._blocks and not self._closed:
                self._changed.wait(timeout_s)
            if not self._blocks:
                return None
            block = self._blocks.popleft()
            parts, seconds = [block.samples], block.seconds
            while self._blocks and seconds < joined_s:
                following = self._blocks[0]
                if following.gap_s or following.rate != block.rate:
                    break
                parts.append(self._blocks.popleft().samples)
                seconds += following.seconds
            self._seconds -= seconds
            self._changed.notify_all()
            return replace(block, samples=np.concatenate(parts)) if len(parts) > 1 else block

    def close(self) -> None:
        """Say that no block will follow."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def ended(self) -> bool:
        """Whether all blocks were taken and none will follow."""
        with self._changed:
            return self._closed and not self._blocks

    @property
    def waiting_s(self) -> float:
        """Seconds of audio that wait for the worker."""
        with self._changed:
            return max(0.0, self._seconds)

    def _full(self, block: AudioBlock) -> bool:
        return bool(self._blocks) and self._seconds + block.seconds > self._max_s
