"""Names and labels that would harm a spreadsheet, a terminal or a table, and odd names of files."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from driftscore import AudioError, UsageError
from driftscore.audio.recordings import expand, read
from driftscore.formats import OutputRow, visible, write_rows

from .conftest import Run, Speak, WriteWav

RUN = [sys.executable, "-m", "driftscore"]
ASK = ["--labels", "dog bark, siren", "--backbone", "fake"]


def written(format: str, row: OutputRow) -> str:
    out = io.StringIO()
    write_rows([row], format, out)
    return out.getvalue()


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "=cmd|'/C x'!A"])
def test_a_text_is_never_a_formula_in_excel_and_comes_back_from_csv_as_it_is(text: str) -> None:
    row: OutputRow = {"file": text, "score": -0.5, "labels": [text], "count": -3}
    for format, mark in (("csv", ""), ("excel", "'")):
        lines = io.StringIO(written(format, row).lstrip("\ufeff"), newline="")
        header, cells = list(csv.reader(lines))
        shown = mark + text.replace("\r", "\\r")
        assert cells == [shown, "-0.500000", shown, "-3"]
        assert header == list(row)
    assert json.loads(written("jsonl", row))["file"] == text


@pytest.mark.parametrize("text", ["\x1b[31mred", "\x1b]0;title\x07", "a\u202egpj.wav", "\x9b2J"])
def test_escape_sequences_do_not_reach_a_terminal(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from driftscore.cli.output import say

    say(f"skipped: {text}")
    for shown in (written("table", {"file": text, text: 1.0}), capsys.readouterr().err):
        assert visible(shown.replace("\n", "")) == shown.replace("\n", "")


def test_tabs_and_newlines_do_not_break_the_rows_of_audacity_and_raven() -> None:
    row: OutputRow = {"file": "a\tb\n.wav", "start_s": 0.0, "end_s": 1.0, "label": "x\ty\nz\r",
                      "score": 0.5, "error": ""}  # fmt: skip
    assert written("audacity", row) == "0.000000\t1.000000\tx\\ty\\nz\\r (0.50)\n"
    lines = written("raven", row).splitlines()
    assert len(lines) == 2
    assert len(lines[1].split("\t")) == len(lines[0].split("\t"))


def test_kaleidoscope_holds_names_as_they_are_and_no_broken_row() -> None:
    row: OutputRow = {"file": "=a/+b/-c\r\n.wav", "start_s": 0.0, "end_s": 1.0, "label": "@x\ny",
                      "score": -0.5, "time": "=1T+1", "error": ""}  # fmt: skip
    rows = list(csv.reader(io.StringIO(written("kaleidoscope", row), newline="")))
    assert len(rows) == 2
    assert rows[1][1:3] == ["+b", "-c\\r\\n.wav"]
    assert rows[1][5:9] == ["@x\\ny", "-0.500000", "=1", "+1"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "cp1252"])
@pytest.mark.parametrize("format", ["csv", "jsonl", "json", "table"])
def test_names_that_an_encoding_lacks_are_escaped(
    speak: Speak, wav: WriteWav, tmp_path: Path, encoding: str, format: str
) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.wav")
    shutil.copy(wav(), odd)
    missing = os.fsdecode(os.fsencode(tmp_path) + b"/none\xff.wav")
    files = [wav("犬.wav"), wav("é.wav"), odd, missing]
    status, text, _ = speak(encoding, "classify", *files, *ASK, "-f", format)
    assert status == 1
    if (encoding, format) == ("ascii", "table"):  # and once as a process of its own
        done = subprocess.run(
            [*RUN, "classify", *files, *ASK, "-f", format], check=False, capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "400"},
        )  # fmt: skip
        assert (done.returncode, done.stdout.decode(encoding)) == (1, text)
    if format == "jsonl":
        names = [json.loads(line)["file"] for line in text.splitlines()]
        assert names == files
        assert sum(bool(json.loads(line)["error"]) for line in text.splitlines()) == 1
    if format == "csv":
        assert len(text.splitlines()) == 5


def test_a_file_with_a_name_that_is_not_utf8_is_written_to_a_file(
    wav: WriteWav, tmp_path: Path, run: Run
) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.wav")
    shutil.copy(wav(), odd)
    for format in ("csv", "jsonl", "table"):
        assert run("classify", odd, *ASK, "-f", format, "--out", tmp_path / format)[0] == 0
    assert json.loads((tmp_path / "jsonl").read_text())["file"] == odd


@pytest.mark.parametrize("pattern", ["", "a**.wav", "*" * 500, "*/" * 300, "[" * 30])
def test_an_odd_pattern_is_a_sentence(pattern: str) -> None:
    with pytest.raises(UsageError):
        expand([pattern])


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
def test_an_odd_name_is_a_row(name: str, wav: WriteWav) -> None:
    assert expand([name, wav()])[0] == name


def test_a_folder_that_cannot_be_listed_is_a_row(
    wav: WriteWav, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    file = wav()
    monkeypatch.setattr(os, "scandir", refuse)
    assert expand([tmp_path]) == sorted([file, str(tmp_path / "closed")])
    with pytest.raises(AudioError, match="closed cannot be opened: Permission denied"):
        read(tmp_path / "closed")


@pytest.mark.parametrize("threads", ["9" * 20, "9" * 5000, "5000", "0", "²"])
def test_an_absurd_number_of_threads_is_wrong_usage(run: Run, wav: WriteWav, threads: str) -> None:
    status, out, err = run("classify", wav(), *ASK, "--engine", f"local:{threads}")
    assert (status, out) == (2, "")
    assert "unexpected" not in err


def test_a_working_directory_that_is_gone_and_a_user_without_home(
    wav: WriteWav, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = (
        "import os, sys, pathlib; os.rmdir(os.getcwd()); from driftscore.cli.app import main; "
        f"sys.argv = ['driftscore', 'classify', {wav()!r}, *{ASK!r}]; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=gone, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    code = (
        "import os, pathlib; os.environ.pop('HOME', 0); os.environ.pop('DRIFTSCORE_CACHE', 0)\n"
        "def fail(self): raise RuntimeError('Could not determine home directory.')\n"
        "pathlib.Path.expanduser = fail\n"
        "from driftscore.storage.files import cache_home; print(cache_home())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b"driftscore-" in done.stdout, done.stderr
