"""Raw samples from a pipe: standard input, or the output of ffmpeg."""

import os
import queue
import select
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from driftscore.audio import Audio
from driftscore.decoding import MOST_CHANNELS, RATES
from driftscore.errors import UsageError, unknown
from driftscore.live.blocks import AudioBlock
from driftscore.live.sources.protocol import BLOCK_S

FORMATS = {"s16le": "<i2", "s32le": "<i4", "f32le": "<f4", "u8": "u1"}
"""Formats of raw samples, by the names that ffmpeg has for them."""
_STOP_S = 0.2  # how often a wait looks whether it should stop
_WAITS_FOR_PIPES = os.name != "nt"  # on Windows select() waits for sockets only
_PART = 2**16
_MOST_PARTS = 64


@dataclass(frozen=True)
class RawFormat:
    """Raw samples: their format, their rate in Hz and how many channels take turns."""

    sample_format: str = "s16le"
    rate: int = 48_000
    channels: int = 1

    def __post_init__(self) -> None:
        if self.sample_format not in FORMATS:
            raise unknown("sample format", self.sample_format, FORMATS)
        if not RATES[0] <= self.rate <= RATES[1]:
            raise UsageError(f"A rate must be from {RATES[0]} to {RATES[1]} Hz, got {self.rate}")
        if not 1 <= self.channels <= MOST_CHANNELS:
            raise UsageError(f"There may be 1 to {MOST_CHANNELS} channels, got {self.channels}")

    @property
    def frame(self) -> int:
        """Bytes of one sample of all channels."""
        return np.dtype(FORMATS[self.sample_format]).itemsize * self.channels

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return max(1, round(self.rate * BLOCK_S)) * self.frame

    def block(self, data: bytes) -> AudioBlock:
        """Return complete frames as a block that ends now."""
        flat = Audio(np.frombuffer(data, FORMATS[self.sample_format]), self.rate).samples
        if self.channels > 1:
            channels = flat.reshape(-1, self.channels)
            flat = channels.mean(axis=1, dtype=np.float64).astype(np.float32)
        return AudioBlock(flat, self.rate, time.monotonic() - len(flat) / self.rate)


class Pipe:
    """Reads from a descriptor without waiting for ever."""

    def __init__(self, descriptor: int, stop: threading.Event) -> None:
        self._descriptor = descriptor
        self._stop = stop
        self._ahead = None if _WAITS_FOR_PIPES else _ReadAhead(descriptor, stop)

    def read(self, most: int, timeout_s: float) -> bytes | None:
        """Return what is there; b"" at the end or when stopped, None if nothing comes in time."""
        until = time.monotonic() + timeout_s
        while not self._stop.is_set():
            left = until - time.monotonic()
            if left <= 0:
                return None
            wait_s = min(left, _STOP_S)
            if self._ahead is not None:
                if (data := self._ahead.take(most, wait_s)) is not None:
                    return data
            elif select.select([self._descriptor], [], [], wait_s)[0]:
                return os.read(self._descriptor, most)
        return b""

    def exactly(self, size: int, timeout_s: float) -> bytes:
        """Return so many bytes; fewer at the end, or when they do not come in time."""
        data = bytearray()
        while len(data) < size and (part := self.read(size - len(data), timeout_s)):
            data += part
        return bytes(data)


class _ReadAhead:
    """Reads a descriptor in a thread, where the system cannot wait for one with a time limit."""

    def __init__(self, descriptor: int, stop: threading.Event) -> None:
        self._descriptor = descriptor
        self._stop = stop
        self._parts: queue.Queue[bytes] = queue.Queue(_MOST_PARTS)
        self._rest = b""
        self._ended = False
        threading.Thread(target=self._read, name="pipe", daemon=True).start()

    def take(self, most: int, timeout_s: float) -> bytes | None:
        """Return what is there; b"" at the end, None if nothing comes in time."""
        if not self._rest and not self._ended:
            try:
                self._rest = self._parts.get(timeout=timeout_s)
            except queue.Empty:
                return None
            self._ended = not self._rest
        data, self._rest = self._rest[:most], self._rest[most:]
        return data

    def _read(self) -> None:
        data = b"-"
        while data and not self._stop.is_set():
            try:
                data = os.read(self._descriptor, _PART)
            except OSError:  # it was closed at the other end, or by us
                data = b""
            self._put(data)

    def _put(self, data: bytes) -> None:
        """Pass a part on; wait while there are many, so that memory is bounded."""
        while not self._stop.is_set():
            try:
                self._parts.put(data, timeout=_STOP_S)
                return
            except queue.Full:
                continue


def raw_blocks(pipe: Pipe, raw: RawFormat, stall_s: float) -> Iterator[AudioBlock | None]:
    """Yield the blocks of raw samples, and None each time that nothing comes for `stall_s`."""
    rest = b""
    while (data := pipe.read(raw.block_bytes, stall_s)) != b"":
        if data is None:
            yield None
            continue
        rest += data
        complete = len(rest) - len(rest) % raw.frame
        if complete:
            yield raw.block(rest[:complete])
            rest = rest[complete:]
