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
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from os import getpid

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Recording, Samples, check_length, describe, resampled_blocks
from driftscore.backbones.protocol import Backbone, Features, LocalBackbone
from driftscore.backbones.vectors import Vector
from driftscore.engines.protocol import Embedded, check_finite, failed
from driftscore.engines.window_log import WindowLog
from driftscore.errors import AudioError, UsageError
from driftscore.system.process import check_process

BLOCK_S = 40.0
"""Length of a block of a file: long ones cost least."""
LIVE_BLOCK_S = 0.64
"""Length of a block of a live stream: short ones answer soonest. Where more audio waits, several
are computed as one, because most of the work on a short block is its context."""
EARLY_CONTEXT_S = 0.64
"""Audio after a frame with which it is nearly right, for early windows."""
_MARGIN = 3  # frames
Flags = NDArray[np.bool_]
WindowEmbedding = tuple[float, float, Vector]
"""Start and end of a window in seconds, and its unit embedding."""


Framed = tuple[Features, Flags]
"""Frames, (channels, frames), and which of them are not silent."""


def window_stream(
    backbone: Backbone,
    *,
    window_s: float,
    hop_s: float,
    block_s: float = BLOCK_S,
    pool: ThreadPoolExecutor | None = None,
    store: WindowLog | None = None,
) -> "_EncodedWindows | _PooledWindows":
    """Return a stream: `feed` takes samples at the backbone's rate, `finish` ends the recording.

    Both return the windows that are complete and not silent. With a pool, blocks are computed in
    its threads. Windows that a `store` has are not computed again; those that follow are added.
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

    def complete() -> Iterator[list[WindowEmbedding]]:
        count = 0
        for part in resampled_blocks(recording, backbone.rate):
            count += len(part)
            yield stream.feed(part)
        check_length(recording, count / backbone.rate)
        yield stream.finish()

    for window in chain.from_iterable(complete()):
        check_finite(describe(recording), window[2])
        yield window


def embed_windows(
    recordings: Iterable[Recording],
    backbone: Backbone,
    *,
    window_s: float,
    hop_s: float,
    threads: int,
) -> Iterator[Embedded]:
    """Yield the windows of each recording, or its error, in the order given.

    Several recordings are read at the same time; blocks of frames are computed in a pool of their
    own, so that one long recording uses all threads as well.
    """
    local = isinstance(backbone, LocalBackbone)
    threads = min(threads, backbone.parallel)

    def embed(recording: Recording) -> Embedded:
        name = describe(recording)
        try:
            windows = list(
                sliding_embeddings(
                    recording, backbone, window_s=window_s, hop_s=hop_s, pool=frames_pool
                )
            )
        except AudioError as error:
            return failed(name, str(error), dim=backbone.dim)
        if not windows:
            return failed(name, f"{name} is silent: every sample is zero", dim=backbone.dim)
        spans = np.array([(start_s, end_s) for start_s, end_s, _ in windows])
        return Embedded(name, spans, np.stack([row for _, _, row in windows]))

    frames_pool = ThreadPoolExecutor(threads) if local and threads > 1 else None
    pool = ThreadPoolExecutor(threads + local)
    pending: deque[Future[Embedded]] = deque()
    pid = getpid()
    try:
        for recording in recordings:
            check_process(pid)
            pending.append(pool.submit(embed, recording))
            if len(pending) > 2 * threads:
                yield pending.popleft().result()
        while pending:
            check_process(pid)
            yield pending.popleft().result()
    finally:
        if pid == getpid():  # a forked process may wait for ever for a lock of a thread
            pool.shutdown(cancel_futures=True)
            if frames_pool is not None:
                frames_pool.shutdown()


class _EncodedWindows:
    """Windows that are encoded one by one."""

    def __init__(
        self, backbone: Backbone, window_s: float, hop_s: float, store: WindowLog | None
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
        windows: list[WindowEmbedding] = []
        while (first := self._number * self._hop) + self._length <= self._start + len(self._buffer):
            windows += self._window(first, self._length)
            self._number += 1
        spare = min(first - self._start, len(self._buffer))
        self._buffer, self._start = self._buffer[spare:], self._start + spare
        return windows

    def finish(self) -> list[WindowEmbedding]:
        if self._number or not len(self._buffer):
            return []
        self._store = None  # a recording shorter than a window is not worth storing
        return self._window(0, len(self._buffer))

    def early(self) -> list[WindowEmbedding]:
        """Return no windows: none is known before it is complete."""
        return []

    def _window(self, first: int, length: int) -> list[WindowEmbedding]:
        """Return one window, or none if it is silent."""
        row: Vector | None = None
        if self._store and self._number < len(self._store.done):
            row = self._store.done[self._number]
        else:
            samples = self._buffer[first - self._start : first - self._start + length].copy()
            if samples.any():
                row = self._backbone.encode(self._backbone.features(samples))
            if self._store:
                self._store.add(row)
        rate = self._backbone.rate
        return [] if row is None else [(first / rate, (first + length) / rate, row)]


@dataclass(eq=False)
class _PooledWindows:
    """Windows that are pooled from frames; only the samples and frames still needed are kept.

    Samples are cut into blocks with context on both sides, which become frames in order. Without a
    pool, features of the samples that two blocks share are computed once, and the frames of the
    context after the last block give windows that are nearly right, sooner (`early`).
    """

    backbone: LocalBackbone
    window_s: float
    hop_s: float
    block_s: float
    pool: ThreadPoolExecutor | None
    store: WindowLog | None

    def __post_init__(self) -> None:
        backbone = self.backbone
        self._stored = len(self.store.done) if self.store else 0
        self._length = max(1, round(self.window_s / backbone.frame_s))
        self._number = 0  # of the next window
        self._step = round(backbone.frame_s * backbone.rate)  # samples per frame
        self._context, nearly = (
            -(-round(seconds * backbone.rate) // self._step)
            for seconds in (backbone.context_s, EARLY_CONTEXT_S)
        )  # in frames
        self._ahead = max(0, self._context - nearly)  # frames after a block that are nearly right
        self._size = max(1, round(self.block_s / backbone.frame_s))
        # Silence before the recording is the context of its first frame.
        self._buffer: Samples = np.zeros(self._context * self._step, np.float32)
        self._parts: list[Samples] = []  # samples that follow the buffer
        self._waiting = len(self._buffer)  # samples in both
        self._known: Features = np.zeros(0, np.float32)  # of the first samples of the next block
        self._samples = 0  # so far
        self._cut = 0  # frames in blocks so far
        self._pending: deque[Future[Framed]] = deque()
        self._frames: Features = np.zeros((0, 0), np.float32)
        self._sounding: Flags = np.zeros(0, np.bool_)
        self._start = 0  # number of the first frame that is kept
        self._following: Framed = (np.zeros((0, 0), np.float32), np.zeros(0, np.bool_))
        self._early_number = 0  # of the next early window

    def feed(self, samples: Samples) -> list[WindowEmbedding]:
        self._samples += len(samples)
        return self._windows(self._blocks(samples), max_pending=self.backbone.parallel)

    def finish(self) -> list[WindowEmbedding]:
        margins = 2 * self._context
        needed = (self._total_frames - self._cut + margins) * self._step
        silence = np.zeros(max(0, needed - self._waiting), np.float32)
        blocks = self._blocks(silence)
        frames = self._total_frames - self._cut
        if frames > 0:  # a last block that is not longer than it needs to be
            self._join()
            blocks.append(self._buffer[: (frames + margins) * self._step].copy())
        windows = self._windows(blocks, max_pending=0)
        if self._number or not self._end:
            return windows
        row = self._pooled(0, self._end)
        return [] if row is None else [(0.0, self._samples / self.backbone.rate, row)]

    @property
    def _total_frames(self) -> int:
        """Frames of the audio so far; a recording of less than one frame has one."""
        return max(1, round(self._samples / self._step)) if self._samples else 0

    @property
    def _end(self) -> int:
        """The number of the frame after the last one that is kept."""
        return self._start + len(self._sounding)

    def _first_frame(self, number: int) -> int:
        """Return the first frame of a window."""
        return round(number * self.hop_s / self.backbone.frame_s)

    def _join(self) -> None:
        """Put all samples that wait into the buffer."""
        self._buffer = np.concatenate([self._buffer, *self._parts])
        self._parts = []

    def _blocks(self, samples: Samples) -> list[Samples]:
        """Return the blocks that are complete, each with its context; short ones are joined."""
        self._parts.append(samples)
        self._waiting += len(samples)
        margins = 2 * self._context
        frames = max(0, self._waiting // self._step - margins)
        complete = frames // self._size * self._size  # those of complete blocks
        if not complete:
            return []
        self._join()
        count = round(BLOCK_S / self.backbone.frame_s) // self._size
        longest = max(1, count) * self._size
        blocks: list[Samples] = []
        for first in range(0, complete, longest):
            end = min(first + longest, complete) + margins
            blocks.append(self._buffer[first * self._step : end * self._step].copy())
        self._buffer = self._buffer[complete * self._step :].copy()
        self._waiting = len(self._buffer)
        self._cut += complete
        return blocks

    def _inner(self, block: Samples) -> int:
        """Return how many frames a block has without its context."""
        return len(block) // self._step - 2 * self._context

    def _framed(self, block: Samples) -> Framed:
        """Return the frames of one block, without its context."""
        return self._frames_of(block, self.backbone.features(block), 0)

    def _framed_next(self, block: Samples) -> Framed:
        """Return the same for the block after the last one, and keep what early windows need."""
        if self._known.size:
            known_frames = 2 * self._context - 1
            per_frame = self._known.shape[-1] // known_frames
            # A column depends on less than a frame to each side; a short input may be repeated.
            margin = min(known_frames, _MARGIN)
            new = self.backbone.features(block[(known_frames - margin) * self._step :])
            features = np.concatenate([self._known, new[..., margin * per_frame :]], axis=-1)
        else:
            features = self.backbone.features(block)
        frames, sounding = self._frames_of(block, features, self._ahead)
        count = self._inner(block)
        # The last columns lack the samples after them, and are computed again.
        per_frame = features.shape[-1] // (len(block) // self._step)
        self._known = features[..., count * per_frame : -per_frame].copy()
        self._following = frames[:, count:], sounding[count:]
        return np.ascontiguousarray(frames[:, :count]), sounding[:count]

    def _frames_of(self, block: Samples, features: Features, ahead: int) -> Framed:
        """Return the frames of a block and some that follow it, given the features of all of it."""
        inner = slice(self._context, self._context + self._inner(block) + ahead)
        frames = self.backbone.frames(features)[:, inner]
        sounding = block.reshape(-1, self._step)[inner].any(axis=1)
        return np.ascontiguousarray(frames), np.asarray(sounding)

    def _windows(self, blocks: list[Samples], *, max_pending: int) -> list[WindowEmbedding]:
        """Return the windows that are complete after these blocks, in order."""
        # Blocks of which the store has all windows are not computed.
        needed = self._first_frame(self._stored)
        while blocks and self._end + self._inner(blocks[0]) <= needed and not self._pending:
            self._start += self._inner(blocks.pop(0))
        windows: list[WindowEmbedding] = []
        while self.store and self._number < self._stored:
            if self._first_frame(self._number) + self._length > self._total_frames:
                break
            self._append(windows, self.store.done[self._number])
        framed: Iterator[Framed] = map(self._framed_next, blocks)
        if self.pool:
            self._pending += [self.pool.submit(self._framed, block) for block in blocks]
            count = len(self._pending) - max_pending
            framed = (self._pending.popleft().result() for _ in range(count))
        for frames, sounding in framed:
            within = self._total_frames - self._end  # none beyond the recording
            frames, sounding = frames[:, :within], sounding[:within]
            if len(self._sounding):
                frames = np.concatenate([self._frames, frames], axis=1)
                sounding = np.concatenate([self._sounding, sounding])
            self._frames, self._sounding = frames, sounding
            while self._number >= self._stored:
                first = self._first_frame(self._number)
                if first + self._length > self._end:
                    break
                row = self._pooled(first, first + self._length)
                if self.store:
                    self.store.add(row)
                self._append(windows, row)
            first = self._first_frame(max(self._number, self._stored))
            spare = min(max(0, first - self._start), len(self._sounding))
            self._frames, self._sounding = self._frames[:, spare:], self._sounding[spare:]
            self._start += spare
        return windows

    def early(self) -> list[WindowEmbedding]:
        """Return the windows that are nearly right and were not returned here before."""
        frames, sounding = self._following
        if not len(sounding):
            return []
        frames = np.concatenate([self._frames, frames], axis=1)
        sounding = np.concatenate([self._sounding, sounding])
        windows: list[WindowEmbedding] = []
        number = max(self._early_number, self._number)
        while (first := self._first_frame(number) - self._start) + self._length <= len(sounding):
            span = slice(first, first + self._length)
            if sounding[span].any():
                row = self.backbone.pool(np.ascontiguousarray(frames[:, span]))
                start_s = number * self.hop_s
                windows.append((start_s, start_s + self.window_s, row))
            number += 1
        self._early_number = number
        return windows

    def _append(self, windows: list[WindowEmbedding], row: Vector | None) -> None:
        """Add the next window, unless it is silent."""
        start_s = self._number * self.hop_s
        self._number += 1
        if row is not None:
            windows.append((start_s, start_s + self.window_s, row))

    def _pooled(self, first: int, last: int) -> Vector | None:
        """Return the embedding of a window of frames; None if it is silent."""
        span = slice(first - self._start, last - self._start)
        if not self._sounding[span].any():
            return None
        return self.backbone.pool(np.ascontiguousarray(self._frames[:, span]))
