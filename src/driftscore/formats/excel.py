"""The same as csv, with a byte order mark: Excel then reads accents and other scripts correctly."""

from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.formats._values import write_csv
from driftscore.formats.protocol import OutputRow

MARK = "\ufeff"


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Write the mark, a header and one line per row, as the rows arrive."""
    if (getattr(out, "encoding", None) or "utf-8").lower().startswith("utf"):
        out.write(MARK)  # another encoding has no such character
    write_csv(rows, out, columns)
