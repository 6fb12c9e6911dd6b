"""One JSON object per line."""

from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.formats import OutputRow, after_row, json_text


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Write one JSON object per row, as the rows arrive."""
    flush = after_row(out)
    for row in rows:
        out.write(json_text(row, out) + "\n")
        flush()
