"""A table to read in a terminal, with scores to three decimals."""

import os
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import IO

from driftscore.formats import OutputRow, flat, is_unicode, visible

_PIPE_WIDTH, _MIN_WIDTH = 200, 20
_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Draw a table as wide as the terminal, or up to 200 characters wide in a pipe or file.

    Columns without a value for `error` or `time` are left out, and the unit, which the title says.
    Texts that do not fit are continued below. On a terminal rows with an error are red.
    """
    spread = [flat(row) for row in rows]
    empty = {k for k in ("error", "time") if spread and not any(row.get(k) for row in spread)}
    keys = [key for key in (spread[0] if spread else columns) if key not in {"unit", *empty}]
    limit = shutil.get_terminal_size().columns if out.isatty() else _PIPE_WIDTH
    texts = [[visible(key) for key in keys]]
    for row in spread:
        values = [row[key] for key in keys]
        values = ["; ".join(value) if isinstance(value, list) else value for value in values]
        texts.append([f"{v:.3f}" if isinstance(v, float) else visible(str(v)) for v in values])
    widths = [max(map(width_of, column)) for column in zip(*texts, strict=True)]
    free = max(limit, _MIN_WIDTH) - 3 * len(widths) - 1
    while sum(widths) > free and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    numeric = [
        all(isinstance(row[key], (int, float)) or row[key] == "" for row in spread) for key in keys
    ]
    total = sum(widths) + 3 * len(widths) + 1
    lines = [*textwrap.wrap(title, total, break_on_hyphens=False), ""]
    coloured = out.isatty() and not os.environ.get("NO_COLOR")
    for number, line_texts in enumerate(texts):
        parts = [fold(text, width) for text, width in zip(line_texts, widths, strict=True)]
        red = coloured and number > 0 and bool(spread[number - 1].get("error"))
        for level in range(max(map(len, parts), default=0)):
            cells = []
            for part, width, right in zip(parts, widths, numeric, strict=True):
                text = part[level] if level < len(part) else ""
                blank = " " * (width - width_of(text))
                cells.append(blank + text if right else text + blank)
            line = ("  " + "   ".join(cells)).rstrip()
            lines.append(f"{_RED}{line}{_PLAIN}" if red else line)
        if number == 0:
            lines.append(" " + ("\u2500" if is_unicode(out) else "-") * (total - 2))
    out.write("\n".join([*lines, ""]) + "\n")


def width_of(text: str) -> int:
    """Return the columns that a text takes in a terminal: two for each character of East Asia."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # here: most tables are ASCII

    return cell_len(text)


def fold(text: str, width: int) -> list[str]:
    """Return a text in parts that are at most so wide."""
    if width_of(text) <= width:
        return [text]
    parts = [""]
    for character in text:
        if parts[-1] and width_of(parts[-1] + character) > width:
            parts.append("")
        parts[-1] += character
    return parts
