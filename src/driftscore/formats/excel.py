"""csv for Excel: a byte order mark, so that accents are read right; no text is run as a formula."""

from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.formats import OutputRow, csv, is_unicode


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Write the mark, a header and one line per row, as the rows arrive."""
    if is_unicode(out):
        out.write("\ufeff")  # another encoding has no such character
    csv.write(rows, out, columns=columns, spreadsheet=True)
