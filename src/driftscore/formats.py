"""Rows out: a table to look at, or csv, JSON lines, Audacity labels and Raven selections.

Rows are plain dicts with the same keys in the same order. `csv` and `jsonl` keep every
value; scores are written with six decimals, the precision that float32 holds.
"""

import csv
import io
import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

from driftscore.errors import UsageError, unknown

Row = dict[str, Any]
SPAN_FORMATS = ("audacity", "raven")
"""Formats whose rows are stretches of time: they need file, start_s, end_s and label."""


_PIPE_WIDTH = 200


def write_rows(rows: Iterable[Row], format: str, out: IO[str], *, title: str = "") -> None:
    """Write rows in a format; csv and jsonl are written row by row as they come."""
    check_format(format)
    _WRITERS[format](rows, out, title)


def check_format(format: str) -> None:
    """Refuse an unknown format before any work is done."""
    if format not in _WRITERS:
        raise unknown("format", format, _WRITERS)


def _write_csv(rows: Iterable[Row], out: IO[str], title: str) -> None:
    writer, flush = csv.writer(out, lineterminator="\n"), _flush(out)
    for number, row in enumerate(map(_flat, rows)):
        if number == 0:
            writer.writerow(row)
        writer.writerow([v if v.__class__ is str else _plain(v) for v in row.values()])
        flush()


def _write_jsonl(rows: Iterable[Row], out: IO[str], title: str) -> None:
    flush = _flush(out)
    for row in rows:
        out.write(json.dumps(_rounded(row), ensure_ascii=False) + "\n")
        flush()


def _flush(out: IO[str]) -> Callable[[], None]:
    """Return what a row is followed by: somebody may watch a pipe or a screen, not a file."""
    try:
        watched = not stat.S_ISREG(os.fstat(out.fileno()).st_mode)
    except OSError:  # a stream of Python's own
        watched = False
    return out.flush if watched else lambda: None


def _write_audacity(rows: Iterable[Row], out: IO[str], title: str) -> None:
    """Write an Audacity label track: start, end, label; it has no place for a file name."""
    spans = list(_spans(rows, "audacity"))
    if len({row["file"] for row in spans}) > 1:
        raise UsageError(
            "An Audacity label track belongs to one recording; classify the files one by one, "
            "or use --format raven, csv or jsonl"
        )
    for row in spans:
        out.write(f"{row['start_s']:.6f}\t{row['end_s']:.6f}\t{row['label']}\n")


def _write_raven(rows: Iterable[Row], out: IO[str], title: str) -> None:
    """Write a Raven selection table; Begin File says which recording a row belongs to."""
    columns = ["Selection", "View", "Channel", "Begin Time (s)", "End Time (s)"]
    columns += ["Begin File", "Label", "Score"]
    out.write("\t".join(columns) + "\n")
    for number, row in enumerate(_spans(rows, "raven"), start=1):
        times = f"{row['start_s']:.6f}\t{row['end_s']:.6f}"
        score = f"{row['score']:.6f}" if "score" in row else ""
        label = f"{row['file']}\t{row['label']}\t{score}"
        out.write(f"{number}\tSpectrogram 1\t1\t{times}\t{label}\n")


def _write_table(rows: Iterable[Row], out: IO[str], title: str) -> None:
    """Draw a table as wide as the terminal, or as wide as it needs to be in a pipe."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
    shown = _without_empty_columns([_flat(row) for row in rows])
    for key in shown[0] if shown else ():
        numeric = all(isinstance(row[key], (int, float)) or row[key] == "" for row in shown)
        table.add_column(key, justify="right" if numeric else "left", overflow="fold")
    for row in shown:
        style = "red" if row.get("error") else ""
        table.add_row(*(Text(_short(value)) for value in row.values()), style=style)
    if out.isatty():
        Console(file=out, highlight=False).print(table)
        return
    drawn = io.StringIO()
    Console(file=drawn, width=_PIPE_WIDTH, highlight=False).print(table)
    out.write("\n".join(line.rstrip() for line in drawn.getvalue().splitlines()) + "\n")


def _without_empty_columns(rows: Sequence[Row]) -> list[Row]:
    """Drop `error` where there is none: a table is for reading."""
    if any(row.get("error") for row in rows):
        return list(rows)
    return [{key: value for key, value in row.items() if key != "error"} for row in rows]


def _spans(rows: Iterable[Row], format: str) -> Iterator[Row]:
    """Yield the rows that are stretches of time; failed files are told on stderr, not here."""
    for row in rows:
        if row.get("error"):
            continue
        if "start_s" not in row or "label" not in row:
            raise UsageError(
                f"--format {format} writes a label with its times a row: "
                "not with --compare or --multi, and not of stored embeddings"
            )
        yield row


def _flat(row: Row) -> Row:
    """Spread the scores of all labels over columns of their own."""
    if "scores" not in row:
        return row
    flat: Row = {}
    for key, value in row.items():
        if key == "scores":
            flat |= {f"score:{label}": score for label, score in value.items()}
        else:
            flat[key] = value
    return flat


def _rounded(value: Any) -> Any:
    """Round floats as csv does; infinity (no runner-up) has no place in JSON."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6f}"
    return "; ".join(value) if isinstance(value, list) else value


def _short(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(_plain(value))


_WRITERS: dict[str, Callable[[Iterable[Row], IO[str], str], None]] = {
    "table": _write_table,
    "csv": _write_csv,
    "jsonl": _write_jsonl,
    "audacity": _write_audacity,
    "raven": _write_raven,
}
