"""The table: as rich draws it where texts are simple, and never wider than the terminal."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from driftscore.formats import OutputRow
from driftscore.formats.table import write

WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12)
VALUES = WORDS | st.integers(-5, 5) | st.floats(-1e6, 1e6) | st.text(max_size=60)
TITLE = "Scores: standard deviations above what the label scores on other sounds"


@st.composite
def tables(draw: st.DrawFn, values: st.SearchStrategy[object] = VALUES) -> list[OutputRow]:
    names = WORDS.filter(lambda key: key not in ("", "unit", "time", "error", "scores"))
    keys = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    return [{key: draw(values) for key in keys} for _ in range(draw(st.integers(1, 4)))]  # type: ignore[misc]


def drawn(rows: list[OutputRow], title: str = "") -> str:
    out = io.StringIO()
    write(rows, out, title=title)
    return out.getvalue()


@given(tables(WORDS | st.integers(-5, 5) | st.floats(-1e6, 1e6)))
def test_a_table_of_simple_texts_is_that_of_rich(rows: list[OutputRow]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for key in rows[0]:
        numbers = all(isinstance(row[key], (int, float)) or row[key] == "" for row in rows)
        table.add_column(Text(key), justify="right" if numbers else "left")
    for row in rows:
        shown = (f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values())
        table.add_row(*map(Text, shown))
    by_rich = io.StringIO()
    Console(file=by_rich, width=200, highlight=False).print(table)
    lines = [line.rstrip() for line in by_rich.getvalue().splitlines()]
    assert drawn(rows).splitlines() == lines


@given(tables())
def test_no_line_is_wider_than_a_pipe(rows: list[OutputRow]) -> None:
    text = drawn(rows)
    assert all(cell_len(line) <= 200 or not line.isprintable() for line in text.splitlines())


class Terminal(io.StringIO):
    """A terminal with an encoding."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return True


ROWS: list[OutputRow] = [
    {"file": "日本の夜.wav", "label": "rain", "score": 0.64812, "error": ""},
    {"file": "a" * 30, "label": "", "score": "", "error": "cannot be read"},
]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "ascii", "cp1252"])
def test_a_narrow_terminal_folds_texts_in_every_encoding(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal(encoding)
    write(ROWS, out, title=TITLE)
    lines = out.getvalue().splitlines()
    assert all(cell_len(line) <= 44 for line in lines)
    rule = "─" if encoding.startswith("utf") else "-"
    assert f" {rule * 42}" in lines
    names = "".join(line.strip().split("   ")[0] for line in lines[5:])
    assert names == "日本の夜.wav" + "a" * 30
    assert " ".join(lines[:2]) == TITLE


def test_rows_with_an_error_are_red_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal("utf-8")
    write(ROWS, out)
    red = [line for line in out.getvalue().splitlines() if line.startswith("\x1b[31m")]
    assert red
    assert all(line.endswith("\x1b[0m") for line in red)


def test_a_name_that_is_not_utf_8_keeps_its_column() -> None:
    lines = drawn([{"file": "bad\udcff.wav", "label": "x"}, {"file": "a.wav", "label": "x"}])
    assert {line.index(" x") for line in lines.splitlines() if " x" in line} == {17}


def test_columns_without_a_value_are_left_out_and_a_table_without_rows_has_its_header() -> None:
    rows: list[OutputRow] = [{"file": "a", "time": "", "label": "x", "unit": "sd", "error": ""}]
    assert drawn(rows).split() == ["file", "label", "─" * 14, "a", "x"]
    out = io.StringIO()
    write([], out, columns=("file", "unit", "error"))
    assert out.getvalue().split()[:2] == ["file", "error"]
