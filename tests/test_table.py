"""The table in a pipe: what is drawn without rich is what rich draws."""

import io

from hypothesis import given
from hypothesis import strategies as st

from driftscore.formats.protocol import OutputRow
from driftscore.formats.table import _write_rich, plain_lines

WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
VALUES = WORDS | st.integers(-5, 5) | st.floats(-1e6, 1e6) | st.text(max_size=6)
TITLES = st.lists(WORDS, max_size=12).map(" ".join)


@st.composite
def tables(draw: st.DrawFn) -> list[OutputRow]:
    keys = draw(st.lists(WORDS.filter(bool), min_size=1, max_size=5, unique=True))
    count = draw(st.integers(1, 4))
    return [{key: draw(VALUES) for key in keys} for _ in range(count)]


def by_rich(rows: list[OutputRow], title: str) -> str:
    out = io.StringIO()
    _write_rich(rows, list(rows[0]), out, title, unicode=True)
    return out.getvalue()


@given(tables(), TITLES)
def test_a_table_without_rich_is_that_of_rich(rows: list[OutputRow], title: str) -> None:
    if lines := plain_lines(rows, list(rows[0]), title):
        assert "\n".join(lines) + "\n" == by_rich(rows, title)


def test_a_common_table_needs_no_rich() -> None:
    rows: list[OutputRow] = [
        {"file": "night.wav", "label": "rain", "score": 0.64812, "runner_up": "music"},
        {"file": "day.wav", "label": "siren", "score": 12.5, "runner_up": ""},
    ]
    title = "Scores: standard deviations above what the label scores on other sounds"
    lines = plain_lines(rows, list(rows[0]), title)
    assert "  night.wav   rain     0.648   music" in lines
    assert "\n".join(lines) + "\n" == by_rich(rows, title)


def test_what_is_wide_or_long_is_left_to_rich() -> None:
    assert plain_lines([{"file": "日本.wav"}], ["file"], "") == []
    assert plain_lines([{"file": "x" * 250}], ["file"], "") == []
    assert plain_lines([{"file": "two  spaces"}], ["file"], "") == []
