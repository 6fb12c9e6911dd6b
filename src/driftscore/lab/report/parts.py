"""The parts of a page: headings, paragraphs, tables, figures. They say what, not how it looks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One line of a table; `kind` is ours, paper or heading; `bold` are the numbers of cells."""

    cells: tuple[str, ...]
    kind: str = "ours"
    bold: tuple[int, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table: its name, title, columns, lines and a note."""

    name: str
    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    note: str = ""


@dataclass(frozen=True)
class Heading:
    """The title of a section."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph, or a list if it has several texts; `strong` is a box headed by the first."""

    texts: tuple[str, ...]
    strong: bool = False


@dataclass(frozen=True)
class Tiles:
    """A few figures in large print: value, description, uncertainty."""

    tiles: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Figure:
    """A drawing (SVG) with its caption."""

    name: str
    svg: str
    caption: str


@dataclass(frozen=True)
class Collapsed:
    """A table that is shown on request."""

    table: Table


PagePart = Heading | Paragraph | Tiles | Figure | Table | Collapsed
