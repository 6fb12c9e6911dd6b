"""A page with a player for each row, which begins and ends with the row's times.

The page is one file and runs no script. It plays the recordings where they are: their addresses are
those of this machine, or URLs.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import IO
from urllib.parse import quote

from driftscore.formats import OutputRow, cell, flat, full_path, number, visible

_STYLE = (
    "body{font:16px/1.4 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.3rem .6rem;text-align:left;"
    "border-bottom:1px solid #ccc}audio{height:2rem;width:16rem}"
)


def write(
    rows: Iterable[OutputRow], out: IO[str], *, title: str = "", columns: Sequence[str] = ()
) -> None:
    """Write the page, row by row."""
    heading = escape(visible(title))
    out.write(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>driftscore</title>'
        f"<style>{_STYLE}</style></head><body>\n<p>{heading}</p>\n<table>\n"
    )
    keys: list[str] = []
    for row in map(flat, rows):
        if not keys:
            keys = list(row)
            out.write(_line("th", [*map(escape, keys), "sound"]))
        out.write(_line("td", [*(escape(visible(cell(row[key]))) for key in keys), _player(row)]))
    if not keys:
        out.write(_line("th", [escape(key) for key in columns]))
    out.write("</table>\n</body></html>\n")


def _line(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{text}</{tag}>" for text in cells) + "</tr>\n"


def _player(row: OutputRow) -> str:
    """Return a player of the row's part of its recording; nothing for a row without one."""
    source = row.get("file")
    if not isinstance(source, str) or not source or row.get("error"):
        return ""
    remote = "://" in source
    name = source if remote else full_path(source).as_posix()
    address = quote(name.encode("utf-8", "surrogateescape"), safe="/:?&=%" if remote else "/")
    if not remote:
        address = f"file://{'' if address.startswith('/') else '/'}{address}"
    if row.get("start_s") not in (None, "") and "end_s" in row:
        address += f"#t={number(row, 'start_s'):.2f},{number(row, 'end_s'):.2f}"
    return f'<audio controls preload="none" src="{escape(address)}"></audio>'
