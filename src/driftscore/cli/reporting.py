"""What commands share when they write: messages, progress, failed recordings, the output."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

import typer

from driftscore.backbones import Backbone
from driftscore.embedder import EmbeddedBlock
from driftscore.files import STDOUT, is_stream, is_url, replacing, writing_to
from driftscore.formats import visible
from driftscore.progress import progress_bar
from driftscore.result import ResultBlock

_FEW = 3  # up to this many files no progress bar is drawn


def say(text: str) -> None:
    """Write a line to stderr; control characters of a name are shown as escapes."""
    print("\n".join(map(visible, text.split("\n"))), file=sys.stderr)


def counted(number: int, what: str) -> str:
    """Return a number of things in words: 1 event, 2,000 events."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def report_runtime(backbone: Backbone) -> None:
    """Report what a model runs in."""
    say(f"runtime: {backbone.runtime or f'{backbone.name} does not say what it runs in'}")


@dataclass
class Tally:
    """The recordings that failed: reported on stderr, counted in the exit status."""

    quiet: bool = False
    failed: list[str] = field(default_factory=list)

    def fail(self, reason: str) -> None:
        """Count a recording that could not be used, and report it unless quiet."""
        self.failed.append(reason)
        if not self.quiet:
            say(f"skipped: {reason}")

    def finish(self, total: int) -> None:
        """End with status 1 if any recording failed."""
        if self.failed:
            say(f"{len(self.failed)} of {total} recordings could not be used")
            raise typer.Exit(1)


Block = TypeVar("Block", EmbeddedBlock, ResultBlock)


def watched(
    work: Callable[[list[str]], Iterator[Block]], recordings: list[str], tally: Tally
) -> Iterator[Block]:
    """Yield the blocks of recordings, with a progress bar; count the recordings that failed."""
    total = len(recordings) if len(recordings) > _FEW else 0
    with progress_bar("Embedding recordings", total) as advance:
        for block in work(recordings):
            for error in filter(None, block.errors):
                tally.fail(error)
            yield block
            advance(len(block))


@contextmanager
def output(path: str | None) -> Iterator[IO[str]]:
    """Yield stdout, a device or a pipe, or a file that is moved into place when it is complete."""
    if path is None or path == STDOUT:
        yield sys.stdout
        return
    if not is_url(path) and is_stream(path):
        with writing_to(path), _text(path, "a") as stream:
            yield stream
        return
    with replacing(path) as partial, _text(partial) as stream:
        yield stream


def _text(path: str | Path, mode: str = "w") -> IO[str]:
    """Open a text file; a name that is not UTF-8 is written with escapes."""
    return open(path, mode, encoding="utf-8", errors="backslashreplace")
