"""A grid with examples per label: what is drawn, what is learnt, what is refused."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from driftscore import Classifier, load_backbone
from driftscore.errors import UsageError
from driftscore.lab.conditions import generator
from driftscore.lab.report.results import Results
from driftscore.lab.runs import jobs
from driftscore.lab.runs.embedding import load_embeddings
from driftscore.lab.runs.grid import Grid, groups, parse_grid
from driftscore.lab.runs.runner import run
from driftscore.lab.runs.scoring import ConditionData, scores_of
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.truth import Truth
from driftscore.lab.runs.validation import check

from .small_lab import build, content, quick


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    quick(monkeypatch)
    build(tmp_path / "home" / "others", clips=3)
    return build(tmp_path / "home")


def grid_with(home: Path, axes: str, tables: str = '[examples_from]\nmine = "others"\n') -> Grid:
    return parse_grid(
        'datasets = ["mine"]\nnoises = ["recorded"]\nsnrs = ["clean", 0]\nbackbones = ["fake"]\n'
        f'rules = ["cosine", "zs_audio"]\n{axes}\n{tables}'
        '[homes]\nmine = "clips"\nothers = "others/clips"\nrecorded = "noise"\n',
        name="small",
        folder=home,
    )


def test_rows_with_examples_are_those_of_a_fitted_classifier(home: Path, tmp_path: Path) -> None:
    grid = grid_with(home, "examples = [0, 2]\ndraws = [0, 2]")
    with Store(tmp_path / "store") as store:
        outcome = run(grid, store)
        rows = {(r.cell.condition.snr_db, r.cell.scoring.name, r.cell.scoring.draw): r
                for r in store.rows()}  # fmt: skip
        # Cosine with words, and with two draws; zs_audio is given noise, so it learns nothing.
        assert (outcome.cells, outcome.errors, len(rows)) == (8, 0, 8)
        row = rows[0.0, "cosine+2", 2]
        condition, scoring = row.cell.condition, row.cell.scoring
        others = [f"{label}-{n}.wav" for label in ("dog bark", "siren", "rain") for n in range(3)]
        cell = next(c for c, _ in groups(grid, check(grid)) if c.clean)
        source = cell.__class__(
            "others", scoring.examples_data, *[getattr(cell, n) for n in cell.__slots__[2:]]
        )
        embedded = load_embeddings(store, source, others)
        tested = load_embeddings(store, condition, [f"{n}" for n in range(12)])
        assert embedded is not None
        assert tested is not None
        drawn = []
        for label in ("dog bark", "rain", "siren"):
            clips = [n for n, name in enumerate(others) if name.startswith(label)]
            drawn += generator("examples", "others", label, 2).permutation(clips)[:2].tolist()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            head = (
                Classifier(["dog bark", "rain", "siren"], backbone=load_backbone("fake"),
                           rule="cosine")
                .fit(embedded.rows[drawn], [others[n].split("-")[0] for n in drawn])
                .head_
            )  # fmt: skip
        assert row.outcomes is not None
        scores = head.scores(tested.rows)
        np.testing.assert_array_equal(row.outcomes, scores.argmax(axis=1))
        truths = {name: Truth.of(*jobs.clips_of(name, grid.homes[name], 0))
                  for name in ("mine", "others")}  # fmt: skip
        data = ConditionData(
            store, condition, truths["mine"], load_backbone("fake"), tested,
            (truths["others"], embedded),
        )  # fmt: skip
        np.testing.assert_array_equal(scores_of(data, scoring), scores)
        pooled = [r for r in Results(store).all if r.scoring.examples and r.noisy]
        assert [(r.mixes, r.clips) for r in pooled] == [(24, 12)], "draws are pooled"


def test_rows_without_examples_keep_their_keys_and_values(home: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "with") as store:
        run(grid_with(home, "examples = [0, 1]"), store)
        without = [row for row in content(store) if '"examples"' not in str(row[0])]
        assert len(content(store)) > len(without)
    with Store(tmp_path / "without") as store:
        run(grid_with(home, "", tables=""), store)
        assert content(store) == without


@pytest.mark.parametrize(
    ("axes", "tables", "message"),
    [
        ("examples = [3]", "", r"\[examples_from\] must name the dataset of the examples of mine"),
        ("examples = [-1]", '[examples_from]\nmine = "others"\n', "must not be negative, got -1"),
        ("draws = [0.5]", "", "draws must be integers, got 0.5"),
        ("examples = [1]", '[examples_from]\nmine = "othrs"\n', "othrs"),
    ],
)
def test_a_grid_that_has_no_examples_to_draw_is_refused(
    home: Path, axes: str, tables: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        check(grid_with(home, axes, tables))
