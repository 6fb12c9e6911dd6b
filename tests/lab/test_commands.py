import csv
import json
import subprocess
import sys

import pytest
import typer
from small_lab import build, quick
from typer.testing import CliRunner

from driftscore.errors import DriftscoreError, UsageError
from driftscore.lab import commands, export
from driftscore.lab.store import Store

PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
app = typer.Typer(pretty_exceptions_enable=False)


@app.command("lab", add_help_option=False, context_settings=PASSED_ON)
def lab_(context: typer.Context) -> None:
    """Mount as the main command does it."""
    commands.call(commands.lab, context.args, "driftscore lab")


@app.command("data", add_help_option=False, context_settings=PASSED_ON)
def data_(context: typer.Context) -> None:
    commands.call(commands.data, context.args, "driftscore data")


GRID = """
datasets = ["folder"]
noises = ["recorded"]
snrs = ["clean", 0]
backbones = ["fake"]
rules = ["cosine", "das", "zs_text"]
packs = ["generic5"]
[homes]
folder = "clips"
recorded = "noise"
"""


def call(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def grid(tmp_path, monkeypatch):
    quick(monkeypatch)
    build(tmp_path)
    (tmp_path / "small.toml").write_text(GRID)
    monkeypatch.setenv("DRIFTSCORE_LAB", str(tmp_path / "store"))
    return tmp_path / "small.toml"


def test_a_grid_is_planned_run_and_counted(grid, tmp_path):
    planned = call("lab", "run", grid, "--plan")
    assert planned.exit_code == 0
    assert "6 cells in 2 conditions, 24 clips" in planned.stderr
    done = call("lab", "run", grid)
    assert done.exit_code == 0, done.output
    assert "6 rows computed, 0 were there" in done.stderr
    again = call("lab", "run", grid)
    assert "0 rows computed, 6 were there" in again.stderr
    assert " 6 " in call("lab", "status").stdout
    assert "fake" in call("lab", "status", grid).stdout


def test_rows_are_exported_whole(grid, tmp_path):
    call("lab", "run", grid)
    for name in ("rows.csv", "rows.jsonl"):
        assert call("lab", "export", tmp_path / name).exit_code == 0
    with open(tmp_path / "rows.csv", newline="", encoding="utf-8") as handle:
        table = list(csv.DictReader(handle))
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    with Store() as store:
        rows = list(store.rows())
    assert len(table) == len(lines) == len(rows) == 6
    for row, flat, line in zip(rows, table, lines, strict=True):
        assert float(flat["value"]) == line["value"] == row.value
        assert flat["key"] == line["key"] == row.cell.key
        assert line["rule"] == row.cell.scoring.rule
    assert tuple(table[0]) == export.columns()


def test_parquet_needs_pyarrow_and_other_endings_are_refused(grid, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install pyarrow, or export rows\.csv"):
        export.export([], tmp_path / "rows.parquet")
    with pytest.raises(UsageError, match=r"exported as \.csv"):
        export.export([], tmp_path / "rows.xls")
    assert isinstance(call("lab", "export", tmp_path / "rows.xls").exception, DriftscoreError)


def test_wrong_usage_is_an_error_in_words(grid):
    said = call("lab", "run", "pannel").exception
    assert isinstance(said, UsageError)
    assert "did you mean 'panel'?" in str(said)
    assert call("lab", "run").exit_code == 2
    assert call("lab", "nonsense").exit_code == 2


def test_rows_with_an_error_end_with_status_one(grid):
    grid.write_text(GRID.replace('"zs_text"', '"tgap:noisy"'))
    done = call("lab", "run", grid)
    assert done.exit_code == 1
    assert "1 with an error" in done.stderr


def test_another_model_takes_the_place_of_the_grids(grid):
    grid.write_text(GRID.replace('"fake"', '"mn04"'))
    done = call("lab", "run", grid, "--backbone", "fake")
    assert done.exit_code == 0, done.output
    assert "6 rows computed" in done.stderr


def test_the_report_is_written_by_the_command(grid, tmp_path):
    pytest.importorskip("matplotlib", reason="NOT RUN: figures need matplotlib (driftscore[lab])")
    call("lab", "run", grid)
    done = call("lab", "report", "--out", tmp_path / "report.html", "--grid", grid)
    assert done.exit_code == 0, done.output
    assert f"driftscore lab run {grid}" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_shipped_grids_are_listed():
    done = call("lab", "grids")
    for name in ("ablations", "backbones", "beta", "full", "here", "panel", "safety"):
        assert name in done.stdout


def test_corpora_are_listed_and_checked(tmp_path, monkeypatch):
    monkeypatch.setenv("DRIFTSCORE_DATA", str(tmp_path / "data"))
    listed = call("data", "list")
    for name in ("esc50", "fsd50k", "tau2019", "synthetic"):
        assert name in listed.stdout
    lacking = call("data", "check", "esc50")
    assert lacking.exit_code == 1
    assert "meta/esc50.csv" in lacking.stdout
    assert "driftscore data get esc50" in lacking.stderr
    assert call("data", "check", "synthetic").exit_code == 0
    assert "did you mean 'esc50'" in str(call("data", "check", "esc5").exception)


def test_a_corpus_is_fetched_with_its_licence_said_first(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        commands.download, "get", lambda *given, **options: asked.append((given, options)) or "here"
    )
    done = call(
        "data", "get", "esc50", "--home", tmp_path, "--mirror", "http://localhost", "--keep"
    )
    assert done.exit_code == 0
    assert asked == [(("esc50", tmp_path), {"mirror": "http://localhost", "keep": True})]
    assert done.stderr.index("licence:") < done.stderr.index("is complete in here")


def test_help_is_that_of_the_sub_command():
    assert "Fill every cell" in call("lab", "run", "--help").stdout
    assert "report" in call("lab", "--help").stdout


def test_the_main_command_does_not_open_the_lab():
    code = "import driftscore.cli, sys; print([m for m in sys.modules if '.lab' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
