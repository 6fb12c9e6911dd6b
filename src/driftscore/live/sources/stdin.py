"""Standard input: raw PCM, or a wav stream whose header says what it is.

A wav stream of unknown length, as recorders write it into a pipe, is read to its end. The program
that writes waits for us, so nothing is dropped here.
"""

import struct
import sys
import threading
from collections.abc import Callable, Iterator

from driftscore.live.blocks import AudioBlock
from driftscore.live.sources.pipes import Pipe, RawFormat, raw_blocks
from driftscore.live.sources.protocol import STALL_S, SourceError

_MOST_CHUNK = 1_000_000  # bytes of a chunk of a wav header
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_KINDS = {(_PCM, 8): "u8", (_PCM, 16): "s16le", (_PCM, 32): "s32le", (_FLOAT, 32): "f32le"}


class StandardInput:
    """Samples from standard input; without a raw format a wav stream is expected."""

    waits = True
    endless = False

    def __init__(
        self,
        raw: RawFormat | None = None,
        *,
        notify: Callable[[str], None] = lambda _: None,
        descriptor: int | None = None,
    ) -> None:
        self._raw = raw
        self._notify = notify
        self._descriptor = descriptor

    def describe(self) -> str:
        """Return what it is called in messages."""
        return "standard input"

    def blocks(self, stop: threading.Event) -> Iterator[AudioBlock]:
        """Yield the audio until the end of the input; a pause is reported, and waited for."""
        pipe = Pipe(sys.stdin.fileno() if self._descriptor is None else self._descriptor, stop)
        raw = self._raw or read_header(pipe)
        stalled = False
        for block in raw_blocks(pipe, raw, STALL_S):
            if block is None:
                if not stalled:
                    self._notify(f"standard input gives no audio for {STALL_S:g} s; waiting")
                stalled = True
                continue
            if stalled:
                self._notify("standard input gives audio again")
            stalled = False
            yield block


def read_header(pipe: Pipe) -> RawFormat:
    """Read a wav stream up to its samples; return their format."""
    start = pipe.exactly(12, STALL_S)
    if start[:4] != b"RIFF" or start[8:12] != b"WAVE":
        raise SourceError(
            "Standard input is not a wav stream; for raw samples give their format, as in "
            "--pcm s16le --rate 48000"
        )
    found: RawFormat | None = None
    while True:
        head = pipe.exactly(8, STALL_S)
        if len(head) < 8:
            raise SourceError("The wav stream on standard input ends before its samples")
        name, size = struct.unpack("<4sI", head)
        if name == b"data":
            break
        if size > _MOST_CHUNK:
            raise SourceError("The header of the wav stream on standard input is damaged")
        body = pipe.exactly(size + size % 2, STALL_S)
        if name == b"fmt ":
            found = _format(body)
    if found is None:
        raise SourceError("The wav stream on standard input does not say its format")
    return found


def _format(body: bytes) -> RawFormat:
    if len(body) < 16:
        raise SourceError("The header of the wav stream on standard input is damaged")
    kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", body[:16])
    if kind == _EXTENSIBLE and len(body) >= 26:
        kind = struct.unpack("<H", body[24:26])[0]
    if (kind, bits) not in _KINDS:
        raise SourceError(
            f"The wav stream on standard input has {bits} bits of kind {kind}; use 8, 16 or 32 "
            "bits, or 32 bit floats"
        )
    return RawFormat(_KINDS[kind, bits], rate, channels)
