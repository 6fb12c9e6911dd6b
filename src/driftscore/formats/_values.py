"""How values are written as text, and when a stream is flushed; shared by the formats."""

import csv
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from driftscore.errors import UsageError
from driftscore.formats.protocol import OutputRow, OutputValue


def flat(row: OutputRow) -> OutputRow:
    """Return a row with the scores of all labels in columns of their own."""
    if "scores" not in row:
        return row
    spread: dict[str, OutputValue] = {}
    for key, value in row.items():
        if key == "scores" and isinstance(value, Mapping):
            spread |= {f"score:{label}": score for label, score in value.items()}
        else:
            spread[key] = value
    return spread


def plain(value: OutputValue) -> object:
    """Return a value as csv holds it: a number with six decimals, a list joined."""
    if isinstance(value, float):
        return f"{value:.6f}"
    return "; ".join(value) if isinstance(value, list) else value


_FORMULA = frozenset("=+-@\t\r")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, with those that begin the escape sequences of terminals or turn text."""


def cell(value: OutputValue) -> str:
    """Return a value as a cell of csv; a spreadsheet must not run a text as a formula."""
    if not isinstance(value, (str, list)):
        return "" if value is None else str(plain(value))
    text = value if isinstance(value, str) else "; ".join(value)
    if text[:1] in _FORMULA:
        text = f"'{text}"
    # The csv module would not quote a carriage return: a row would break.
    return text.replace("\r", "\\r") if "\r" in text else text


def visible(text: str) -> str:
    """Return a text on one line, with its control characters as escapes."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def json_text(row: OutputRow, out: IO[str]) -> str:
    """Return a row as JSON, with escapes if the stream cannot hold every character."""
    unicode = (getattr(out, "encoding", None) or "utf-8").lower().startswith("utf")
    return json.dumps(rounded(row), ensure_ascii=not unicode)


def rounded(value: OutputValue | OutputRow) -> object:
    """Return a value as JSON holds it: floats as in csv, infinity (no runner-up) as null."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def after_row(out: IO[str]) -> Callable[[], None]:
    """Return what to call after each row: flush a pipe or a terminal, do nothing for a file."""
    try:
        flushed = not stat.S_ISREG(os.fstat(out.fileno()).st_mode)
    except OSError:  # a stream in memory
        flushed = False
    return out.flush if flushed else lambda: None


def write_csv(rows: Iterable[OutputRow], out: IO[str], columns: Sequence[str]) -> None:
    """Write a header and one line per row, as the rows arrive; the header also without a row."""
    writer, flush = csv.writer(out, lineterminator="\n"), after_row(out)
    header: Iterable[str] = columns
    for number, row in enumerate(map(flat, rows)):
        if number == 0:
            writer.writerow([cell(key) for key in row])
            header = ()
        cells = [  # `cell` of each; it is called for what is not as most values are
            f"{v:.6f}" if v.__class__ is float
            else v if v.__class__ is str and v[:1] not in _FORMULA and "\r" not in v
            else cell(v)
            for v in row.values()
        ]  # fmt: skip
        line = ",".join(cells)
        if not line or '"' in line or "\n" in line or line.count(",") != len(cells) - 1:
            writer.writerow(cells)
        else:  # nothing to quote: what the writer would write, in a third of its time
            out.write(f"{line}\n")
        flush()
    if header:
        writer.writerow(header)


def spans(rows: Iterable[OutputRow], format: str) -> Iterator[OutputRow]:
    """Yield the rows that are spans of time; failed files are reported on stderr, not here."""
    for row in rows:
        if row.get("error"):
            continue
        if "start_s" not in row or "label" not in row:
            raise UsageError(
                f"--format {format} writes one label with its times per row: it cannot be used "
                "with --compare, --multi, stored embeddings or a list"
            )
        yield row


def labelled(rows: Iterable[OutputRow], format: str) -> Iterator[OutputRow]:
    """Yield the spans that have a label; a recording without an event has a row without one."""
    return (row for row in spans(rows, format) if row["label"])


def number(row: OutputRow, key: str) -> float | None:
    """Return the number that a row has for a key, None if it has none."""
    value = row.get(key)
    return float(value) if isinstance(value, (int, float)) else None


def decimals(value: float | None, places: int = 6) -> str:
    """Return a number with a fixed number of decimals; nothing for None."""
    return "" if value is None else f"{value:.{places}f}"


def full_path(name: str) -> Path:
    """Return the absolute path of a recording, as programs that open it later need it."""
    try:
        return Path(name).absolute()
    except OSError:  # the working directory is gone
        return Path(name)
