"""What a source of live audio must be able to do, and the error with which it stops."""

import threading
from collections.abc import Iterator
from typing import Protocol

from driftscore.errors import AudioError
from driftscore.live.blocks import AudioBlock

BLOCK_S = 0.1
"""Length of a block that a source gives."""
STALL_S = 5.0
"""A source that gives no audio for so long has stalled."""


class SourceError(AudioError):
    """A source that cannot be opened, has ended or gives no audio any more."""


class Source(Protocol):
    """A microphone, a stream or a file."""

    waits: bool
    """Whether the source waits for us; what is not taken in time from others is lost."""
    endless: bool
    """Whether an end is a failure, after which the source is opened again."""

    def describe(self) -> str:
        """Return what it is, for messages; without passwords."""

    def blocks(self, stop: threading.Event) -> Iterator[AudioBlock]:
        """Open the source and yield its audio until `stop` is set or the audio ends.

        Raises `SourceError` when it cannot be opened or stalls.
        """
