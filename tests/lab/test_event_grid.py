"""The grid of events: soundscapes, the detector of the library, rows, and the report."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from driftscore.cli.app import app
from driftscore.embedder import Embedder
from driftscore.errors import AudioError, StoreError, UsageError
from driftscore.events.tracking import Event
from driftscore.lab.conditions import COSINE, Cell, Scoring, clean_condition
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.datasets import find_dataset
from driftscore.lab.corpora.soundscapes.truth import Soundscape, SoundscapeRecipe
from driftscore.lab.report.detections import detection_table, read_detections
from driftscore.lab.report.report import write_report
from driftscore.lab.runs import events
from driftscore.lab.runs.events import Detected, detect, measured
from driftscore.lab.runs.export import flat_row
from driftscore.lab.runs.grid import Grid, keys, load_grid, measure, parse_grid
from driftscore.lab.runs.jobs import Job
from driftscore.lab.runs.runner import run
from driftscore.lab.runs.store import Array, Entries, Store
from driftscore.lab.runs.truth import METRIC
from driftscore.lab.runs.validation import check
from training.corpora import shared_soundscapes
from training.corpora.shared_soundscapes import cached_soundscape

from .small_lab import RATE, build_recordings

RECIPE = SoundscapeRecipe(seconds=120, words=3, events=6, others=2, quiet_s=30, rate=RATE)
RECIPES = (RECIPE, replace(RECIPE, seed=2))
CONDITION = clean_condition("shared_soundscapes", "data", 0, "fake", "model")
CELL = Cell(CONDITION, COSINE)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_recordings(tmp_path_factory.mktemp("recordings")))


@pytest.fixture
def made(home: str) -> Soundscape:
    return cached_soundscape(RECIPE, home=home)[1]


HOMES = '[homes]\nshared_soundscapes = "training.corpora:shared_soundscapes"\n'


@pytest.fixture(autouse=True)
def recordings(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTSCORE_SHARED", home)
    monkeypatch.setenv("DRIFTSCORE_CACHE", f"{home}/cache")  # soundscapes are rendered once


def small(more: str = "") -> Grid:
    return parse_grid(
        'datasets = ["shared_soundscapes"]\nbackbones = ["fake"]\nrules = ["cosine", "das"]\n'
        f'packs = ["generic5"]\n{more}{HOMES}',
        name="small",
    )


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> Grid:
    monkeypatch.setattr(shared_soundscapes, "RECIPES", RECIPES)
    return small()


def found_as_true(made: Soundscape, *, late_s: float = 0.0) -> tuple[Event, ...]:
    return tuple(Event(e.label, e.start_s + late_s, e.end_s + late_s, 5.0) for e in made.wanted)


def test_a_perfect_detector_gets_perfect_numbers(made: Soundscape) -> None:
    right = found_as_true(made)
    row, arrays = measured(CELL, [Detected(made, right, right)])
    assert (row.metric, row.value, row.n, row.error) == (METRIC, 1.0, 6, "")
    expected = {"f1": 1, "precision": 1, "recall": 1, "onset_f1": 1, "onset_error_s": 0,
                "quiet": 0, "false_alarms_per_hour": 0, "found": 6, "hours": 120 / 3600,
                "recall_at_few": 1, "recall_at_some": 1, "best_f1": 1, "psds": 1,
                "low": 1, "high": 1, "words": 3, "words_found": 3}  # fmt: skip
    assert {name: row.details[name] for name in expected} == pytest.approx(expected)
    assert arrays["blocks"].sum(axis=0).tolist() == [6, 0, 0]


def test_late_events_and_false_alarms_are_counted_as_such(made: Soundscape) -> None:
    start, _ = made.quiet_s
    wrong = Event(made.words[0], start + 1, start + 2, 1.0)
    late = found_as_true(made, late_s=0.75)
    row, _ = measured(CELL, [Detected(made, (*late[1:], wrong), (*late, wrong))])
    assert row.details["precision"] == pytest.approx(5 / 6)
    assert row.details["recall"] == pytest.approx(5 / 6)
    assert row.value == pytest.approx(5 / 6)
    assert row.details["onset_error_s"] == pytest.approx(0.75)
    assert row.details["quiet"] == 1
    assert row.details["false_alarms_per_hour"] == pytest.approx(30)
    assert row.details["recall_at_some"] == 1  # of what is found with a large budget
    assert 0 < row.details["low"] < row.details["f1"] < row.details["high"] <= 1


def test_a_detector_that_finds_nothing_has_no_precision(made: Soundscape) -> None:
    row, _ = measured(CELL, [Detected(made, (), ())])
    assert row.value == 0
    assert "precision" not in row.details
    assert row.details["psds"] == 0
    assert row.details["words_found"] == 0


def test_the_numbers_of_two_soundscapes_are_those_of_all_their_events(made: Soundscape) -> None:
    right = Detected(made, found_as_true(made), found_as_true(made))
    row, arrays = measured(CELL, [right, Detected(made, (), ())])
    assert (row.n, row.details["recall"], row.details["hours"]) == (12, 0.5, 240 / 3600)
    assert len(arrays["blocks"]) == 4
    assert set(arrays["recording"].tolist()) == {0}


def test_an_error_of_a_recording_is_in_its_row(
    tmp_path: Path, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, made = cached_soundscape(RECIPE, home=home)
    clip = Clip(path, made.words, None, "one")

    def fails(
        embedder: Embedder, words: Sequence[str], scoring: Scoring, file: str, unlikely: bool
    ) -> Iterator[Event]:
        raise AudioError(f"{file} cannot be read") if scoring == COSINE else StoreError("full")

    monkeypatch.setattr(events, "find_events", fails)
    embedder = Embedder("fake")
    with Store(tmp_path / "store") as store:
        row = detect(store, CELL, [clip], embedder)
        assert row.metric == METRIC
        assert "cannot be read" in row.error
        store.put(Entries(rows=[row]))
        write_report(store, tmp_path / "report.md")
        with pytest.raises(StoreError):
            detect(store, Cell(CONDITION, Scoring("das")), [clip], embedder)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "Rows with an error:" in text
    assert "cannot be read" in text


@pytest.fixture(scope="module")
def finished(home: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of the small grid after a run."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch, Store(folder) as store:
        patch.setenv("DRIFTSCORE_SHARED", home)
        patch.setenv("DRIFTSCORE_CACHE", f"{home}/cache")
        patch.setattr(shared_soundscapes, "RECIPES", RECIPES)
        first = run(small(), store)
        assert (first.cells, first.computed, first.errors) == (2, 2, 0)
    return folder


def test_a_grid_is_run_stored_and_reported(tmp_path: Path, grid: Grid, finished: Path) -> None:
    with Store(finished) as store:
        assert run(grid, store).already == 2
        rows = list(store.rows())
        assert {row.cell.scoring.name for row in rows} == {"cosine", "das"}
        assert all(row.n == 12 and row.metric == METRIC and row.seconds for row in rows)
        assert [flat_row(row)["metric"] for row in rows] == [METRIC, METRIC]
        table = detection_table(read_detections(store)[0])
        assert [line.cells[0] for line in table.lines][1:] == ["Base", "DAS"]
        assert all(len(line.cells) == len(table.columns) for line in table.lines[1:])
        for name in ("report.md", "report.html"):
            write_report(store, tmp_path / name)
        assert len(read_detections(store, only={rows[0].cell.key})[0]) == 1
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "## Events in long recordings" in text
    assert "12 events in 0 hours" in text
    assert "false alarms per hour" in (tmp_path / "report_figures" / "events.svg").read_text(
        "utf-8"
    )
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_workers_can_detect_with_two_rules_of_a_condition_at_once(tmp_path: Path) -> None:
    names = {
        Job("detect", "run", str(tmp_path), CONDITION, {}, scorings=(scoring,)).name
        for scoring in (COSINE, Scoring("das"))
    }
    assert len(names) == 2


def test_rows_with_damaged_arrays_are_left_out_and_computed_again(
    tmp_path: Path, grid: Grid, finished: Path
) -> None:
    shutil.copytree(finished, tmp_path / "store")
    damages: list[dict[str, Array]] = [
        {"blocks": np.zeros((2, 3), np.int64)},  # not the events of the row
        {"curve": np.zeros((3, 4))},
    ]
    with Store(tmp_path / "store") as store:
        for row, damaged in zip(store.rows(), damages, strict=True):
            arrays = store.get_arrays("scores", row.cell.key)
            assert arrays is not None
            store.put_arrays("scores", row.cell.key, {**arrays, **damaged})
        assert len(read_detections(store)[0]) == 0
        assert run(grid, store).computed == 2
        assert len(read_detections(store)[0]) == 2


def test_the_estimate_of_a_grid_counts_the_hours_of_its_soundscapes(grid: Grid) -> None:
    size = measure(grid, check(grid))
    assert (size.cells, size.clips) == (2, 2)
    assert size.seconds == pytest.approx(2 * 240 / 3600 * 120)  # two rules, 120 s per hour


def test_another_detector_is_another_cell(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(keys(grid, check(grid)))
    assert list(keys(grid, check(grid))) == before
    monkeypatch.setattr(events, "PROTOCOL", 99)
    assert set(keys(grid, check(grid))).isdisjoint(before)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('snrs = ["clean", 0]\nnoises = ["synthetic"]\n', "its only SNR is 'clean'"),
        ('rules = ["zs_audio"]\nnoises = ["synthetic"]\n', "zs_audio needs recordings"),
        ('rules = ["tgap"]\n', "tgap needs recordings"),
    ],
)
def test_what_cannot_be_measured_on_soundscapes_is_an_error_before_the_run(
    monkeypatch: pytest.MonkeyPatch, more: str, message: str
) -> None:
    monkeypatch.setattr(shared_soundscapes, "RECIPES", (RECIPE,))
    lines = f'datasets = ["shared_soundscapes"]\nbackbones = ["fake"]\n{more}{HOMES}'
    grid = parse_grid(lines, name="wrong")
    with pytest.raises(UsageError, match=message):
        check(grid)


def test_the_grid_of_events_names_what_exists() -> None:
    grid = load_grid(Path(shared_soundscapes.__file__).parents[1] / "grids" / "events.toml")
    assert find_dataset("shared_soundscapes", grid.homes["shared_soundscapes"]).about.timed
    assert grid.names("datasets") == ["shared_soundscapes"]
    for rule in grid.names("rules"):
        events.check_detectable(Scoring(rule))


def test_the_command_runs_the_grid_and_writes_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_soundscapes, "RECIPES", (RECIPE,))
    file = tmp_path / "mine.toml"
    file.write_text(
        f'datasets = ["shared_soundscapes"]\nbackbones = ["fake"]\nrules = ["cosine"]\n{HOMES}',
        encoding="utf-8",
    )
    store = ["--store", str(tmp_path / "store")]
    done = CliRunner().invoke(app, ["lab", "run", str(file), *store])
    assert done.exit_code == 0, done.output
    assert "1 rows computed" in done.stderr
    out = tmp_path / "report.md"
    done = CliRunner().invoke(app, ["lab", "report", "--out", str(out), *store])
    assert done.exit_code == 0, done.output
    text = out.read_text(encoding="utf-8")
    assert text.startswith("# Events in long recordings\n")
    assert f"By `driftscore lab run {file}`." in text
    done = CliRunner().invoke(app, ["lab", "run", str(file), "--plan", *store])
    assert "1 cell in 1 condition, 1 clip to embed, about 4 s" in done.stderr


def test_numbers_do_not_depend_on_the_order_of_what_was_found(made: Soundscape) -> None:
    rng = np.random.default_rng(0)
    found = [replace(e, score=float(rng.random())) for e in found_as_true(made, late_s=0.5)]
    rows = [
        measured(CELL, [Detected(made, tuple(order), tuple(order))])[0]
        for order in (found, found[::-1])
    ]
    assert rows[0].details == rows[1].details
    assert events.FEW < events.SOME
