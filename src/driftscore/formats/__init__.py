"""Output formats, one per file: a table, csv, JSON, and the tables of programs that show sound.

`protocol.py` says what a format's file defines. A format can also be an entry point of the group
`driftscore.formats`, or "module:function". Scores are written with six decimals, the precision
of float32.
"""

from collections.abc import Iterable, Sequence
from typing import IO

from driftscore import registry
from driftscore.formats._values import visible
from driftscore.formats.protocol import Format, OutputRow, OutputValue, Write, describe_format

__all__ = [
    "Format",
    "OutputRow",
    "OutputValue",
    "Write",
    "find_format",
    "format_names",
    "visible",
    "write_rows",
]

KIND = registry.Kind("format", __name__, "write")
DEFAULT_FORMAT = "table"


def format_names() -> tuple[str, ...]:
    """Return the names of all output formats: ours and those of entry points."""
    return registry.names(KIND)


def find_format(format: str | Format) -> Format:
    """Return an output format by its name, or as "module:function"."""
    if isinstance(format, Format):
        return format
    return describe_format(format, registry.find(KIND, format))


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
