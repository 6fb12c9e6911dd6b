"""A selection table of Raven: one line per event, with the recording that it belongs to."""

from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.formats._values import spans, visible
from driftscore.formats.protocol import OutputRow

SPANS = True
_COLUMNS = ("Selection", "View", "Channel", "Begin Time (s)", "End Time (s)", "Begin File",
            "Label", "Score")  # fmt: skip


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Write a header and one line per event, as the rows arrive."""
    out.write("\t".join(_COLUMNS) + "\n")
    for count, row in enumerate(spans(rows, "raven"), start=1):
        times = f"{row['start_s']:.6f}\t{row['end_s']:.6f}"
        score = f"{row['score']:.6f}" if "score" in row else ""
        label = f"{visible(str(row['file']))}\t{visible(str(row['label']))}\t{score}"
        out.write(f"{count}\tSpectrogram 1\t1\t{times}\t{label}\n")
