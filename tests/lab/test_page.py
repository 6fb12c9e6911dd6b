"""The page of a report: complete, self-contained, and no label of it is HTML."""

import re
import warnings
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from driftscore.errors import UsageError
from driftscore.lab.report.figures import PlotAxes, drawn, shown
from driftscore.lab.report.page import (
    Figure,
    Line,
    Paragraph,
    Part,
    Section,
    Table,
    render,
)
from driftscore.lab.runs.store import Store

from .test_report import store

__all__ = ["store"]


class Balanced(HTMLParser):
    VOID = frozenset({"meta", "br", "link", "path", "use", "image", "rect", "circle", "line", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.outside += [v for k, v in values.items() if k in ("src", "href") and "//" in (v or "")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_is_complete_and_self_contained(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="NOT RUN: figures need matplotlib (driftscore[lab])")
    from driftscore.lab.report.report import write_report

    write_report(store, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Balanced()
    page.feed(text)
    assert not page.open
    assert not page.outside
    assert text.count("<svg") == 4
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.S).lower().replace(
        "ordinances", ""
    )
    for part in ("What beats DAS", "driftscore lab run small.toml", "rain-3.wav", "Table S5"):
        assert part in text
    assert text.index("What beats DAS") < text.index("What DAS gains")
    write_report(store, tmp_path / "report.md")
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "(paper)" in markdown
    for figure in re.findall(r"\((report_figures/\w+\.svg)\)", markdown):
        assert (tmp_path / figure).is_file()


def test_a_report_without_rows_is_an_error(tmp_path: Path) -> None:
    from driftscore.lab.report.report import write_report

    with Store(tmp_path / "empty") as empty:
        with pytest.raises(UsageError, match="no rows to report"):
            write_report(empty, tmp_path / "report.html")
        with pytest.raises(UsageError, match=r"Unsupported format '.pdf': use .html or .md"):
            write_report(empty, tmp_path / "report.pdf")


HOSTILE = "<img src=x onerror=alert(1)>"


def to_markdown(title: str, parts: tuple[Part, ...]) -> str:
    return render("page.md", title, title, [Section(title, parts)], figures="figures")


def parts_with(text: str) -> tuple[Part, ...]:
    """Return one part of every kind with a text wherever it takes one."""
    line = Line((text, text, text), "ours", (1,))
    table = Table("t", text, (text, "", text), (line, Line((text,), "heading")), text)
    return (
        Paragraph((text,)), Paragraph((text, text), strong=True), Paragraph((text, text)),
        table, replace(table, collapsed=True),
        Figure("f", "<svg></svg>", text),
    )  # fmt: skip


@pytest.mark.parametrize(
    "label",
    [HOSTILE, "a & b", "<script>x</script>", "</td></table>", "&lt;b&gt;", "`<b>", "<b>`", "``<b>`",
     "x | y\n<b>", "a\n\n<div>\n"],
)  # fmt: skip
def test_html_in_a_label_isshown_by_markdown_and_not_interpreted(label: str) -> None:
    page = [Section(label, parts_with(label))]
    for text in (to_markdown(label, parts_with(label)), render("page.html", label, label, page)):
        without_code = re.sub(r"`[^`\n]+`", "", text)
        if text.startswith("#"):
            assert "<" not in without_code
            assert not re.search(r"&(?!amp;|lt;|gt;)", without_code)
        else:
            assert "<img" not in text
            assert "<script" not in text
            assert "<div>\n" not in text


def test_a_label_cannot_make_a_link_or_a_picture() -> None:
    text = to_markdown("t", parts_with("![x](http://far.away/x.png)"))
    assert "](http" not in text


def test_commands_stay_code_and_are_not_escaped() -> None:
    text = to_markdown("t", (Paragraph(("Run `lab run <grid>` & wait.",)),))
    assert "Run `lab run <grid>` &amp; wait." in text


def test_a_row_of_a_table_stays_one_row() -> None:
    text = to_markdown("t", (parts_with("a\nb | c")[4],))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {4}


@pytest.mark.parametrize(
    "label", ["$x$", "$\\frac{1}{$", "a$b$c_{", "\x00\x1b[31m", "日本", "\ud800"]
)
def test_a_figure_shows_any_label(label: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="NOT RUN: figures need matplotlib (driftscore[lab])")

    def draw(axes: PlotAxes, text: str) -> None:
        axes.set_title(shown(text))
        axes.plot([0, 1], [0, 1], label=shown(text))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a font without a character
        (figure,) = drawn("f", [label], draw, "")
        svg = figure.svg
    ElementTree.fromstring(svg)
