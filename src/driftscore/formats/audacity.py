"""A label track of Audacity: start, end and label of each event of one recording.

The score follows the label in parentheses, as in "dog bark (4.12)".
"""

from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.errors import UsageError
from driftscore.formats import OutputRow, decimals, spans, visible

SPANS = True
ONE_RECORDING = True


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Write one line per event; a label track has no place for the name of its recording."""
    events = [row for row in spans(rows, "audacity") if row["label"]]
    if len({row["file"] for row in events}) > 1:
        raise UsageError("An Audacity label track belongs to one recording")
    for row in events:
        score = decimals(row, "score", 2)
        text = visible(str(row["label"])) + (f" ({score})" if score else "")
        out.write(f"{row['start_s']:.6f}\t{row['end_s']:.6f}\t{text}\n")
