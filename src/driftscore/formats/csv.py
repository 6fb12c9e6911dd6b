"""Comma-separated values with a header, one column per label with --multi."""

import csv
from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.formats import OutputRow, OutputValue, after_row, cell, flat


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

    def cells(values: Iterable[OutputValue]) -> list[str]:
        return [  # most are texts, and an archive has a million of them
            value
            if type(value) is str and not spreadsheet and "\r" not in value
            else cell(value, spreadsheet=spreadsheet)
            for value in values
        ]

    writer, flush = csv.writer(out, lineterminator="\n"), after_row(out)
    header: Sequence[str] | None = columns
    for row in map(flat, rows):
        if header is not None:
            writer.writerow(cells(row))
            header = None
        writer.writerow(cells(row.values()))
        flush()
    if header:
        writer.writerow(header)
