"""Comma-separated values with a header, one column per label with --multi."""

from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.formats._values import write_csv
from driftscore.formats.protocol import OutputRow


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Write a header and one line per row, as the rows arrive."""
    write_csv(rows, out, columns)
