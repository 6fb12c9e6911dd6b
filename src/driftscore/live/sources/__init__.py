"""Sources of live audio, one file each, and how they are named on a command line.

    mic                  the default microphone
    mic:usb              the first microphone with "usb" in its name
    -                    standard input
    rtsp://camera/1      anything that ffmpeg reads
    night.wav            a file, played as if live

A name before a sign of equality, as in `yard=rtsp://camera/1`, is what the source is called.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from driftscore.errors import UsageError
from driftscore.files import is_url
from driftscore.live.sources.ffmpeg import FfmpegInput
from driftscore.live.sources.microphone import Microphone
from driftscore.live.sources.pipes import RawFormat
from driftscore.live.sources.played import PlayedFile
from driftscore.live.sources.protocol import Source
from driftscore.live.sources.stdin import StandardInput

__all__ = ["FfmpegInput", "Microphone", "PlayedFile", "RawFormat", "Source", "SourceOptions",
           "StandardInput", "find_sources"]  # fmt: skip

_NAMED = re.compile(r"([A-Za-z0-9][\w-]{0,39})=(.+)", re.DOTALL)


@dataclass(frozen=True)
class SourceOptions:
    """What the sources of a command share."""

    speed: float = 1.0
    raw: RawFormat | None = None
    notify: Callable[[str], None] = lambda _: None


def find_sources(given: Iterable[str], options: SourceOptions) -> dict[str, Source]:
    """Return the sources that a command names, by the name of each."""
    found: dict[str, Source] = {}
    inputs = 0
    for text in given:
        named = _NAMED.fullmatch(text)
        name, spec = (named[1], named[2]) if named else ("", text)
        source = _source(spec, options)
        inputs += isinstance(source, StandardInput)
        name = name or _free(_usual_name(source), found)
        if name in found:
            raise UsageError(f"Two sources are called {name!r}; name them: yard=mic:usb")
        found[name] = source
    if inputs > 1:
        raise UsageError("Standard input can be one source only")
    if not found:
        raise UsageError("No source given; use mic, -, an rtsp:// address or a file")
    return found


def _source(spec: str, options: SourceOptions) -> Source:
    if spec == "-":
        return StandardInput(options.raw, notify=options.notify)
    if spec == "mic" or spec.startswith("mic:"):
        return Microphone(spec[4:])
    if is_url(spec) and not spec.startswith("file://"):
        return FfmpegInput(spec)
    return PlayedFile(spec, speed=options.speed)


def _usual_name(source: Source) -> str:
    kinds = {StandardInput: "stdin", Microphone: "mic", FfmpegInput: "stream", PlayedFile: "file"}
    return kinds[type(source)]


def _free(name: str, taken: dict[str, Source]) -> str:
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}{number}", number + 1
    return free
