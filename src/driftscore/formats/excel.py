"""csv for Excel: accents are read right, no text is run as a formula, times are read as times.

A byte order mark says that it is UTF-8. The clock time of a row is written without its zone, as
2026-11-16 03:15:00.500: Excel reads no other form of ISO 8601 as a time.
"""

import re
from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.formats import OutputRow, csv, is_unicode

_ZONE = re.compile(r"(Z|[+-]\d\d:\d\d)$")


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Write the mark, a header and one line per row, as the rows arrive."""
    if is_unicode(out):
        out.write("\ufeff")  # another encoding has no such character
    timed = (
        {**row, "time": _ZONE.sub("", str(row["time"])).replace("T", " ")} if "time" in row else row
        for row in rows
    )
    csv.write(timed, out, columns=columns, spreadsheet=True)
