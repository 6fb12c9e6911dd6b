"""A table to read in a terminal, with scores to three decimals."""

import io
from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.formats._values import flat, plain, visible
from driftscore.formats.protocol import OutputRow, OutputValue

_PIPE_WIDTH = 200


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Draw a table as wide as the terminal, or up to 200 characters wide in a pipe or file."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    unicode = (getattr(out, "encoding", None) or "utf-8").lower().startswith("utf")
    lines = box.SIMPLE_HEAD if unicode else box.ASCII
    table = Table(title=title or None, box=lines, title_justify="left")
    shown = _without_empty_columns([flat(row) for row in rows])
    for key in shown[0] if shown else [name for name in columns if name != "unit"]:
        numeric = all(isinstance(row[key], (int, float)) or row[key] == "" for row in shown)
        table.add_column(
            Text(visible(key)), justify="right" if numeric else "left", overflow="fold"
        )
    for row in shown:
        style = "red" if row.get("error") else ""
        table.add_row(*(Text(_short(value)) for value in row.values()), style=style)
    if out.isatty():
        Console(file=out, highlight=False).print(table)
        return
    drawn = io.StringIO()
    Console(file=drawn, width=_PIPE_WIDTH, highlight=False).print(table)
    out.write("\n".join(line.rstrip() for line in drawn.getvalue().splitlines()) + "\n")


def _without_empty_columns(rows: Sequence[OutputRow]) -> list[OutputRow]:
    """Drop `error` and `time` where no row has one, and the unit, which the title says."""
    dropped = {"unit", *(key for key in ("error", "time") if not any(row.get(key) for row in rows))}
    return [{key: value for key, value in row.items() if key not in dropped} for row in rows]


def _short(value: OutputValue) -> str:
    return f"{value:.3f}" if isinstance(value, float) else visible(str(plain(value)))
