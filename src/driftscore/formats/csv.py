"""Comma-separated values with a header, one column per label with --multi."""

import csv
from collections.abc import Iterable, Sequence
from functools import partial
from typing import IO

from driftscore.formats import OutputRow, after_row, cell, flat


def write(
    rows: Iterable[OutputRow],
    out: IO[str],
    *,
    title: str = "",
    columns: Sequence[str] = (),
    spreadsheet: bool = False,
) -> None:
    """Write a header, also without a row, and one line per row, as the rows arrive.

    With `spreadsheet` a text that begins like a formula gets an apostrophe before it.
    """
    cells = partial(cell, spreadsheet=spreadsheet)
    writer, flush = csv.writer(out, lineterminator="\n"), after_row(out)
    header: Iterable[str] = columns
    for number, row in enumerate(map(flat, rows)):
        if number == 0:
            writer.writerow(map(cells, row))
            header = ()
        writer.writerow(map(cells, row.values()))
        flush()
    if header:
        writer.writerow(header)
