"""One JSON array of all rows."""

from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.formats import OutputRow, after_row, json_text


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Write the rows as one JSON array, one line per row, as the rows arrive."""
    flush, before = after_row(out), "[\n"
    for row in rows:
        out.write(before + json_text(row, out))
        flush()
        before = ",\n"
    out.write("[]\n" if before == "[\n" else "\n]\n")
