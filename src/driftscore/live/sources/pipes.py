"""Raw samples from a pipe: standard input, or the output of ffmpeg.

Standard input is raw PCM, or a wav stream whose header says what it is; one of unknown length, as
recorders write it into a pipe, is read to its end. The program that writes waits for us, so nothing
is dropped here.
"""

import os
import queue
import select
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from driftscore.audio.decoding import MAX_CHANNELS, RATES
from driftscore.audio.recordings import Audio
from driftscore.errors import UsageError, unknown
from driftscore.live.blocks import BLOCK_S, STALL_S, AudioBlock, SourceError

FORMATS = {"s16le": "<i2", "s32le": "<i4", "f32le": "<f4", "u8": "u1"}
"""Formats of raw samples, by the names that ffmpeg has for them."""
_STOP_S = 0.2  # how often a wait looks whether it should stop
_WAITS_FOR_PIPES = os.name != "nt"  # on Windows select() waits for sockets only
_PART_BYTES = 2**16
_MAX_PARTS = 64
_MAX_CHUNK = 1_000_000  # bytes of a chunk of a wav header
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_KINDS = {(_PCM, 8): "u8", (_PCM, 16): "s16le", (_PCM, 32): "s32le", (_FLOAT, 32): "f32le"}


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
        if not 1 <= self.channels <= MAX_CHANNELS:
            raise UsageError(f"There may be 1 to {MAX_CHANNELS} channels, got {self.channels}")

    @property
    def frame(self) -> int:
        """Bytes of one sample of all channels."""
        return np.dtype(FORMATS[self.sample_format]).itemsize * self.channels

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
        self._ahead = None if _WAITS_FOR_PIPES else _read_ahead(descriptor, stop)
        self._rest = b""

    def read(self, most: int, timeout_s: float) -> bytes | None:
        """Return what is there; b"" at the end or when stopped, None if nothing comes in time."""
        until = time.monotonic() + timeout_s
        while not self._stop.is_set():
            left = until - time.monotonic()
            if left <= 0:
                return None
            wait_s = min(left, _STOP_S)
            if self._ahead is None:
                if select.select([self._descriptor], [], [], wait_s)[0]:
                    return os.read(self._descriptor, most)
                continue
            with suppress(queue.Empty):
                self._rest = self._rest or self._ahead.get(timeout=wait_s)
                if not self._rest:
                    self._ahead.put(b"")  # the end stays the end
                data, self._rest = self._rest[:most], self._rest[most:]
                return data
        return b""

    def exactly(self, size: int, timeout_s: float) -> bytes:
        """Return so many bytes; fewer at the end, or when they do not come in time."""
        data = bytearray()
        while len(data) < size and (part := self.read(size - len(data), timeout_s)):
            data += part
        return bytes(data)


def _read_ahead(descriptor: int, stop: threading.Event) -> "queue.Queue[bytes]":
    """Read in a thread, where the system cannot wait for a pipe with a limit; b"" at the end."""
    parts: queue.Queue[bytes] = queue.Queue(_MAX_PARTS)

    def read() -> None:
        data = b"-"
        while data and not stop.is_set():
            try:
                data = os.read(descriptor, _PART_BYTES)
            except OSError:  # it was closed at the other end, or by us
                data = b""
            parts.put(data)  # it waits while there are many: memory is bounded

    threading.Thread(target=read, name="pipe", daemon=True).start()
    return parts


def raw_blocks(pipe: Pipe, raw: RawFormat, wait_s: float = STALL_S) -> Iterator[AudioBlock | None]:
    """Yield the blocks of raw samples, and None each time that nothing comes for `STALL_S`.

    The first bytes may take `wait_s`.
    """
    rest, block_bytes = b"", max(1, round(raw.rate * BLOCK_S)) * raw.frame
    while (data := pipe.read(block_bytes, wait_s)) != b"":
        wait_s = STALL_S
        if data is None:
            yield None
            continue
        rest += data
        complete = len(rest) - len(rest) % raw.frame
        if complete:
            yield raw.block(rest[:complete])
            rest = rest[complete:]


@dataclass(eq=False)
class StandardInput:
    """Samples from standard input; without a raw format a wav stream is expected."""

    raw: RawFormat | None = None
    notify: Callable[[str], None] = lambda _: None
    descriptor: int | None = None

    waits = True
    endless = False

    def describe(self) -> str:
        """Return what it is called in messages."""
        return "standard input"

    def blocks(self, stop: threading.Event) -> Iterator[AudioBlock]:
        """Yield the audio until the end of the input; a pause is reported, and waited for."""
        pipe = Pipe(sys.stdin.fileno() if self.descriptor is None else self.descriptor, stop)
        raw = self.raw or read_header(pipe)
        stalled = False
        for block in raw_blocks(pipe, raw):
            if block is None:
                if not stalled:
                    self.notify(f"standard input gives no audio for {STALL_S:g} s; waiting")
                stalled = True
                continue
            if stalled:
                self.notify("standard input gives audio again")
            stalled = False
            yield block


def read_header(pipe: Pipe) -> RawFormat:
    """Read a wav stream up to its samples; return their format."""
    damaged = SourceError("The header of the wav stream on standard input is damaged")
    start = pipe.exactly(12, STALL_S)
    if start[:4] != b"RIFF" or start[8:12] != b"WAVE":
        raise SourceError(
            "Standard input is not a wav stream; for raw samples give their format, as in "
            "--pcm s16le:48000"
        )
    raw: RawFormat | None = None
    while True:
        head = pipe.exactly(8, STALL_S)
        if len(head) < 8:
            raise SourceError("The wav stream on standard input ends before its samples")
        name, size = struct.unpack("<4sI", head)
        if name == b"data":
            break
        if size > _MAX_CHUNK:
            raise damaged
        body = pipe.exactly(size + size % 2, STALL_S)
        if name != b"fmt ":
            continue
        if len(body) < 16:
            raise damaged
        kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", body[:16])
        if kind == _EXTENSIBLE and len(body) >= 26:
            kind = struct.unpack("<H", body[24:26])[0]
        if (kind, bits) not in _KINDS:
            raise SourceError(
                f"The wav stream on standard input has {bits} bits of kind {kind}; use 8, 16 or "
                "32 bits, or 32 bit floats"
            )
        raw = RawFormat(_KINDS[kind, bits], rate, channels)
    if raw is None:
        raise SourceError("The wav stream on standard input does not say its format")
    return raw
