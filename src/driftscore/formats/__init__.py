"""Output formats, one per file: a table, csv, JSON, and the tables of programs that show sound.

Comes in: rows. Goes out: text on a stream. May import: `storage`, `system`, `errors`.
This file says what a format is, finds one by its name, and writes the values that formats share.

A format is a module (or any object) with

    write(rows, out, *, title="", columns=()) -> None     write the rows to a text stream
    SPANS = True                                          optional: its rows are spans of time
    LENGTHS = True                                        optional: it needs the length of each
                                                          recording, also of one without an event
    ONE_RECORDING = True                                  optional: it has no place for a file name

or a plain function like `write`; it can also be an entry point of the group `driftscore.formats`,
or "module:function". A format of spans receives rows with the keys file, start_s, end_s, label,
score and error; every other one receives the rows of the command as they are. A span may also have
time (the clock time of its start in ISO 8601, or ""), threshold, level_db and snr_db (None if
unknown), and of its recording duration_s and rate. With LENGTHS a recording without an event has
one row with an empty label. Scores are written with six decimals, the precision of float32.
"""

import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import dumps  # `json` itself is a format of this package
from pathlib import Path
from typing import IO

from driftscore.errors import UsageError
from driftscore.system import plugins as registry

KIND = registry.Kind("format", __name__, "write")
DEFAULT_FORMAT = "table"

OutputValue = str | float | Sequence[str] | Mapping[str, str | float] | None
"""One value of a row: text, a number, a list of labels, or the scores of all labels."""
OutputRow = Mapping[str, OutputValue]
"""One row; the rows of one output have the same keys in the same order."""
Write = Callable[..., None]
"""write(rows, out, *, title, columns); `columns` names the keys in case there is no row."""

_FORMULA = frozenset("=+-@\t\r")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, with those that begin the escape sequences of terminals or turn text."""


@dataclass(frozen=True)
class Format:
    """An output format with everything that the command asks about it."""

    name: str
    write: Write
    spans: bool = False
    """Whether each row must be a label with its start and end."""
    lengths: bool = False
    """Whether rows need the length of their recording, and recordings without an event a row."""
    one_recording: bool = False
    """Whether all rows must be those of one recording."""


def format_names() -> tuple[str, ...]:
    """Return the names of all output formats: ours and those of entry points."""
    return registry.names(KIND)


def find_format(format: str | Format) -> Format:
    """Return an output format by its name, or as "module:function"."""
    if isinstance(format, Format):
        return format
    plugin = registry.find(KIND, format)
    write = getattr(plugin, "write", plugin)
    if not callable(write):
        raise UsageError(
            f"The format {format!r} is neither a function nor a module that defines "
            "write(rows, ...)"
        )
    names = ("SPANS", "LENGTHS", "ONE_RECORDING")
    return Format(format, write, *(bool(getattr(plugin, name, False)) for name in names))


def write_rows(
    rows: Iterable[OutputRow],
    format: str | Format,
    out: IO[str],
    *,
    title: str = "",
    columns: Sequence[str] = (),
) -> None:
    """Write rows in a format; `columns` are their keys, for a header where there is no row.

    csv, json and jsonl are written row by row as the rows arrive.
    """
    find_format(format).write(rows, out, title=title, columns=columns)


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


def cell(value: OutputValue, *, spreadsheet: bool = False) -> str:
    """Return a value as a cell of csv; a spreadsheet must not run a text as a formula."""
    if isinstance(value, float):
        return f"{value:.6f}"
    text = "; ".join(value) if isinstance(value, list) else "" if value is None else str(value)
    if spreadsheet and text[:1] in _FORMULA and not isinstance(value, int):
        text = f"'{text}"
    # The csv module would not quote a carriage return: a row would break.
    return text.replace("\r", "\\r") if "\r" in text else text


def visible(text: str) -> str:
    """Return a text on one line; control characters, and bytes that are no UTF-8, are escapes."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def json_text(row: OutputRow, out: IO[str]) -> str:
    """Return a row as JSON, with escapes if the stream cannot hold every character."""
    return dumps(_rounded(row), ensure_ascii=not is_unicode(out))


def is_unicode(out: IO[str]) -> bool:
    """Return whether a stream can hold every character."""
    return (getattr(out, "encoding", None) or "utf-8").lower().startswith("utf")


def _rounded(value: OutputValue | OutputRow) -> object:
    """Return a value as JSON holds it: floats as in csv, infinity (no runner-up) as null."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
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


def spans(rows: Iterable[OutputRow], format: str) -> Iterator[OutputRow]:
    """Yield the rows that are spans of time; failed files are reported on stderr, not here."""
    for row in rows:
        if row.get("error") and not row.get("label"):
            continue
        if "start_s" not in row or "label" not in row:
            raise UsageError(
                f"--format {format} writes one label with its times per row: it cannot be used "
                "with --compare, --multi, stored embeddings or a list"
            )
        yield row


def number(row: OutputRow, key: str) -> float:
    """Return the number that a row has for a key, 0 if it has none."""
    value = row.get(key)
    return float(value) if isinstance(value, (int, float)) else 0.0


def decimals(row: OutputRow, key: str, places: int = 6) -> str:
    """Return the number that a row has for a key, with a fixed number of decimals, or nothing."""
    value = row.get(key)
    return f"{value:.{places}f}" if isinstance(value, (int, float)) else ""


def full_path(name: str) -> Path:
    """Return the absolute path of a recording, as programs that open it later need it."""
    try:
        return Path(name).absolute()
    except OSError:  # the working directory is gone
        return Path(name)
