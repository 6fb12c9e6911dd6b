"""Sources of live audio, one file each, and how they are named on a command line.

    mic                  the default microphone
    mic:usb              the first microphone with "usb" in its name
    -                    standard input
    rtsp://camera/1      anything that ffmpeg reads
    night.wav            a file, played as if live

A name before a sign of equality, as in `yard=rtsp://camera/1`, is what the source is called.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from driftscore.errors import UsageError
from driftscore.live.blocks import AudioBlock
from driftscore.live.sources.ffmpeg import FfmpegInput
from driftscore.live.sources.microphone import Microphone
from driftscore.live.sources.pipes import RawFormat, StandardInput
from driftscore.live.sources.played import PlayedFile
from driftscore.storage.files import is_url

__all__ = ["FfmpegInput", "Microphone", "PlayedFile", "RawFormat", "Source", "StandardInput",
           "find_sources"]  # fmt: skip

_NAMED = re.compile(r"([A-Za-z0-9][\w-]{0,39})=(.+)", re.DOTALL)


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


def find_sources(
    specs: Iterable[str],
    *,
    speed: float = 1.0,
    raw: RawFormat | None = None,
    notify: Callable[[str], None] = lambda _: None,
) -> dict[str, Source]:
    """Return the sources that a command names, by the name of each."""
    sources: dict[str, Source] = {}
    for text in specs:
        match = _NAMED.fullmatch(text)
        spec = match[2] if match else text
        source: Source
        if spec == "-":
            usual, source = "stdin", StandardInput(raw, notify=notify)
        elif spec == "mic" or spec.startswith("mic:"):
            usual, source = "mic", Microphone(spec[4:])
        elif is_url(spec) and not spec.startswith("file://"):
            usual, source = "stream", FfmpegInput(spec)
        else:
            usual, source = "file", PlayedFile(spec, speed=speed)
        name, number = match[1] if match else usual, 2
        while not match and name in sources:
            name, number = f"{usual}{number}", number + 1
        if name in sources:
            raise UsageError(f"Two sources are called {name!r}; name them: yard=mic:usb")
        sources[name] = source
    if sum(isinstance(source, StandardInput) for source in sources.values()) > 1:
        raise UsageError("Standard input can be one source only")
    if not sources:
        raise UsageError("No source given; use mic, -, an rtsp:// address or a file")
    return sources
