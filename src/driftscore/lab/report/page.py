"""Write the parts of a page as self-contained HTML, or as Markdown.

A figure is an SVG text: part of the page in HTML, a file of its own for Markdown.
"""

import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from driftscore.files import replacing
from driftscore.lab.report.parts import (
    Collapsed,
    Figure,
    Heading,
    Line,
    PagePart,
    Paragraph,
    Table,
    Tiles,
)

_LONG = 24  # a cell with more characters is text, and may be broken into lines


def write_page(title: str, lead: str, parts: Sequence[PagePart], path: Path) -> None:
    """Write a page as HTML, or as Markdown with its figures in a folder."""
    if path.suffix.lower() in (".md", ".markdown"):
        folder = path.with_name(f"{path.stem}_figures")
        for part in parts:
            if isinstance(part, Figure):
                _write(folder / f"{part.name}.svg", part.svg)
        text = to_markdown(title, lead, parts, figures=folder.name)
    else:
        text = to_html(title, lead, parts)
    _write(path, text)


def _write(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")


def to_html(title: str, lead: str, parts: Sequence[PagePart]) -> str:
    """Return the page as one self-contained HTML text."""
    sections = [p.text for p in parts if isinstance(p, Heading)]
    links = "".join(f'<a href="#{_anchor(text)}">{escape(text)}</a>' for text in sections)
    body = "\n".join(_html(part) for part in parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_style()}</style></head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1><p>{escape(lead)}</p><nav>{links}</nav></header>\n"
        f"<main>\n{body}\n</main></body></html>\n"
    )


def to_markdown(title: str, lead: str, parts: Sequence[PagePart], *, figures: str) -> str:
    """Return the page as Markdown; `figures` is the folder of its drawings.

    HTML in a label, a name or an error is shown, not interpreted.
    """
    blocks = [f"# {_plain(title)}", _plain(lead)]
    for part in parts:
        if isinstance(part, Heading):
            blocks.append(f"## {_plain(part.text)}")
        elif isinstance(part, Paragraph):
            blocks += _markdown_words(part)
        elif isinstance(part, Tiles):
            tiles = [[_plain(text) for text in tile] for tile in part.tiles]
            blocks.append("\n".join(f"- **{v}** {what} ({note})" for v, what, note in tiles))
        elif isinstance(part, Figure):
            caption = _plain(part.caption)
            blocks.append(f"![{caption}]({figures}/{part.name}.svg)\n\n*{caption}*")
        else:
            blocks.append(_markdown_table(part.table if isinstance(part, Collapsed) else part))
    return "\n\n".join(blocks) + "\n"


def _plain(text: str) -> str:
    """Return a text as one line of Markdown without HTML, links or pictures; `code` stays."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(
        part if index % 2 else escape(part, quote=False).replace("](", "]\\(")
        for index, part in enumerate(parts)
    )


def _markdown_words(part: Paragraph) -> list[str]:
    texts = [_plain(text) for text in part.texts]
    if len(texts) == 1:
        return texts
    first = [f"**{texts[0]}**"] if part.strong else []
    rest = texts[1:] if part.strong else texts
    return [*first, "\n".join(f"- {text}" for text in rest)]


def _markdown_table(table: Table) -> str:
    names = [_cell(column) or " " for column in table.columns]
    lines = [f"### {_plain(table.title)}", "", f"| {' | '.join(names)} |"]
    lines.append(f"|{' --- |' * len(table.columns)}")
    for line in table.lines:
        texts = [_cell(text) for text in line.cells]
        cells = [f"**{c}**" if i in line.bold and c else c for i, c in enumerate(texts)]
        if line.kind == "heading":
            cells = [f"*{cells[0]}*"]
        elif line.kind == "paper":
            cells[0] = f"{cells[0]} (paper)"
        cells += [""] * (len(table.columns) - len(cells))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _plain(table.note)]).rstrip()


def _cell(text: str) -> str:
    """Return a text as a cell of a Markdown table; there is no code in a table."""
    return _plain(text.replace("`", "'")).replace("|", "/")


def _html(part: PagePart) -> str:
    if isinstance(part, Heading):
        return f'<h2 id="{_anchor(part.text)}">{escape(part.text)}</h2>'
    if isinstance(part, Paragraph):
        style = ' class="strong"' if part.strong else ""
        if len(part.texts) == 1:
            return f"<p{style}>{_inline(part.texts[0])}</p>"
        first = f"<p>{_inline(part.texts[0])}</p>" if part.strong else ""
        rest = part.texts[1:] if part.strong else part.texts
        items = "".join(f"<li>{_inline(text)}</li>" for text in rest)
        return f"<div{style}>{first}<ul>{items}</ul></div>"
    if isinstance(part, Tiles):
        return f'<div class="tiles">{"".join(_tile(*tile) for tile in part.tiles)}</div>'
    if isinstance(part, Figure):
        svg = part.svg[part.svg.index("<svg") :]
        return f"<figure>{svg}<figcaption>{escape(part.caption)}</figcaption></figure>"
    if isinstance(part, Collapsed):
        title = escape(part.table.title)
        return f"<details><summary>{title}</summary>{_html_table(part.table)}</details>"
    return f"<h3>{escape(part.title)}</h3>{_html_table(part)}"


def _tile(value: str, what: str, note: str) -> str:
    return f"<div><b>{escape(value)}</b><span>{escape(what)}</span><i>{escape(note)}</i></div>"


def _html_table(table: Table) -> str:
    texts = _text_columns(table)
    head = "".join(
        f'<th class="text">{escape(column)}</th>'
        if index in texts
        else f"<th>{escape(column)}</th>"
        for index, column in enumerate(table.columns)
    )
    rows = "\n".join(_html_line(line, len(table.columns), texts) for line in table.lines)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n'
        f"</tbody></table></div>{note}"
    )


def _text_columns(table: Table) -> set[int]:
    """Return the columns that contain words and no numbers: they are aligned left."""
    rows = [line.cells for line in table.lines if line.kind != "heading"]
    return {
        index
        for index in range(len(table.columns))
        if not any(re.match(r"[-+\d]", row[index]) for row in rows if index < len(row))
    }


def _html_line(line: Line, width: int, texts: set[int]) -> str:
    if line.kind == "heading":
        return f'<tr class="heading"><td colspan="{width}">{escape(line.cells[0])}</td></tr>'
    cells = []
    for index, cell in enumerate(line.cells):
        text = f"<b>{escape(cell)}</b>" if index in line.bold else escape(cell)
        mark = ' <span class="mark">paper</span>' if line.kind == "paper" and not index else ""
        kinds = ["text"] if index in texts else []
        kinds += ["words"] if index and len(cell) > _LONG and "[" not in cell else []
        style = f' class="{" ".join(kinds)}"' if kinds else ""
        cells.append(f"<td{style}>{text}{mark}</td>")
    cells += ["<td></td>"] * (width - len(line.cells))
    return f'<tr class="{line.kind}">{"".join(cells)}</tr>'


def _inline(text: str) -> str:
    """Return a text as HTML, with its `code` marked up."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _anchor(text: str) -> str:
    return re.sub(r"\W+", "-", text.lower()).strip("-")


def _style() -> str:
    return (files("driftscore.lab.report") / "page.css").read_text(encoding="utf-8")
