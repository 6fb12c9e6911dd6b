import csv
import json
import sys
from pathlib import Path

import pytest
import soundfile
from click.testing import CliRunner, Result

from driftscore.cli.app import app
from driftscore.errors import DriftscoreError, UsageError
from driftscore.lab.conditions import Cell, Condition, Row, Scoring
from driftscore.lab.corpora import download
from driftscore.lab.corpora.folders import load
from driftscore.lab.mixing.record import mix
from driftscore.lab.runs import export
from driftscore.lab.runs.mixes import read_mixes
from driftscore.lab.runs.store import Store
from tests.conftest import PROJECT

from .small_lab import build, quick

GRIDS = Path(__file__).parents[2] / "training" / "grids"
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


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    quick(monkeypatch)
    build(tmp_path)
    (tmp_path / "small.toml").write_text(GRID)
    monkeypatch.setenv("DRIFTSCORE_LAB", str(tmp_path / "store"))
    return tmp_path / "small.toml"


def test_a_grid_is_planned_run_and_counted(grid: Path, tmp_path: Path) -> None:
    planned = call("lab", "run", grid, "--plan")
    assert planned.exit_code == 0
    assert "6 cells in 2 conditions, 24 clips to embed" in planned.stderr
    done = call("lab", "run", grid)
    assert done.exit_code == 0, done.output
    assert "6 rows computed, 0 stored before" in done.stderr
    again = call("lab", "run", grid)
    assert "0 rows computed, 6 stored before" in again.stderr
    assert " 6 " in call("lab", "status").stdout
    assert "fake" in call("lab", "status", grid).stdout


def test_all_rows_are_exported(grid: Path, tmp_path: Path) -> None:
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
    assert tuple(table[0]) == export.COLUMNS


def test_a_text_comes_back_from_csv_as_it_is(tmp_path: Path) -> None:
    condition = Condition("=1+1", "d", 0, None, "", None, None, None, "@fake", "m")
    row = Row(Cell(condition, Scoring("das")), error='-2+3+cmd|" /C calc"!A0')
    export.export([row], tmp_path / "rows.csv")
    with open(tmp_path / "rows.csv", newline="", encoding="utf-8") as handle:
        (flat,) = csv.DictReader(handle)
    assert flat["dataset"] == "=1+1"
    assert flat["backbone"] == "@fake"
    assert flat["error"].startswith("-2+3")


def test_parquet_needs_pyarrow_and_other_suffixes_are_refused(
    grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install pyarrow, or export rows\.csv"):
        export.export([], tmp_path / "rows.parquet")
    with pytest.raises(UsageError, match=r"Unsupported format '.xls': use .csv, .jsonl, .parquet"):
        export.export([], tmp_path / "rows.xls")
    assert isinstance(call("lab", "export", tmp_path / "rows.xls").exception, DriftscoreError)


def test_wrong_usage_is_an_error_with_a_message(grid: Path) -> None:
    said = call("lab", "run", "pannel").exception
    assert isinstance(said, UsageError)
    assert "did you mean 'panel'?" in str(said)
    assert call("lab", "run").exit_code == 2
    assert isinstance(call("lab", "nonsense").exception, UsageError)


def test_rows_with_an_error_end_with_status_one(grid: Path) -> None:
    grid.write_text(GRID.replace('"zs_text"', '"tgap:noisy"'))
    done = call("lab", "run", grid)
    assert done.exit_code == 1
    assert "1 with an error" in done.stderr


def test_another_model_replaces_the_grids_own(grid: Path) -> None:
    grid.write_text(GRID.replace('"fake"', '"mn04"'))
    done = call("lab", "run", grid, "--backbone", "fake")
    assert done.exit_code == 0, done.output
    assert "6 rows computed" in done.stderr


def test_the_report_is_written_by_the_command(grid: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="NOT RUN: figures need matplotlib (driftscore[lab])")
    call("lab", "run", grid)
    done = call("lab", "report", "--out", tmp_path / "report.html", "--grid", grid)
    assert done.exit_code == 0, done.output
    assert f"driftscore lab run {grid}" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_shipped_grids_are_listed() -> None:
    done = call("lab", "grids")
    for name in ("ablations", "backbones", "beta", "full", "panel", "safety"):
        assert name in done.stdout


def test_corpora_are_listed_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTSCORE_DATA", str(tmp_path / "data"))
    listed = call("data", "list")
    for name in ("esc50", "fsd50k", "tau2019", "synthetic"):
        assert name in listed.stdout
    lacking = call("data", "check", "esc50")
    assert lacking.exit_code == 1
    assert "meta/esc50.csv" in lacking.stdout
    assert "driftscore data get esc50" in lacking.stderr
    assert call("data", "check", "synthetic").exit_code == 0
    own = call("data", "check", "folder", "--home", tmp_path)
    assert own.exit_code == 1
    assert "data get" not in own.stderr  # there is nothing to download
    assert "put them into the folder" in own.stderr
    assert "did you mean 'esc50'" in str(call("data", "check", "esc5").exception)


def test_a_corpus_is_downloaded_after_its_licence_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def get(*given: object, **options: object) -> str:
        asked.append((given, options))
        return "here"

    monkeypatch.setattr(download, "get", get)
    done = call(
        "data", "get", "esc50", "--home", tmp_path, "--mirror", "http://localhost", "--keep"
    )
    assert done.exit_code == 0
    assert asked == [(("esc50", tmp_path), {"mirror": "http://localhost", "keep": True})]
    assert done.stderr.index("licence:") < done.stderr.index("is complete in here")


def test_help_is_that_of_the_sub_command() -> None:
    assert "Compute every cell" in call("lab", "run", "--help").stdout
    assert "report" in call("lab", "--help").stdout


def test_mixes_are_saved_and_rebuilt_to_the_same_samples(grid: Path, tmp_path: Path) -> None:
    grid.write_text(GRID.replace('snrs = ["clean", 0]', "snrs = [0]"))
    (tmp_path / "clips" / "rain-3.wav").write_bytes(b"not audio")
    saved = tmp_path / "mixes.jsonl"
    assert call("lab", "mixes", grid, "--out", saved).exit_code == 0
    found = list(read_mixes(saved))
    assert [saved_mix.clip for saved_mix in found if saved_mix.record is None] == ["rain-3.wav"]
    assert len(found) == 12
    done = call("lab", "rebuild", saved, "--out", tmp_path / "wavs")
    assert done.exit_code == 1  # one clip has no mix
    paths = [Path(line) for line in done.stdout.splitlines()]
    made = [one.record for one in found if one.record is not None]
    assert len(paths) == len(set(paths)) == len(made) == 11
    for path, record in zip(paths, made, strict=True):
        samples, rate = soundfile.read(path, dtype="float32")
        assert rate == record.rate
        assert samples.tobytes() == mix(record, load).audio.samples.tobytes()


@pytest.mark.parametrize("name", ["full", GRIDS / "here.toml", "backbones"])
def test_a_grid_is_planned_without_models_and_data(
    name: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("driftscore.backbones.load_backbone", refuse)
    monkeypatch.setattr("driftscore.lab.runs.validation.load_backbone", refuse)
    monkeypatch.setenv("DRIFTSCORE_SHARED", str(tmp_path / "none"))
    monkeypatch.setenv("DRIFTSCORE_LAB", str(tmp_path / "store"))
    monkeypatch.setenv("DRIFTSCORE_DATA", str(tmp_path / "data"))
    planned = call("lab", "run", name, "--plan")
    assert planned.exit_code == 0, planned.stderr
    assert " cells in " in planned.stderr
    assert "missing: " in planned.stderr


def test_the_panel_is_counted_as_published_where_its_data_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTSCORE_DATA", str(tmp_path / "data"))
    planned = call("lab", "run", "panel", "--plan", "--store", tmp_path / "store")
    assert "70 cells in 10 conditions, 61,155 clips to embed" in planned.stderr
    assert "61,155" in (PROJECT / "docs" / "paper.md").read_text()
    assert "missing: UrbanSound8K in " in planned.stderr


@pytest.mark.usefixtures("shared")
def test_a_plan_generates_no_soundscape(tmp_path: Path) -> None:
    planned = call("lab", "run", GRIDS / "events.toml", "--plan", "--store", tmp_path / "store")
    assert "shared_soundscapes: 2 clips, generated by the first run" in planned.stderr
    assert "0 s for all of it" not in planned.stderr
    assert not list(tmp_path.rglob("*.flac"))


def test_a_plan_still_finds_wrong_names(grid: Path) -> None:
    grid.write_text(GRID.replace('"fake"', '"fakee"').replace('"das"', '"dass"'))
    planned = call("lab", "run", grid, "--plan")
    assert planned.exit_code != 0
    assert "fakee" in str(planned.exception)
    assert "dass" in str(planned.exception)


@pytest.mark.parametrize("what", ["rules", "backbones", "packs", "presets", "engines", "formats",
                                  "datasets", "noises", "mixings"])  # fmt: skip
def test_lists_need_neither_models_nor_data(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("driftscore.backbones.load_backbone", refuse)
    monkeypatch.setenv("DRIFTSCORE_SHARED", str(tmp_path / "none"))
    monkeypatch.setenv("DRIFTSCORE_DATA", str(tmp_path / "data"))
    listed = call("list", what, "--format", "csv")
    assert listed.exit_code == 0
    assert len(listed.stdout.splitlines()) > 1
