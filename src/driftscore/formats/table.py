"""A table to read in a terminal, with scores to three decimals."""

import io
import textwrap
from collections.abc import Iterable, Sequence
from typing import IO, Literal

from driftscore.formats._values import flat, plain, visible
from driftscore.formats.protocol import OutputRow, OutputValue

_PIPE_WIDTH = 200


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Draw a table as wide as the terminal, or up to 200 characters wide in a pipe or file."""
    shown = _without_empty_columns([flat(row) for row in rows])
    keys = list(shown[0]) if shown else [name for name in columns if name != "unit"]
    unicode = (getattr(out, "encoding", None) or "utf-8").lower().startswith("utf")
    if not out.isatty() and unicode and (lines := plain_lines(shown, keys, title)):
        out.write("\n".join(lines) + "\n")
    else:
        _write_rich(shown, keys, out, title, unicode=unicode)


def plain_lines(rows: Sequence[OutputRow], keys: Sequence[str], title: str) -> list[str]:
    """Return the lines that rich would draw, or none if that takes more than filling columns.

    Importing rich takes a tenth of the time that a command with one recording takes.
    """
    texts = [[visible(key) for key in keys], *([_short(row[key]) for key in keys] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    width = sum(widths) + 3 * len(widths) + 1
    words = title.split()
    simple = all(_is_simple(text) for text in (title, *(cell for row in texts for cell in row)))
    simple = simple and "[" not in title and title.count(":") < 2  # no markup, no emoji
    if not rows or not simple or width > _PIPE_WIDTH or max(map(len, words), default=0) > width:
        return []
    numeric = [_is_numeric(rows, key) for key in keys]
    lines = [
        "  " + "   ".join(
            cell.rjust(size) if right else cell.ljust(size)
            for cell, size, right in zip(row, widths, numeric, strict=True)
        )
        for row in texts
    ]  # fmt: skip
    lines.insert(1, " " + "\u2500" * (width - 2))
    return [
        *textwrap.wrap(title, width, break_on_hyphens=False),
        "",
        *(line.rstrip() for line in lines),
        "",
    ]


def _is_simple(text: str) -> bool:
    """Return whether a text is as wide as it is long, with single spaces between its words."""
    return text.isascii() and text == " ".join(text.split())


def _is_numeric(rows: Sequence[OutputRow], key: str) -> bool:
    return all(isinstance(row[key], (int, float)) or row[key] == "" for row in rows)


def _write_rich(
    rows: Sequence[OutputRow], keys: Sequence[str], out: IO[str], title: str, *, unicode: bool
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    lines = box.SIMPLE_HEAD if unicode else box.ASCII
    table = Table(title=title or None, box=lines, title_justify="left")
    for key in keys:
        side: Literal["left", "right"] = "right" if _is_numeric(rows, key) else "left"
        table.add_column(Text(visible(key)), justify=side, overflow="fold")
    for row in rows:
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
