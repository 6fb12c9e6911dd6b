"""A selection table of Raven: one line per event, with the recording that it belongs to.

Raven opens several recordings as one long sound. Begin and End Time therefore count from the
start of the first recording, File Offset from the start of the event's own; this needs the length
of every recording (`duration_s`), also of those without an event. A row without a length counts
from the start of its own recording. The frequency columns span the complete band.
"""

from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.formats import OutputRow, after_row, decimals, full_path, number, spans, visible

SPANS = True
LENGTHS = True
_COLUMNS = (
    "Selection", "View", "Channel", "Begin Time (s)", "End Time (s)", "Low Freq (Hz)",
    "High Freq (Hz)", "File Offset (s)", "Begin File", "Begin Path", "Label", "Score",
    "Level (dBFS)", "SNR (dB)", "Clock Time",
)  # fmt: skip
_MAX_HZ = 8000.0
"""The upper end of the band where the sample rate is not given; within that of most recordings."""


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Write a header and one line per event, as the rows arrive."""
    flush = after_row(out)
    out.write("\t".join(_COLUMNS) + "\n")
    count, file, before_s, length_s = 0, "", 0.0, 0.0
    for row in spans(rows, "raven"):
        if str(row["file"]) != file:
            file, before_s, length_s = str(row["file"]), before_s + length_s, 0.0
        length_s = number(row, "duration_s")
        if not row["label"]:  # a recording without an event
            continue
        count += 1
        start_s, end_s, rate = (number(row, key) for key in ("start_s", "end_s", "rate"))
        path = full_path(file)
        cells = [
            str(count), "Spectrogram 1", "1",
            f"{before_s + start_s:.6f}", f"{before_s + end_s:.6f}",
            "0.0", f"{rate / 2 if rate else _MAX_HZ:.1f}", f"{start_s:.6f}",
            visible(path.name), visible(str(path)), visible(str(row["label"])),
            decimals(row, "score"), decimals(row, "level_db", 1), decimals(row, "snr_db", 1),
            visible(str(row.get("time") or "")),
        ]  # fmt: skip
        out.write("\t".join(cells) + "\n")
        flush()
