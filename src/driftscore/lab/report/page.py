"""The parts of a page, and the page as self-contained HTML or as Markdown: one template for each.

Parts say what, not how it looks. Numbers have two digits, gains a sign, and NaN is empty. A figure
is an SVG text: part of the page in HTML, a file of its own for Markdown. Any HTML in a label, a
name or an error is shown, not interpreted.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from driftscore.errors import MissingExtraError
from driftscore.lab.metrics import Interval
from driftscore.storage.files import replacing

LONG_CELL = 24  # a cell with more characters is text, and may be broken into lines


@dataclass(frozen=True)
class Line:
    """One line of a table; `kind` is ours, paper or heading; `bold` are the numbers of cells."""

    cells: tuple[str, ...]
    kind: str = "ours"
    bold: tuple[int, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table: its name, title, columns, lines and a note; a collapsed one is shown on request."""

    name: str
    title: str
    columns: tuple[str, ...]
    lines: Sequence[Line]
    note: str = ""
    collapsed: bool = False
    kind: ClassVar = "table"

    @property
    def text_columns(self) -> set[int]:
        """The columns that contain words and no numbers: they are aligned left."""
        rows = [line.cells for line in self.lines if line.kind != "heading"]
        return {
            index
            for index in range(len(self.columns))
            if not any(re.match(r"[-+\d]", row[index]) for row in rows if index < len(row))
        }


@dataclass(frozen=True)
class Paragraph:
    """A paragraph, or a list if it has several texts; `strong` is a box headed by the first."""

    texts: tuple[str, ...]
    strong: bool = False
    kind: ClassVar = "paragraph"


@dataclass(frozen=True)
class Figure:
    """A drawing (SVG) with its caption."""

    name: str
    svg: str
    caption: str
    kind: ClassVar = "figure"


Part = Paragraph | Figure | Table


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading."""

    title: str
    parts: tuple[Part, ...]

    @property
    def anchor(self) -> str:
        """The title as the name of a place in the page."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")


def plain(value: float) -> str:
    """Return a percentage; empty if it is NaN."""
    return "" if math.isnan(value) else f"{value:.2f}"


def signed(value: float, digits: int = 2) -> str:
    """Return a gain with its sign; what rounds to zero has no minus, and NaN is empty."""
    return "" if math.isnan(value) else f"{round(value, digits) + 0.0:+.{digits}f}"


def interval(gain: Interval | None, *, digits: int = 2) -> str:
    """Return a gain in points with its interval; empty if there is none, or it is NaN."""
    if gain is None or math.isnan(gain.difference):
        return ""
    low, high = signed(gain.low, digits), signed(gain.high, digits)
    return f"{signed(gain.difference, digits)} [{low}, {high}]"


def write_page(title: str, lead: str, sections: Sequence[Section], path: Path) -> None:
    """Write a page as HTML, or as Markdown with its figures in a folder beside it."""
    if path.suffix.lower() in (".md", ".markdown"):
        folder = path.with_name(f"{path.stem}_figures")
        texts = {
            folder / f"{part.name}.svg": part.svg
            for section in sections
            for part in section.parts
            if isinstance(part, Figure)
        }
        texts[path] = render("page.md", title, lead, sections, figures=folder.name)
    else:
        texts = {path: render("page.html", title, lead, sections)}
    for target, text in texts.items():
        with replacing(target) as partial:
            partial.write_text(text, encoding="utf-8", errors="backslashreplace")


def render(
    template: str, title: str, lead: str, sections: Sequence[Section], *, figures: str = ""
) -> str:
    """Return the page by a template; `figures` is the folder of its drawings for Markdown."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("The report", "lab") from error
    home = files("driftscore.lab.report")
    environment = jinja2.Environment(
        autoescape=template.endswith(".html"), trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters |= {"plain": _plain, "cell": _cell, "code": _code}
    return environment.from_string((home / template).read_text(encoding="utf-8")).render(
        title=title,
        lead=lead,
        sections=sections,
        figures=figures,
        style=(home / "page.css").read_text(encoding="utf-8"),
        LONG_CELL=LONG_CELL,
    )


def _plain(text: str) -> str:
    """Return a text as one line of Markdown without HTML, links or pictures; `code` stays."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(
        part if index % 2 else escape(part, quote=False).replace("](", "]\\(")
        for index, part in enumerate(parts)
    )


def _cell(text: str) -> str:
    """Return a text as a cell of a Markdown table; there is no code in a table."""
    return _plain(text.replace("`", "'")).replace("|", "/")


def _code(text: str) -> str:
    """Return a text as HTML, with its `code` marked up."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
