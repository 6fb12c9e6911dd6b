"""Comma-separated values with a header, one column per label with --multi."""

import csv
from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.formats._values import after_row, cell, flat
from driftscore.formats.protocol import OutputRow


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Write a header and one line per row, as the rows arrive."""
    writer, flush = csv.writer(out, lineterminator="\n"), after_row(out)
    header: Iterable[str] = columns
    for number, row in enumerate(map(flat, rows)):
        if number == 0:
            writer.writerow([cell(key) for key in row])
            header = ()
        writer.writerow([cell(value) for value in row.values()])
        flush()
    if header:
        writer.writerow(header)
