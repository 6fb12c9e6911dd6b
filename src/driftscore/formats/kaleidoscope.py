"""A table that Kaleidoscope opens: INDIR, FOLDER, IN FILE, OFFSET, DURATION, TOP1MATCH, SCORE.

OFFSET and DURATION are seconds within the file. DATE and TIME are those of the event where the
clock time is known; MANUAL ID is empty, for the answers of the person who reviews the events.
"""

import csv
from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.formats import (
    OutputRow,
    after_row,
    cell,
    decimals,
    full_path,
    number,
    spans,
    visible,
)

SPANS = True
_COLUMNS = ("INDIR", "FOLDER", "IN FILE", "OFFSET", "DURATION", "TOP1MATCH", "SCORE", "DATE",
            "TIME", "MANUAL ID")  # fmt: skip


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Write a header and one line per event, as the rows arrive."""
    writer, flush = csv.writer(out, lineterminator="\n"), after_row(out)
    writer.writerow(_COLUMNS)
    for row in spans(rows, "kaleidoscope"):
        if not row["label"]:
            continue
        path = full_path(str(row["file"]))
        duration = f"{number(row, 'end_s') - number(row, 'start_s'):.6f}"
        date, _, clock = str(row.get("time") or "").partition("T")
        texts = (path.parent.parent, path.parent.name, path.name, row["label"], date, clock[:8])
        *file, label, date, clock = (cell(visible(str(text))) for text in texts)
        score = decimals(row, "score")
        writer.writerow([*file, decimals(row, "start_s"), duration, label, score, date, clock, ""])
        flush()
