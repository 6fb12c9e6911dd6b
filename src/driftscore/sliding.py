"""Embeddings of windows of any length at any hop, as a stream.

A backbone that is local in time (`LocalBackbone`) computes the frames of a recording once, in
blocks of a fixed length with context on both sides; a window is then a pooling of its frames, so
that a fine hop costs almost nothing. Blocks start at multiples of `BLOCK_S` whatever the recording,
so a stream gives the bits of the file. Beyond its ends a recording is silent. Any other backbone
encodes each window by itself.

Windows start at multiples of the hop, taken to the nearest frame, and end within the recording; a
recording shorter than a window is one window. Windows of digital silence are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import (
    Recording,
    Samples,
    check_length,
    describe,
    resampled_blocks,
    windows,
)
from driftscore.backbones.protocol import Backbone, Features, LocalBackbone
from driftscore.engines.protocol import check_finite
from driftscore.errors import UsageError
from driftscore.vectors import Vector

BLOCK_S = 40.0
Flags = NDArray[np.bool_]
WindowEmbedding = tuple[float, float, Vector]
"""Start and end of a window in seconds, and its unit embedding."""


def sliding_embeddings(
    recording: Recording, backbone: Backbone, *, window_s: float, hop_s: float
) -> Iterator[WindowEmbedding]:
    """Yield the embedding of each window that is not silent, in order of time."""
    if not 0 < hop_s <= window_s < float("inf"):
        raise UsageError(
            f"The hop must be positive and at most the window, got {hop_s:g} s and {window_s:g} s"
        )
    for start_s, end_s, row in _embeddings(recording, backbone, window_s, hop_s):
        check_finite(describe(recording), row)
        yield start_s, end_s, row


def _embeddings(
    recording: Recording, backbone: Backbone, window_s: float, hop_s: float
) -> Iterator[WindowEmbedding]:
    if isinstance(backbone, LocalBackbone):
        yield from _pooled(recording, backbone, window_s, hop_s)
        return
    if window_s > backbone.seconds:
        raise UsageError(
            f"A window of {backbone.name} has at most {backbone.seconds:g} s, got {window_s:g} s"
        )
    for window in windows(recording, rate=backbone.rate, seconds=window_s, hop_s=hop_s):
        check_length(recording, window.end_s)
        if not window.silent:
            row = backbone.encode(backbone.features(window.audio.samples))
            yield window.start_s, window.end_s, row


def _pooled(
    recording: Recording, backbone: LocalBackbone, window_s: float, hop_s: float
) -> Iterator[WindowEmbedding]:
    """Pool windows from the frames of a recording; only the frames still needed are kept."""
    frame_s = backbone.frame_s
    length = max(1, round(window_s / frame_s))
    kept = _Frames(np.zeros((0, 0), np.float32), np.zeros(0, np.bool_), 0)
    number, end_s = 0, 0.0
    for frames, sounding, seconds in _frame_blocks(recording, backbone):
        kept, end_s = kept.extended(frames, sounding), seconds
        while (first := round(number * hop_s / frame_s)) + length <= kept.end:
            if (row := kept.pooled(backbone, first, first + length)) is not None:
                yield number * hop_s, number * hop_s + window_s, row
            number += 1
        kept = kept.after(first)
    if number == 0 and kept.end and (row := kept.pooled(backbone, 0, kept.end)) is not None:
        yield 0.0, end_s, row


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


def _frame_blocks(
    recording: Recording, backbone: LocalBackbone
) -> Iterator[tuple[Features, Flags, float]]:
    """Yield the frames of each block, which of them are not silent, and the seconds so far."""
    step = round(backbone.frame_s * backbone.rate)
    size = round(BLOCK_S / backbone.frame_s)
    margin = -(-round(backbone.context_s * backbone.rate) // step)
    edge, block = margin * step, size * step
    buffer: Samples = np.zeros(edge, np.float32)  # silence before the recording
    done = 0
    for part in resampled_blocks(recording, backbone.rate):
        buffer = np.concatenate([buffer, part])
        while len(buffer) >= edge + block + edge:
            done += block
            yield (
                *_block(buffer[: edge + block + edge], backbone, margin, size),
                done / backbone.rate,
            )
            buffer = buffer[block:]
    rest = len(buffer) - edge
    check_length(recording, (done + rest) / backbone.rate)
    while rest > 0:
        here = min(rest, block)
        padded = np.zeros(edge + block + edge, np.float32)
        padded[: min(len(buffer), len(padded))] = buffer[: len(padded)]
        frames, sounding = _block(padded, backbone, margin, size)
        count = max(1, round(here / step))
        done += here
        yield frames[:, :count], sounding[:count], done / backbone.rate
        buffer, rest = buffer[block:], rest - block


def _block(
    samples: Samples, backbone: LocalBackbone, margin: int, size: int
) -> tuple[Features, Flags]:
    """Return the frames of one block, without its context."""
    frames = backbone.frames(backbone.features(samples))[:, margin : margin + size]
    step = len(samples) // (size + 2 * margin)
    inner = samples[margin * step : (margin + size) * step]
    sounding: Flags = np.asarray(inner.reshape(size, step).any(axis=1))
    return np.ascontiguousarray(frames), sounding
