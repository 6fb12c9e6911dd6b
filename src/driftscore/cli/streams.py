"""The standard streams of the command: closed, full, or in an encoding that lacks a character."""

import io
import os
import sys

from driftscore.errors import WriteError
from driftscore.silence import separate_stderr


class ClosedStdout(io.TextIOBase):
    """Stands for a stdout that was closed before the command was started."""

    def write(self, text: str) -> int:
        """Refuse to write, in one sentence."""
        raise WriteError("stdout is closed, so nothing can be written; use --out FILE")


def open_streams() -> None:
    """Make the three streams usable: escape what an encoding lacks, replace what is closed."""
    _fill_closed_descriptors()
    columns = os.environ.get("COLUMNS", "")
    if columns and not (columns.isdecimal() and 20 <= int(columns[:9]) < 100_000):
        del os.environ["COLUMNS"]  # typer would fold its messages away
    if sys.stdout is None:
        sys.stdout = ClosedStdout()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the end)
    separate_stderr()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _fill_closed_descriptors() -> None:
    """Open /dev/null in the place of closed streams: else the next file opened would be stdout."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one


def discard_stdout() -> None:
    """Let what is still buffered for stdout go nowhere: Python would fail to write it at exit."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):  # a stream in memory, or one that is closed
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
