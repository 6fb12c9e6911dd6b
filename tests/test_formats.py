"""Output formats: what they write, and how one is added from outside."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftscore.errors import UsageError
from driftscore.formats import (
    KIND,
    OutputRow,
    OutputValue,
    cell,
    find_format,
    format_names,
    write_rows,
)
from driftscore.system.plugins import find, summary

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
    assert format_names() == (
        "audacity", "csv", "excel", "html", "json", "jsonl", "kaleidoscope", "raven", "table"
    )  # fmt: skip
    for name in format_names():
        found = find_format(name)
        assert summary(find(KIND, name))
        assert found.spans == (name in ("audacity", "kaleidoscope", "raven"))
        assert found.lengths == (name == "raven")


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


def table_of(text: str, delimiter: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))


def test_audacity_holds_the_times_the_label_and_the_score() -> None:
    assert written(EVENTS, "audacity") == (
        "0.000000\t1.500000\tdog (0.50)\n2.000000\t3.250000\tcat (0.25)\n"
    )
    assert written([{**EVENTS[0], "score": ""}], "audacity") == "0.000000\t1.500000\tdog\n"
    assert written([{**EVENTS[0], "label": ""}], "audacity") == ""


def test_raven_holds_the_columns_that_its_readers_ask_for() -> None:
    rows = table_of(written(EVENTS, "raven"), "\t")
    assert list(rows[0])[:7] == [
        "Selection", "View", "Channel", "Begin Time (s)", "End Time (s)", "Low Freq (Hz)",
        "High Freq (Hz)",
    ]  # fmt: skip
    assert [row["Selection"] for row in rows] == ["1", "2"]
    assert (rows[1]["Begin Time (s)"], rows[1]["End Time (s)"]) == ("2.000000", "3.250000")
    assert (rows[1]["Label"], rows[1]["Score"]) == ("cat", "0.250000")
    assert rows[1]["Begin File"] == "a.wav"
    assert rows[1]["Begin Path"] == str(Path("a.wav").absolute())
    assert float(rows[0]["Low Freq (Hz)"]) < float(rows[0]["High Freq (Hz)"])


NIGHT: list[OutputRow] = [
    {"file": "a.wav", "start_s": 2.0, "end_s": 3.25, "label": "cat", "score": 0.25, "error": "",
     "level_db": -31.5, "snr_db": 6.25, "time": "2026-11-16T23:59:59.500+01:00",
     "duration_s": 60.5, "rate": 48000},
    {"file": "a.wav", "start_s": 4.0, "end_s": 5.0, "label": "dog", "score": 0.5, "error": "",
     "level_db": None, "snr_db": None, "time": "", "duration_s": 60.5, "rate": 48000},
    {"file": "quiet.wav", "start_s": 0.0, "end_s": 0.0, "label": "", "score": "", "error": "",
     "duration_s": 100.0, "rate": 48000},
    {"file": "bad.wav", "start_s": 0.0, "end_s": 0.0, "label": "", "score": "", "error": "is bad"},
    {"file": "b.wav", "start_s": 1.0, "end_s": 2.0, "label": "dog", "score": 0.5, "error": "",
     "duration_s": 3.0, "rate": 16000},
]  # fmt: skip


def test_times_of_raven_go_on_through_all_recordings_also_those_without_an_event() -> None:
    rows = table_of(written(NIGHT, "raven"), "\t")
    assert [float(row["Begin Time (s)"]) for row in rows] == [2.0, 4.0, 60.5 + 100.0 + 1.0]
    assert [float(row["End Time (s)"]) for row in rows] == [3.25, 5.0, 60.5 + 100.0 + 2.0]
    assert [float(row["File Offset (s)"]) for row in rows] == [2.0, 4.0, 1.0]
    assert [row["High Freq (Hz)"] for row in rows] == ["24000.0", "24000.0", "8000.0"]
    assert [row["SNR (dB)"] for row in rows] == ["6.2", "", ""]
    assert [row["Level (dBFS)"] for row in rows] == ["-31.5", "", ""]
    assert rows[0]["Clock Time"] == "2026-11-16T23:59:59.500+01:00"


def test_crowsetta_opens_a_table_of_raven(tmp_path: Path) -> None:
    crowsetta = pytest.importorskip("crowsetta", reason="crowsetta is not installed: make setup")
    path = tmp_path / "events.txt"
    path.write_text(written(NIGHT, "raven"), encoding="utf-8")
    raven = crowsetta.formats.bbox.Raven.from_file(path, annot_col="Label")
    boxes = raven.to_bbox()
    assert [(box.onset, box.offset, box.label) for box in boxes] == [
        (2.0, 3.25, "cat"), (4.0, 5.0, "dog"), (161.5, 162.5, "dog"),
    ]  # fmt: skip
    assert (boxes[0].low_freq, boxes[0].high_freq) == (0.0, 24000.0)


def test_kaleidoscope_finds_the_file_by_its_folders() -> None:
    rows = table_of(
        written([{**NIGHT[0], "file": "nights/yard/a.wav"}, *NIGHT[2:]], "kaleidoscope"), ","
    )
    assert list(rows[0])[:6] == ["INDIR", "FOLDER", "IN FILE", "OFFSET", "DURATION", "TOP1MATCH"]
    place = Path(rows[0]["INDIR"]) / rows[0]["FOLDER"] / rows[0]["IN FILE"]
    assert place == Path("nights/yard/a.wav").absolute()
    assert [(float(row["OFFSET"]), float(row["DURATION"])) for row in rows] == [(2, 1.25), (1, 1)]
    assert [(row["TOP1MATCH"], float(row["SCORE"])) for row in rows] == [
        ("cat", 0.25),
        ("dog", 0.5),
    ]
    assert (rows[0]["DATE"], rows[0]["TIME"]) == ("2026-11-16", "23:59:59")
    assert (rows[1]["DATE"], rows[1]["TIME"], rows[1]["MANUAL ID"]) == ("", "", "")


@given(
    st.lists(
        st.lists(
            st.one_of(st.text(max_size=6), st.sampled_from(['a,b', 'say "x"', "-", "=1", "\r\n"]),
                      st.floats(-9, 9), st.none(), st.booleans(), st.integers(-9, 9)),
            min_size=1, max_size=4,
        ),
        max_size=4,
    )
)  # fmt: skip
def test_lines_of_csv_are_those_of_the_csv_module(table: list[list[OutputValue]]) -> None:
    out, expected = io.StringIO(), io.StringIO()
    writer = csv.writer(expected, lineterminator="\n")
    rows = [{str(place): value for place, value in enumerate(values)} for values in table]
    if rows:
        writer.writerow(rows[0])
    for values in table:
        writer.writerow([cell(value) for value in values])
    write_rows(rows, "csv", out)
    assert out.getvalue() == expected.getvalue()


def test_excel_is_csv_with_a_byte_order_mark_where_the_stream_can_hold_one() -> None:
    assert written(EVENTS[:2], "excel") == "\ufeff" + written(EVENTS[:2], "csv")
    assert written([], "excel", ("file", "label")) == "\ufefffile,label\n"
    latin = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    write_rows(EVENTS[:2], "excel", latin)
    latin.seek(0)
    assert latin.read() == written(EVENTS[:2], "csv")


@pytest.mark.parametrize("zone", ["+01:00", "-03:30", "Z", ""])
def test_excel_has_clock_times_that_excel_reads_as_times(zone: str) -> None:
    rows: list[OutputRow] = [{**EVENTS[0], "time": f"2026-11-16T03:15:00.500{zone}"}]
    assert written(rows, "excel").splitlines()[1].endswith(",2026-11-16 03:15:00.500")


def test_an_unknown_level_is_an_empty_cell_and_null() -> None:
    assert table_of(written(NIGHT[:2], "csv"), ",")[1]["snr_db"] == ""
    assert json.loads(written(NIGHT[:2], "jsonl").splitlines()[1])["snr_db"] is None


@pytest.mark.parametrize("format", ["audacity", "kaleidoscope", "raven"])
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


@pytest.mark.parametrize("format", ["csv", "excel", "json", "jsonl", "kaleidoscope", "raven"])
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
