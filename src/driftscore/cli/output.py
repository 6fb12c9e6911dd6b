"""What commands share when they write: streams, messages, progress, failed recordings, rows."""

import io
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

import click

from driftscore.audio.decoding import PartialFile
from driftscore.errors import WriteError
from driftscore.formats import OutputRow, OutputValue, visible
from driftscore.storage.files import (
    STDOUT,
    is_stream,
    is_url,
    replacing,
    writing_to,
)
from driftscore.system.process import Interrupted, separate_stderr
from driftscore.system.progress import progress_bar

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from driftscore.backbones import Backbone
    from driftscore.classifier import Classifier
    from driftscore.embedder import Embedded
    from driftscore.scoring.head import Result

_SHOW_S = 0.1  # from one step of the bar to the next
_FEW = 3  # up to this many files no progress bar is drawn


class ClosedStdout(io.TextIOBase):
    """Stands for a stdout that was closed before the command was started."""

    def write(self, text: str) -> int:
        """Refuse to write, in one sentence."""
        raise WriteError("stdout is closed, so nothing can be written; use --out FILE")


def open_streams() -> None:
    """Make the three streams usable: escape what an encoding lacks, replace what is closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: else the next file that is opened would be stdout
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = ClosedStdout()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the end)
    separate_stderr()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_stdout() -> None:
    """Let what is still buffered for stdout go nowhere: Python would fail to write it at exit."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):  # a stream in memory, or one that is closed
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def say(text: str) -> None:
    """Write a line to stderr; control characters of a name are shown as escapes."""
    # In one piece: `print` writes the end of a line by itself, and threads may say something.
    sys.stderr.write("\n".join(map(visible, text.split("\n"))) + "\n")


def counted(number: int, what: str) -> str:
    """Return a number of things in words: 1 event, 2,000 events."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def report_model(backbone: "Backbone", *classifiers: "Classifier") -> None:
    """Report what a model runs in, and which rules were chosen and why."""
    say(f"runtime: {backbone.runtime or f'{backbone.name} does not say what it runs in'}")
    for classifier in classifiers:
        if hasattr(classifier, "rule_"):
            say(f"rule: {classifier.rule_.name} ({classifier.why_})")


@dataclass
class Tally:
    """The recordings that failed: reported on stderr, counted in the exit status."""

    quiet: bool = False
    failed: int = 0
    longest: tuple[float, str] = (0.0, "")
    """The seconds and the name of the longest recording."""
    continues: bool = False
    """Whether a second run does not embed again what this one has embedded."""
    interrupted: Interrupted | None = None

    def fail(self, reason: str) -> None:
        """Count a recording that could not be used, and report it unless quiet."""
        self.failed += 1
        if not self.quiet:
            say(f"skipped: {reason}")

    def finish(self, total: int) -> None:
        """End with status 1 if any recording failed, or with that of an interruption."""
        if self.interrupted is not None:
            raise click.exceptions.Exit(self.interrupted.status)
        if self.failed:
            say(f"{self.failed} of {total} recordings could not be used")
            raise click.exceptions.Exit(1)


Outcome = TypeVar("Outcome", "Embedded", "Result")


def watched(
    work: Callable[[list[str]], Iterator[Outcome]], recordings: list[str], tally: Tally
) -> Iterator[Outcome]:
    """Yield what becomes of recordings, with a progress bar and a tally."""
    total = len(recordings) if len(recordings) > _FEW else 0
    done = shown = 0
    try:
        with progress_bar("Embedding recordings", total) as advance:
            shown_at = time.monotonic()
            for outcome in work(recordings):
                if outcome.error:
                    tally.fail(outcome.error)
                elif outcome.seconds > tally.longest[0]:
                    tally.longest = (outcome.seconds, outcome.source)
                yield outcome
                done += 1
                if time.monotonic() - shown_at > _SHOW_S:
                    advance(done - shown)
                    shown, shown_at = done, time.monotonic()
            advance(done - shown)
    except Interrupted as error:
        error.reached = f" after {done} of {counted(len(recordings), 'recording')}"
        if tally.continues:
            error.advice = (
                ". Run the same command again to continue: recordings that are done are not "
                "embedded again"
            )
        raise


def until_interrupted(rows: Iterable[OutputRow], tally: Tally) -> Iterator[OutputRow]:
    """Yield rows; an interruption ends them early, and `Tally.finish` ends with its status."""
    try:
        yield from rows
    except Interrupted as error:
        tally.interrupted = error
        say(f"stopped{error.reached}; what was found so far is kept{error.advice}")


def cut_of(recording: object) -> str:
    """Return how much of a recording was used, if --partial read one that is truncated."""
    return recording.cut if isinstance(recording, PartialFile) else ""


def with_cuts(rows: Iterable[OutputRow]) -> Iterator[OutputRow]:
    """Yield rows; in `error`, that of a truncated recording has how much of it was used."""
    for row in rows:
        cut = cut_of(row["file"])
        yield {**row, "error": cut} if cut and not row["error"] else row


class _SparedFile(io.FileIO):
    """A file that goes on in the folder of temporary files, whole, when its disk is full."""

    error: OSError | None = None
    elsewhere = ""

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write to the disk of the file, or else to the other one."""
        try:
            return super().write(data)
        except OSError as error:
            if self.error is not None:
                raise
            self.error = error
            number, self.elsewhere = tempfile.mkstemp(Path(self.name).suffix, "driftscore-")
            with open(self.name, "rb") as old, open(number, "wb") as new:
                shutil.copyfileobj(old, new)
                new.flush()
                os.dup2(number, self.fileno())
            return super().write(data)


def save(write: Callable[[str], None], path: str) -> None:
    """Write a file that took long to compute; if it cannot be written, write it elsewhere."""
    try:
        write(path)
    except WriteError as error:
        if is_stream(path):  # whoever reads it has gone
            raise
        with tempfile.NamedTemporaryFile(
            prefix="driftscore-", suffix=Path(path).suffix, delete=False
        ) as elsewhere:
            write(elsewhere.name)
        raise WriteError(f"{error}. The content is in {elsewhere.name} instead") from error


@contextmanager
def output(path: str | None) -> Iterator[IO[str]]:
    """Yield stdout, a device or a pipe, or a file that is moved into place when it is complete.

    `options.out_option` has checked it. If its disk is full, all rows are in the folder of
    temporary files at the end; if that is full too, the rows so far are kept beside it. A name
    that is not UTF-8 is written with escapes.
    """
    if path is None or path == STDOUT:
        yield sys.stdout
        return
    if not is_url(path) and is_stream(path):
        with (
            writing_to(path),
            open(path, "a", encoding="utf-8", errors="backslashreplace") as stream,
        ):
            yield stream
        return
    with replacing(path) as partial:
        file = _SparedFile(partial, "w")
        try:
            with io.TextIOWrapper(io.BufferedWriter(file), "utf-8", "backslashreplace") as stream:
                yield stream
        except OSError as error:
            rest = f"{partial if is_url(path) else path}.partial"
            partial.replace(rest)
            what = f"Cannot write {path}: {error.strerror or error}"
            raise WriteError(f"{what}. The rows that could be written are in {rest}") from error
        if file.error is not None:
            what = f"Cannot write {path}: {file.error.strerror}"
            raise WriteError(f"{what}. The rows are in {file.elsewhere} instead")


def span_row(
    source: str, label: str, start_s: float, end_s: float, score: float, **more: OutputValue
) -> dict[str, OutputValue]:
    """Return the row of a label from one time to another."""
    row: dict[str, OutputValue] = {
        "file": source,
        "start_s": start_s,
        "end_s": end_s,
        "time": "",
        "label": label,
        "score": score,
        **dict.fromkeys(("threshold", "level_db", "snr_db", "unit", "error"), ""),
    }
    return row | {name: "" if value is None else value for name, value in more.items()}
