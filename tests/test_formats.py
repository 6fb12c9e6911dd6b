"""Output formats: what they write, and how one is added from outside."""

import csv
import io
import json
from collections.abc import Iterator

import pytest

from driftscore.errors import UsageError
from driftscore.formats import OutputRow, find_format, format_names, write_rows

from .conftest import LABELS, Install, Run, WriteWav

ASK = ["--labels", ", ".join(LABELS), "--backbone", "fake"]
BEST: list[OutputRow] = [
    {"file": "a.wav", "label": "dog, barking", "score": 0.1234567, "margin": 1.0, "error": ""},
    {"file": "b.wav", "label": "", "score": "", "margin": "", "error": "is silent"},
]
SCORES: list[OutputRow] = [
    {"file": "a.wav", "labels": ["dog", "cat"], "scores": {"dog": 0.5, "cat": 0.25}, "error": ""}
]
EVENTS: list[OutputRow] = [
    {"file": "a.wav", "start_s": 0.0, "end_s": 1.5, "label": "dog", "score": 0.5, "error": ""},
    {"file": "a.wav", "start_s": 2.0, "end_s": 3.25, "label": "cat", "score": 0.25, "error": ""},
    {"file": "b.wav", "start_s": 0.0, "end_s": 0.0, "label": "", "score": 0.0, "error": "is bad"},
]


def written(rows: list[OutputRow], format: str, columns: tuple[str, ...] = ()) -> str:
    out = io.StringIO()
    write_rows(rows, format, out, columns=columns)
    return out.getvalue()


def test_every_format_describes_itself() -> None:
    assert format_names() == ("audacity", "csv", "json", "jsonl", "raven", "table")
    for name in format_names():
        found = find_format(name)
        assert found.summary
        assert found.spans == (name in ("audacity", "raven"))


def test_csv_has_six_decimals_and_one_column_per_label() -> None:
    assert written(BEST, "csv").splitlines() == [
        "file,label,score,margin,error",
        'a.wav,"dog, barking",0.123457,1.000000,',
        "b.wav,,,,is silent",
    ]
    assert written(SCORES, "csv").splitlines() == [
        "file,labels,score:dog,score:cat,error",
        "a.wav,dog; cat,0.500000,0.250000,",
    ]


def test_json_and_jsonl_hold_the_same_rows() -> None:
    for rows in (BEST, SCORES, EVENTS):
        lines = [json.loads(line) for line in written(rows, "jsonl").splitlines()]
        assert json.loads(written(rows, "json")) == lines
        assert [list(line) for line in lines] == [list(row) for row in rows]
    assert json.loads(written([{"margin": float("inf")}], "jsonl")) == {"margin": None}
    assert json.loads(written(BEST, "jsonl").splitlines()[0])["score"] == 0.123457


def test_audacity_and_raven_hold_the_times_of_good_recordings() -> None:
    assert written(EVENTS, "audacity") == "0.000000\t1.500000\tdog\n2.000000\t3.250000\tcat\n"
    header, *lines = csv.reader(io.StringIO(written(EVENTS, "raven")), delimiter="\t")
    assert header[:5] == ["Selection", "View", "Channel", "Begin Time (s)", "End Time (s)"]
    assert [line[0] for line in lines] == ["1", "2"]
    assert lines[1][3:] == ["2.000000", "3.250000", "a.wav", "cat", "0.250000"]


@pytest.mark.parametrize("format", ["audacity", "raven"])
def test_rows_without_times_are_refused_by_a_format_of_spans(format: str) -> None:
    with pytest.raises(UsageError, match=f"--format {format} writes one label with its times"):
        written(BEST[:1], format)


def test_a_table_has_three_decimals_and_a_column_of_errors_only_if_there_is_one() -> None:
    assert "0.123 " in written(BEST, "table")
    assert "is silent" in written(BEST, "table")
    assert "error" not in written(BEST[:1], "table")
    assert not any(line.endswith(" ") for line in written(BEST, "table").splitlines())


@pytest.mark.parametrize(
    ("format", "expected"),
    [("csv", "file,label\n"), ("json", "[]\n"), ("jsonl", ""), ("audacity", "")],
)
def test_columns_make_a_header_where_there_is_no_row(format: str, expected: str) -> None:
    assert written([], format, ("file", "label")) == expected
    assert "file" in written([], "table", ("file", "label"))


@pytest.mark.parametrize("format", ["csv", "json", "jsonl", "raven"])
def test_rows_are_written_as_they_arrive(format: str) -> None:
    out = io.StringIO()

    def rows() -> Iterator[OutputRow]:
        yield EVENTS[0]
        assert "dog" in out.getvalue()
        yield EVENTS[1]

    write_rows(rows(), format, out)


OUTSIDE = '''
"""One label per line."""

def write(rows, out, *, title="", columns=()):
    for row in rows:
        out.write(f"{row['file']} -> {row['label']}\\n")

class Times:
    """The times of each label."""
    SPANS = True
    @staticmethod
    def write(rows, out, *, title="", columns=()):
        for row in rows:
            out.write(f"{row['start_s']} {row['end_s']} {row['label']}\\n")

nothing = 3
'''


@pytest.fixture
def outside(install: Install) -> None:
    """Install a package with a format, which is also the entry point `arrows`."""
    install("outside_formats", OUTSIDE, "[driftscore.formats]\narrows = outside_formats\n")


@pytest.mark.usefixtures("outside")
def test_a_format_from_outside_is_found_listed_and_written(run: Run, wav: WriteWav) -> None:
    file = wav(seconds=3.0)
    label = json.loads(run("classify", file, *ASK, "-f", "jsonl")[1])["label"]
    for name in ("arrows", "outside_formats:write"):
        assert run("classify", file, *ASK, "-f", name) == (0, f"{file} -> {label}\n", "")
    spans = run("classify", file, *ASK, "-f", "outside_formats:Times")
    assert spans == (0, f"0.0 3.0 {label}\n", "")
    assert "arrows,One label per line" in run("list", "formats", "-f", "csv")[1]
    status, _, err = run("classify", file, *ASK, "-f", "outside_formats:nothing")
    assert (status, "neither a function nor a module" in err) == (2, True)
