import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from driftscore.lab import metrics
from driftscore.lab.conditions import COSINE, Cell, Condition, PooledCondition, Row, Scoring
from driftscore.lab.metrics import Interval
from driftscore.lab.report import findings, page, tables
from driftscore.lab.report.headings import heading, needs_in_words
from driftscore.lab.report.results import Results
from driftscore.lab.runs.runner import run
from driftscore.lab.runs.store import Entries, Store

from .small_lab import build, quick, small_grid

GRID = {
    "more": "betas = [0.1, 0.25]\ndirections = ['mean', 'svd']",
    "mixings": '["additive", "scaper"]',
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    home = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        quick(patch)
        patch.setenv("DRIFTSCORE_CACHE", str(home / "cache"))
        build(home / "one")
        (home / "one" / "clips" / "rain-3.wav").write_bytes(b"not audio")
        kept = Store(home / "store")
        run(small_grid(home / "one", **GRID), kept)
    kept.put_json("grids", ("small", "driftscore lab run small.toml"), {"title": "Small"})
    return kept


@pytest.fixture(scope="module")
def results(store: Store) -> Results:
    return Results(store)


@pytest.fixture(scope="module")
def multi(tmp_path_factory: pytest.TempPathFactory) -> Store:
    home = tmp_path_factory.mktemp("multi")
    with pytest.MonkeyPatch.context() as patch:
        quick(patch)
        patch.setenv("DRIFTSCORE_CACHE", str(home / "cache"))
        build(home / "one", multi=True)
        kept = Store(home / "store")
        run(small_grid(home / "one"), kept)
    return kept


def test_pooled_accuracy_is_the_mean_over_seeds_and_its_interval_is_paired(
    results: Results,
) -> None:
    das = results.das()
    for result in [r for r in results.all if r.scoring == das and r.condition.snr_db is not None]:
        rows = [
            r for r in results.rows
            if r.cell.scoring == das and r.cell.condition.snr_db == result.condition.snr_db
            and r.cell.condition.mixing == result.condition.mixing
        ]  # fmt: skip
        assert len(rows) == 2
        assert result.value == pytest.approx(100 * np.mean([r.value for r in rows]))
        assert result.gain.difference == pytest.approx(
            100 * np.mean([r.gain.difference for r in rows if r.gain])
        )
        assert result.gain.low <= result.gain.difference <= result.gain.high
        assert (result.mixes, result.clips, result.failed) == (22, 11, 2)


def test_pooled_map_ranks_all_mixes_together(multi: Store) -> None:
    results = Results(multi)
    cosine = next(r for r in results.all if r.scoring == COSINE and r.condition.snr_db == 0)
    rows = [r for r in results.rows if r.cell.scoring == COSINE and r.cell.condition.snr_db == 0]
    arrays = [multi.get_arrays("scores", row.cell.key) for row in rows]
    truth = results.truth(rows[0])
    present = np.concatenate([truth.present[a["clips"].astype(int)] for a in arrays if a])
    scores = np.concatenate([a["scores"].astype(float) for a in arrays if a])
    assert cosine.value == pytest.approx(
        100 * metrics.mean_average_precision(present, scores).value
    )
    biased = next(
        r for r in results.all if r.scoring.name == "zs_audio" and r.condition.snr_db == 0
    )
    assert (biased.gain.difference, biased.gain.low, biased.gain.high) == (0, 0, 0)


def test_only_the_newest_model_of_a_name_is_reported(
    store: Store, results: Results, tmp_path: Path
) -> None:
    with Store(tmp_path) as other:
        row = results.rows[0]
        c = row.cell.condition
        old = replace(c, model="an older model")
        old_cell = Cell(old, row.cell.scoring)
        fields = {n: getattr(row, n) for n in ("metric", "value", "n", "outcomes", "details")}
        older = Row(old_cell, **fields, made_at="2000-01-01T00:00:00+00:00")
        other.put(Entries(rows=[row, older]))
        other.put_json("sets", (c.set_name,), asdict(results.truth(row)))
        assert [r.cell for r in Results(other).rows] == [row.cell]


def test_the_seven_tables_have_our_rows_and_the_papers_marked(results: Results) -> None:
    found = {table.name: table for table in tables.all_tables(results)}
    names = ("panel", "backbones", "methods", "robustness", "datasets", "beta", "ablations")
    for name in names:
        kinds = {line.kind for line in found[name].lines}
        assert "ours" in kinds, name
        assert all(len(line.cells) <= len(found[name].columns) for line in found[name].lines)
        assert name == "methods" or "paper" in kinds, name
    panel = found["panel"]
    assert " ".join(panel.columns[:8]) == "SNR Base ZS-T-g ZS-T-m ZS-A-m TGAP TGAP-A DAS"
    cosine = next(r for r in results.all if r.scoring == COSINE and r.condition.snr_db == 0)
    line = next(x for x in panel.lines if x.cells[0] == "0" and x.kind == "ours")
    assert float(line.cells[1]) == pytest.approx(cosine.value, abs=0.01)


def test_the_papers_figures_are_those_of_its_source(shared: Path) -> None:
    tex = (shared / "paper" / "drift-augmented-scoring.tex").read_text(encoding="utf-8")
    token = re.compile(r"[+-]?\d+/\d+|[+-]?\d+(?:\.\d+)?")
    source = [token.findall(line) for line in tex.splitlines() if "&" in line]

    def rows(value: object) -> Iterator[list[float | str]]:
        if isinstance(value, dict):
            for item in value.values():
                yield from rows(item)
        elif isinstance(value, list):
            yield [v for v in value if isinstance(v, (int, float)) or re.fullmatch(r"\d+/\d+", v)]

    checked = 0
    for name, table in tables._paper().items():
        for row in rows(table) if name != "ablations" else ():
            if row:
                assert any(in_order(row, line) for line in source), (name, row)
                checked += 1
    assert checked == 10 + 5 + 6 + 13 + 5 + 3
    for value in (0.31, 99.0, 0.287, 96.9, 0.345, 0.172, 0.996, 0.999):
        assert f"{value}" in tex


def in_order(row: Sequence[float | str], line: Sequence[str]) -> bool:
    """Return whether all figures of a row stand in a line of the source, in their order."""
    left = iter(line)
    return all(any(same(figure, printed) for printed in left) for figure in row)


def same(figure: float | str, printed: str) -> bool:
    if isinstance(figure, str) or "/" in printed:
        return figure == printed
    return float(printed) == figure


def test_the_papers_figure_is_shown_with_ours_in_the_same_cell() -> None:
    figures = tables._paper()["panel"]
    noise, mixing, model = (str(figures[n]) for n in ("noise", "mixing", "backbone"))
    place = PooledCondition("fsd50k", 0, noise, mixing, 0.0, model)
    assert tables.with_paper(place, "das", 34.5) == "34.50 (paper 35.03)"
    assert tables.with_paper(place._replace(backbone="mini"), "das", 34.5) == "34.50"


def test_rules_above_das_are_listed_with_their_needs(results: Results) -> None:
    das = results.das()
    for rival in findings.rivals(results):
        assert rival.gap.difference > 0
        name = "plain cosine" if rival.name == "cosine" else heading(rival.name)
        assert name in rival.sentence
    assert needs_in_words("zs_audio_oracle").startswith("an oracle")
    assert "pool" in needs_in_words("tgap")
    assert needs_in_words("das") == ""
    assert das is not None
    assert das == Scoring("das", "", 0.25, "generic5", das.pack_data, "mean", "prompt")


def test_bands_contain_the_value(results: Results) -> None:
    for result in [r for r in results.all if r.scoring == COSINE]:
        band = results.band(result.condition, COSINE)
        assert band is not None
        assert band[0] <= result.value <= band[1]


def test_numbers_have_their_sign_and_nan_is_empty() -> None:
    assert page.signed(-0.0) == page.signed(-0.004) == "+0.00"
    assert page.signed(math.nan) == page.plain(math.nan) == ""
    assert page.interval(Interval(1.0, -0.5, 2.25)) == "+1.00 [-0.50, +2.25]"


def test_mixes_of_one_clip_count_as_one_clip_in_an_interval(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    truth = {
        "labels": ["a", "b"],
        "ids": [f"clip {n}" for n in range(200)],
        "folds": [None] * 200,
        "classes": [[0]] * 200,
        "multi_label": False,
    }
    das = Scoring("das", "", 0.25, "das52", "", "mean", "prompt")
    answers = {scoring: rng.integers(0, 2, 200).astype(np.int16) for scoring in (das, COSINE)}
    widths = []
    for seeds in (1, 4):  # the same answers four times: no new information
        with Store(tmp_path / str(seeds)) as store:
            for seed in range(seeds):
                condition = Condition("x", "", 0, "n", "", "additive", 0.0, seed, "fake", "m")
                store.put_json("sets", (condition.set_name,), truth)
                rows = [
                    Row(Cell(condition, s), "accuracy", float((a == 0).mean()), 200, outcomes=a)
                    for s, a in answers.items()
                ]
                store.put(Entries(rows=rows))
            found = Results(store)
            place = next(iter(found.all)).condition
            interval = found.compare([(place, das, COSINE)])
            assert interval is not None
            widths.append(interval.high - interval.low)
    assert widths[1] == pytest.approx(widths[0], rel=0.15)


def test_drift_alignment_is_that_of_the_requested_bank(results: Results) -> None:
    das = results.das()
    svd = results.das(direction="svd")
    mean, other = (results.alignment(s) for s in (das, svd))
    assert mean is not None
    assert other is not None
    assert mean.classes == other.classes == 3 * 2 * 2 * 2  # classes, mixings, SNRs, seeds
    assert mean.mean != other.mean
    one = results.alignment(das, mixing="scaper", snr_db=0.0, seed=1)
    assert one is not None
    assert one.classes == 3
    assert -1 <= one.mean <= 1


def test_the_mean_difference_of_map_is_that_of_the_conditions(multi: Store) -> None:
    found = Results(multi)
    for name in ("das", "tgap", "zs_text"):
        rows = [r for r in found.all if r.scoring.name == name and r.condition.snr_db is not None]
        pairs = [(r.condition, r.scoring, COSINE) for r in rows]
        interval = found.compare_precision(pairs)
        assert len(pairs) == 2
        assert interval is not None
        gains = [r.gain.difference for r in rows]
        assert interval.difference == pytest.approx(np.mean(gains))
        assert interval.low <= interval.difference <= interval.high
    assert found.compare(pairs) is None
    assert found.compare_precision([]) is None


def test_class_gains_count_each_class_and_leave_failed_clips_out(tmp_path: Path) -> None:
    truth = {
        "labels": list("abcd"),
        "ids": list("12345"),
        "folds": [None] * 5,
        "classes": [[0], [0], [1], [1], [2]],
        "multi_label": False,
    }
    condition = Condition("x", "", 0, "n", "", "additive", 0.0, 1, "fake", "m")
    with Store(tmp_path) as store:
        store.put_json("sets", (condition.set_name,), truth)
        for scoring, chosen in ((DAS, [0, 0, 0, 1, -1]), (COSINE, [0, 1, 1, 1, 2])):
            outcomes = np.array(chosen, np.int16)
            used = int((outcomes >= 0).sum())
            cell = Cell(condition, scoring)
            store.put(Entries(rows=[Row(cell, "accuracy", 0.5, used, 5 - used, outcomes=outcomes)]))
        gains = Results(store).class_gains
    assert gains == {("x", "fake"): {"a": 50, "b": -50}}


def outcomes_of(right: int, count: int = 200) -> NDArray[np.int16]:
    """Return the answers of a rule that is right for the first `right` clips."""
    return np.where(np.arange(count) < right, 0, 1).astype(np.int16)


def stored(
    store: Store,
    answers: Mapping[Scoring, NDArray[np.int16]],
    *,
    seeds: int = 1,
    snr_db: float = 0.0,
) -> None:
    """Store one single-label condition in which each scoring gave these answers."""
    truth = {
        "labels": ["a", "b"],
        "ids": [f"clip {n}" for n in range(200)],
        "folds": [None] * 200,
        "classes": [[0]] * 200,
        "multi_label": False,
    }
    for seed in range(seeds):
        condition = Condition("x", "", 0, "n", "", "additive", snr_db, seed, "fake", "m")
        store.put_json("sets", (condition.set_name,), truth)
        base = answers[COSINE]
        for scoring, found in answers.items():
            gain = metrics.accuracy_difference(
                np.zeros(200, int),
                np.stack([found == 0, found == 1], axis=1).astype(float),
                np.stack([base == 0, base == 1], axis=1).astype(float),
                rng=np.random.default_rng(0),
            )
            value = float((found == 0).mean())
            row = Row(Cell(condition, scoring), "accuracy", value, 200, gain=gain, outcomes=found)
            store.put(Entries(rows=[row]))


DAS = Scoring("das", "", 0.25, "das52", "", "mean", "prompt")


def test_a_rule_from_outside_appears_in_every_table_and_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="NOT RUN: figures need matplotlib (driftscore[lab])")
    from driftscore.lab.report.figures import snr_figure

    (tmp_path / "sharp_rules.py").write_text(
        "from driftscore.scoring.head import Head\n"
        "class Sharp:\n"
        '    """Sharpen."""\n'
        '    SHORT = "Sharp!"\n'
        "    @staticmethod\n"
        "    def compile(bank, *, beta: float = 0.5) -> Head: ...\n"
        "sharp = Sharp()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    outside = {
        b: Scoring("sharp_rules:sharp", "", b, "das52", "", "mean", "prompt") for b in (0.1, 0.5)
    }
    gone = Scoring("a_rule_that_is_not_installed")
    answers = {
        COSINE: outcomes_of(100), DAS: outcomes_of(110), outside[0.1]: outcomes_of(90),
        outside[0.5]: outcomes_of(130), gone: outcomes_of(120),
    }  # fmt: skip
    with Store(tmp_path / "store") as store:
        stored(store, answers)
        results = Results(store)
        found = {table.name: table for table in tables.all_tables(results)}
        panel = found["panel"]
        assert panel.columns[-2:] == ("a_rule_that_is_not_installed", "Sharp!")
        line = next(x for x in panel.lines if x.kind == "ours")
        assert line.cells[-2:] == ("60.00", "65.00")  # at its default beta, 0.5
        assert line.bold == (len(panel.columns) - 1,)
        names = [x.cells[0] for x in found["methods"].lines]
        assert names == ["DAS", "a_rule_that_is_not_installed", "Sharp!"]
        listed = [x.cells[0] for x in findings.rival_table(findings.rivals(results)).lines]
        assert listed == ["Sharp!", "a_rule_that_is_not_installed"]
        (figure,) = snr_figure(results)
        assert "Sharp!" in figure.svg


def test_bold_gains_are_those_whose_interval_excludes_zero_not_those_that_look_alike(
    tmp_path: Path,
) -> None:
    clear, unclear = Interval(0.04, 0.0001, 0.08), Interval(0.04, -0.0001, 0.08)
    with Store(tmp_path) as store:
        for snr_db, gain in ((0.0, clear), (10.0, unclear)):
            stored(store, {COSINE: outcomes_of(100), DAS: outcomes_of(108)}, snr_db=snr_db)
            condition = Condition("x", "", 0, "n", "", "additive", snr_db, 0, "fake", "m")
            row = Row(Cell(condition, DAS), "accuracy", 0.54, 200, gain=gain)
            store.put(Entries(rows=[replace(row, outcomes=outcomes_of(108))]))
        table = findings.gain_table(Results(store))
    line = next(x for x in table.lines if x.kind == "ours")
    assert table.columns == ("", "clean", "10 dB", "0 dB")
    assert line.cells[2].replace("+0.0", "-0.0") == line.cells[3].replace("+0.0", "-0.0")
    assert line.bold == (3,)
