"""Embeddings of windows of any length at any hop, as a stream.

A backbone that is local in time (`LocalBackbone`) computes the frames of a recording once, in
blocks with context on both sides; a window is then a pooling of its frames, so that a fine hop
costs almost nothing. The frames do not depend on the length of a block: a stream in short blocks
gives the bits of the file in long ones. Beyond its ends a recording is silent. Any other backbone
encodes each window by itself.

Windows start at multiples of the hop, taken to the nearest frame, and end within the recording; a
recording shorter than a window is one window. Windows of digital silence are left out.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Recording, Samples, check_length, describe, resampled_blocks
from driftscore.backbones.protocol import Backbone, Features, LocalBackbone
from driftscore.engines.protocol import check_finite
from driftscore.errors import UsageError
from driftscore.vectors import Vector

BLOCK_S = 40.0
"""Length of a block of a file: long ones cost least."""
LIVE_BLOCK_S = 0.96
"""Length of a block of a live stream: short ones answer soonest."""
Flags = NDArray[np.bool_]
WindowEmbedding = tuple[float, float, Vector]
"""Start and end of a window in seconds, and its unit embedding."""


class WindowStore(Protocol):
    """Windows that are done already, and a place for those that follow."""

    known: list[Vector | None]
    """Embeddings of the first windows, None for a silent one."""

    def add(self, row: Vector | None) -> None:
        """Take the window that follows."""


Framed = tuple[Features, Flags]
"""The frames of one block, (channels, frames), and which of them are not silent."""


class WindowStream(Protocol):
    """Samples at the rate of a backbone in, embeddings of windows out."""

    def feed(self, samples: Samples) -> list[WindowEmbedding]:
        """Return the windows that these samples complete and that are not silent."""

    def finish(self) -> list[WindowEmbedding]:
        """Return the windows that are left at the end of the recording."""


def window_stream(
    backbone: Backbone,
    *,
    window_s: float,
    hop_s: float,
    block_s: float = BLOCK_S,
    pool: ThreadPoolExecutor | None = None,
    store: WindowStore | None = None,
) -> WindowStream:
    """Return a stream of windows; with a pool, blocks are computed in its threads.

    Windows that a `store` has are not computed again; those that follow are added to it.
    """
    if not 0 < hop_s <= window_s < float("inf"):
        raise UsageError(
            f"The hop must be positive and at most the window, got {hop_s:g} s and {window_s:g} s"
        )
    if isinstance(backbone, LocalBackbone):
        return _PooledWindows(backbone, window_s, hop_s, block_s, pool, store)
    if window_s > backbone.seconds:
        raise UsageError(
            f"A window of {backbone.name} has at most {backbone.seconds:g} s, got {window_s:g} s"
        )
    return _EncodedWindows(backbone, window_s, hop_s, store)


def sliding_embeddings(
    recording: Recording,
    backbone: Backbone,
    *,
    window_s: float,
    hop_s: float,
    pool: ThreadPoolExecutor | None = None,
) -> Iterator[WindowEmbedding]:
    """Yield the embedding of each window that is not silent, in order of time."""
    stream = window_stream(backbone, window_s=window_s, hop_s=hop_s, pool=pool)
    count = 0
    for part in resampled_blocks(recording, backbone.rate):
        count += len(part)
        yield from _checked(stream.feed(part), recording)
    check_length(recording, count / backbone.rate)
    yield from _checked(stream.finish(), recording)


def _checked(windows: list[WindowEmbedding], recording: Recording) -> list[WindowEmbedding]:
    for _, _, row in windows:
        check_finite(describe(recording), row)
    return windows


class _EncodedWindows:
    """Windows that are encoded one by one."""

    def __init__(
        self, backbone: Backbone, window_s: float, hop_s: float, store: WindowStore | None
    ) -> None:
        self._backbone = backbone
        self._store = store
        self._length = max(1, round(backbone.rate * window_s))
        self._hop = max(1, round(backbone.rate * hop_s))
        self._buffer: Samples = np.zeros(0, np.float32)
        self._start = 0  # position of the buffer in the recording
        self._number = 0

    def feed(self, samples: Samples) -> list[WindowEmbedding]:
        self._buffer = np.concatenate([self._buffer, samples])
        found: list[WindowEmbedding] = []
        while (first := self._number * self._hop) + self._length <= self._start + len(self._buffer):
            found += self._window(first)
            self._number += 1
        spare = min(first - self._start, len(self._buffer))
        self._buffer, self._start = self._buffer[spare:], self._start + spare
        return found

    def finish(self) -> list[WindowEmbedding]:
        if self._number or not len(self._buffer):
            return []
        return self._encoded(0, len(self._buffer))

    def _window(self, first: int) -> list[WindowEmbedding]:
        if self._store is None:
            return self._encoded(first, self._length)
        if self._number < len(self._store.known):
            row = self._store.known[self._number]
            rate = self._backbone.rate
            return [] if row is None else [(first / rate, (first + self._length) / rate, row)]
        found = self._encoded(first, self._length)
        self._store.add(found[0][2] if found else None)
        return found

    def _encoded(self, first: int, length: int) -> list[WindowEmbedding]:
        samples = self._buffer[first - self._start : first - self._start + length].copy()
        if not samples.any():
            return []
        rate = self._backbone.rate
        row = self._backbone.encode(self._backbone.features(samples))
        return [(first / rate, (first + length) / rate, row)]


class _PooledWindows:
    """Windows that are pooled from frames; only the frames still needed are kept."""

    def __init__(
        self,
        backbone: LocalBackbone,
        window_s: float,
        hop_s: float,
        block_s: float,
        pool: ThreadPoolExecutor | None,
        store: WindowStore | None,
    ) -> None:
        self._backbone = backbone
        self._store = store
        self._window_s, self._hop_s = window_s, hop_s
        self._length = max(1, round(window_s / backbone.frame_s))
        self._blocks = _Blocks(backbone, block_s)
        self._frames = _Frames(np.zeros((0, 0), np.float32), np.zeros(0, np.bool_), 0)
        self._number = 0
        self._known = len(store.known) if store is not None else 0
        self._pool = pool
        self._pending: deque[Future[Framed]] = deque()

    def feed(self, samples: Samples) -> list[WindowEmbedding]:
        blocks = self._unknown(self._blocks.feed(samples))
        return self._replayed() + self._windows(blocks, most_pending=self._backbone.parallel)

    def finish(self) -> list[WindowEmbedding]:
        blocks = self._unknown(self._blocks.finish())
        found = self._replayed() + self._windows(blocks, most_pending=0)
        if self._number or not self._frames.end:
            return found
        row = self._frames.pooled(self._backbone, 0, self._frames.end)
        return [] if row is None else [(0.0, self._blocks.seconds, row)]

    def _unknown(self, blocks: list[Samples]) -> list[Samples]:
        """Return the blocks that windows are needed from which the store does not have."""
        needed = self._first_frame(self._known)
        size = self._blocks.size
        while blocks and self._frames.end + size <= needed and not self._pending:
            blocks = blocks[1:]
            self._frames = _Frames(
                self._frames.values, self._frames.sounding, self._frames.end + size
            )
        return blocks

    def _replayed(self) -> list[WindowEmbedding]:
        """Return the windows of the store that the audio so far has reached."""
        found: list[WindowEmbedding] = []
        while self._store is not None and self._number < self._known:
            if self._first_frame(self._number) + self._length > self._blocks.total_frames:
                break
            if (row := self._store.known[self._number]) is not None:
                found.append(self._timed(row))
            self._number += 1
        return found

    def _timed(self, row: Vector) -> WindowEmbedding:
        start_s = self._number * self._hop_s
        return start_s, start_s + self._window_s, row

    def _windows(self, blocks: list[Samples], *, most_pending: int) -> list[WindowEmbedding]:
        """Return the windows of the blocks that are computed, in order."""
        found: list[WindowEmbedding] = []
        if self._pool is None:
            for block in blocks:
                found += self._extended(self._blocks.framed(block))
            return found
        self._pending += [self._pool.submit(self._blocks.framed, block) for block in blocks]
        while len(self._pending) > most_pending:
            found += self._extended(self._pending.popleft().result())
        return found

    def _extended(self, framed: Framed) -> list[WindowEmbedding]:
        """Return the windows that the frames of one more block complete."""
        values, sounding = framed
        within = self._blocks.total_frames - self._frames.end  # none beyond the recording
        self._frames = self._frames.extended(values[:, :within], sounding[:within])
        found: list[WindowEmbedding] = []
        while (first := self._first_frame(self._number)) + self._length <= self._frames.end:
            if self._number < self._known:  # replayed when the audio has reached its end
                break
            row = self._frames.pooled(self._backbone, first, first + self._length)
            if self._store is not None:
                self._store.add(row)
            if row is not None:
                found.append(self._timed(row))
            self._number += 1
        self._frames = self._frames.after(self._first_frame(max(self._number, self._known)))
        return found

    def _first_frame(self, number: int) -> int:
        """Return the first frame of a window."""
        return round(number * self._hop_s / self._backbone.frame_s)


class _Blocks:
    """Samples cut into blocks with context on both sides."""

    def __init__(self, backbone: LocalBackbone, block_s: float) -> None:
        self._backbone = backbone
        self._step = round(backbone.frame_s * backbone.rate)
        self._margin = -(-round(backbone.context_s * backbone.rate) // self._step)
        self.size = max(1, round(block_s / backbone.frame_s))
        # Silence before the recording is the context of its first frame.
        self._buffer: Samples = np.zeros(self._margin * self._step, np.float32)
        self._samples = 0
        self._cut = 0  # blocks so far

    @property
    def seconds(self) -> float:
        """Seconds of audio so far."""
        return self._samples / self._backbone.rate

    @property
    def total_frames(self) -> int:
        """Frames of the audio so far; a recording of less than one frame has one."""
        return max(1, round(self._samples / self._step)) if self._samples else 0

    def feed(self, samples: Samples) -> list[Samples]:
        """Return the blocks that are complete, each with its context."""
        self._samples += len(samples)
        self._buffer = np.concatenate([self._buffer, samples])
        length, block = (self.size + 2 * self._margin) * self._step, self.size * self._step
        count = max(0, (len(self._buffer) - length) // block + 1)
        found = [self._buffer[k * block : k * block + length].copy() for k in range(count)]
        self._buffer = self._buffer[count * block :].copy()
        self._cut += count
        return found

    def finish(self) -> list[Samples]:
        """Return the blocks that are left, with silence after the recording."""
        left = self.total_frames - self._cut * self.size
        count = max(0, -(-left // self.size))
        needed = (count * self.size + 2 * self._margin) * self._step
        silence = np.zeros(max(0, needed - len(self._buffer)), np.float32)
        before = self._samples
        blocks = self.feed(silence)
        self._samples = before
        return blocks[:count]

    def framed(self, samples: Samples) -> Framed:
        """Return the frames of one block, without its context."""
        inner = slice(self._margin, self._margin + self.size)
        frames = self._backbone.frames(self._backbone.features(samples))[:, inner]
        parts = samples.reshape(-1, self._step)[inner]
        return np.ascontiguousarray(frames), np.asarray(parts.any(axis=1))


@dataclass(frozen=True)
class _Frames:
    """Frames from number `start` on, and which of them are not silent."""

    values: Features
    sounding: Flags
    start: int

    @property
    def end(self) -> int:
        """The number of the frame after the last one."""
        return self.start + len(self.sounding)

    def extended(self, values: Features, sounding: Flags) -> "_Frames":
        """Return these frames and the ones that follow them."""
        if not len(self.sounding):
            return _Frames(values, sounding, self.start)
        joined = np.concatenate([self.values, values], axis=1)
        return _Frames(joined, np.concatenate([self.sounding, sounding]), self.start)

    def without(self, count: int) -> "_Frames":
        """Return no frames, after `count` more that nobody needs."""
        return _Frames(self.values[:, :0], self.sounding[:0], self.end + count)

    def after(self, first: int) -> "_Frames":
        """Return the frames from number `first` on."""
        skip = min(max(0, first - self.start), len(self.sounding))
        return _Frames(self.values[:, skip:], self.sounding[skip:], self.start + skip)

    def pooled(self, backbone: LocalBackbone, first: int, last: int) -> Vector | None:
        """Return the embedding of a window of frames; None if it is silent."""
        span = slice(first - self.start, last - self.start)
        if not self.sounding[span].any():
            return None
        return backbone.pool(np.ascontiguousarray(self.values[:, span]))
