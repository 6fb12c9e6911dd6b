"""A table that Kaleidoscope opens: INDIR, FOLDER, IN FILE, OFFSET, DURATION, TOP1MATCH, SCORE.

OFFSET and DURATION are seconds within the file. DATE and TIME are those of the event where the
clock time is known; MANUAL ID is empty, for the answers of the person who reviews the events.
"""

import csv
from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.formats._values import (
    after_row,
    cell,
    decimals,
    full_path,
    labelled,
    number,
    visible,
)
from driftscore.formats.protocol import OutputRow

SPANS = True
_COLUMNS = ("INDIR", "FOLDER", "IN FILE", "OFFSET", "DURATION", "TOP1MATCH", "SCORE", "DATE",
            "TIME", "MANUAL ID")  # fmt: skip


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Write a header and one line per event, as the rows arrive."""
    writer, flush = csv.writer(out, lineterminator="\n"), after_row(out)
    writer.writerow(_COLUMNS)
    for row in labelled(rows, "kaleidoscope"):
        path = full_path(str(row["file"]))
        start, end = number(row, "start_s") or 0.0, number(row, "end_s") or 0.0
        date, _, clock = str(row.get("time") or "").partition("T")
        score = decimals(number(row, "score"))
        place = map(_text, (str(path.parent.parent), path.parent.name, path.name))
        what = (_text(str(row["label"])), score, _text(date), _text(clock[:8]), "")
        writer.writerow([*place, decimals(start), decimals(end - start), *what])
        flush()


def _text(text: str) -> object:
    return cell(visible(text))
