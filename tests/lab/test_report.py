import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from small_lab import build, quick, small_grid

from driftscore.errors import UsageError
from driftscore.lab import findings, metrics, tables
from driftscore.lab.grid import Cell, Condition, Scoring
from driftscore.lab.results import Results
from driftscore.lab.runner import run
from driftscore.lab.scoring import COSINE
from driftscore.lab.store import Row, Store, set_name

GRID = {
    "more": "betas = [0.1, 0.25]\ndirections = ['mean', 'svd']",
    "mixings": '["additive", "scaper"]',
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    home = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        quick(patch)
        patch.setenv("DRIFTSCORE_CACHE", str(home / "cache"))
        build(home / "one")
        (home / "one" / "clips" / "rain-3.wav").write_bytes(b"no sound")
        kept = Store(home / "store")
        run(small_grid(home / "one", **GRID), kept)
    kept.put_json("grids", ("small", "driftscore lab run small.toml"), {"title": "Small"})
    return kept


@pytest.fixture(scope="module")
def results(store):
    return Results(store)


@pytest.fixture(scope="module")
def multi(tmp_path_factory):
    home = tmp_path_factory.mktemp("multi")
    with pytest.MonkeyPatch.context() as patch:
        quick(patch)
        patch.setenv("DRIFTSCORE_CACHE", str(home / "cache"))
        build(home / "one", multi=True)
        kept = Store(home / "store")
        run(small_grid(home / "one"), kept)
    return kept


def test_pooled_accuracy_is_the_mean_over_seeds_and_its_interval_is_paired(results):
    das = tables.das_of(results)
    for result in results.where(lambda r: r.scoring == das and r.snr_db is not None):
        rows = [
            r for r in results.rows
            if r.cell.scoring == das and r.cell.condition.snr_db == result.snr_db
            and r.cell.condition.mixing == result.mixing
        ]  # fmt: skip
        assert len(rows) == 2
        assert result.value == pytest.approx(100 * np.mean([r.value for r in rows]))
        assert result.gain == pytest.approx(100 * np.mean([r.difference for r in rows]))
        assert result.low <= result.gain <= result.high
        assert (result.mixes, result.clips, result.failed) == (22, 11, 2)


def test_pooled_map_ranks_all_mixes_together(multi):
    results = Results(multi)
    cosine = next(r for r in results.all if r.scoring == COSINE and r.snr_db == 0)
    rows = [r for r in results.rows if r.cell.scoring == COSINE and r.cell.condition.snr_db == 0]
    arrays = [multi.get_arrays("scores", row.cell.key) for row in rows]
    truth = results.truth(rows[0])
    present = np.concatenate([truth.present[a["clips"]] for a in arrays])
    scores = np.concatenate([a["scores"] for a in arrays])
    assert cosine.value == pytest.approx(
        100 * metrics.mean_average_precision(present, scores).value
    )
    biased = next(r for r in results.all if r.scoring.name == "zs_audio" and r.snr_db == 0)
    assert (biased.gain, biased.low, biased.high) == (0, 0, 0)


def test_only_the_newest_model_of_a_name_is_reported(store, results, tmp_path):
    with Store(tmp_path) as other:
        row = results.rows[0]
        c = row.cell.condition
        old = Condition(*(getattr(c, n) for n in c.__slots__[:-1]), "an older model")
        old_cell = type(row.cell)(old, row.cell.scoring)
        fields = {n: getattr(row, n) for n in ("metric", "value", "n", "outcomes", "details")}
        other.put_rows([row, type(row)(old_cell, **fields, made_at="2000-01-01T00:00:00+00:00")])
        assert [r.cell for r in Results(other).rows] == [row.cell]


def test_the_seven_tables_have_our_rows_and_the_papers_marked(results):
    found = {table.name: table for table in tables.all_tables(results)}
    names = ("panel", "backbones", "methods", "robustness", "datasets", "beta", "ablations")
    for name in names:
        kinds = {line.kind for line in found[name].lines}
        assert "ours" in kinds, name
        assert all(len(line.cells) <= len(found[name].columns) for line in found[name].lines)
        assert name == "methods" or "paper" in kinds, name
    panel = found["panel"]
    assert " ".join(panel.columns[:8]) == "SNR Base ZS-T-g ZS-T-m ZS-A-m TGAP TGAP-A DAS"
    cosine = next(r for r in results.all if r.scoring == COSINE and r.snr_db == 0)
    line = next(x for x in panel.lines if x.cells[0] == "0" and x.kind == "ours")
    assert float(line.cells[1]) == pytest.approx(cosine.value, abs=0.01)


def test_the_papers_figures_are_those_of_its_source(shared):
    tex = (shared / "paper" / "drift-augmented-scoring.tex").read_text(encoding="utf-8")
    token = re.compile(r"[+-]?\d+/\d+|[+-]?\d+(?:\.\d+)?")
    source = [token.findall(line) for line in tex.splitlines() if "&" in line]

    def rows(value):
        if isinstance(value, dict):
            for item in value.values():
                yield from rows(item)
        elif isinstance(value, list):
            yield [v for v in value if isinstance(v, (int, float)) or re.fullmatch(r"\d+/\d+", v)]

    checked = 0
    for name, table in tables.paper().items():
        for row in rows(table) if name != "ablations" else ():
            if row:
                assert any(in_order(row, line) for line in source), (name, row)
                checked += 1
    assert checked == 10 + 5 + 6 + 13 + 5 + 3
    for value in (0.31, 99.0, 0.287, 96.9, 0.345, 0.172, 0.996, 0.999):
        assert f"{value}" in tex


def in_order(row, line):
    """Return whether all figures of a row stand in a line of the source, in their order."""
    left = iter(line)
    return all(any(same(figure, printed) for printed in left) for figure in row)


def same(figure, printed):
    if isinstance(figure, str) or "/" in printed:
        return figure == printed
    return float(printed) == figure


def test_the_papers_figure_stands_beside_ours_in_the_same_cell():
    figures = tables.paper()["panel"]
    place = ("fsd50k", 0, figures["noise"], figures["mixing"], 0.0, figures["backbone"])
    assert tables._with_paper(place, "das", 34.5) == "34.50 (paper 35.03)"
    assert tables._with_paper((*place[:5], "mini"), "das", 34.5) == "34.50"


def test_what_beats_das_is_found_with_its_needs(results):
    das = tables.das_of(results)
    for rival in findings.rivals(results):
        assert rival.difference > 0
        name = "plain cosine" if rival.name == "cosine" else tables.SHORT[rival.name]
        assert name in rival.sentence
    assert findings.needs_in_words("zs_audio_oracle").startswith("an oracle")
    assert "pool" in findings.needs_in_words("tgap")
    assert findings.needs_in_words("das") == ""
    assert das == Scoring("das", "", 0.25, "generic5", das.pack_data, "mean", "prompt")


def test_bands_hold_the_value(results):
    for result in results.where(lambda r: r.scoring == COSINE):
        low, high = results.band(result.place, COSINE)
        assert low <= result.value <= high


class Balanced(HTMLParser):
    VOID = frozenset({"meta", "br", "link", "path", "use", "image", "rect", "circle", "line", "hr"})

    def __init__(self):
        super().__init__()
        self.open, self.outside = [], []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.outside += [v for k, v in values.items() if k in ("src", "href") and "//" in (v or "")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(store, tmp_path):
    pytest.importorskip("matplotlib", reason="NOT RUN: figures need matplotlib (driftscore[lab])")
    from driftscore.lab.report import write_report

    write_report(store, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Balanced()
    page.feed(text)
    assert not page.open
    assert not page.outside
    assert text.count("<svg") == 4
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.S).lower().replace(
        "ordinances", ""
    )
    for part in ("What beats DAS", "driftscore lab run small.toml", "rain-3.wav", "Table S5"):
        assert part in text
    assert text.index("What beats DAS") < text.index("What DAS gains")
    write_report(store, tmp_path / "report.md")
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "(paper)" in markdown
    for figure in re.findall(r"\((report_figures/\w+\.svg)\)", markdown):
        assert (tmp_path / figure).is_file()


def test_a_report_of_nothing_says_so(tmp_path):
    from driftscore.lab.report import write_report

    with Store(tmp_path / "empty") as empty:
        with pytest.raises(UsageError, match="no rows to report"):
            write_report(empty, tmp_path / "report.html")
        with pytest.raises(UsageError, match=r"\.html or \.md"):
            write_report(empty, tmp_path / "report.pdf")


def test_numbers_are_written_with_their_sign_and_nothing_for_none():
    assert tables.signed(-0.0) == tables.signed(-0.004) == "+0.00"
    assert tables.signed(math.nan) == tables.plain(math.nan) == ""
    assert tables.interval(1.0, -0.5, 2.25) == "+1.00 [-0.50, +2.25]"


def test_mixes_of_one_clip_count_as_one_clip_in_an_interval(tmp_path):
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
    for seeds in (1, 4):  # the same answers four times over: no new knowledge
        with Store(tmp_path / str(seeds)) as store:
            for seed in range(seeds):
                condition = Condition("x", "", 0, "n", "", "additive", 0.0, seed, "fake", "m")
                store.put_json("sets", (set_name(condition),), truth)
                store.put_rows(
                    Row(Cell(condition, s), "accuracy", float((a == 0).mean()), 200, outcomes=a)
                    for s, a in answers.items()
                )
            found = Results(store)
            place = next(iter(found.all)).place
            interval = found.compare([(place, das, COSINE)])
            widths.append(interval.high - interval.low)
    assert widths[1] == pytest.approx(widths[0], rel=0.15)


def test_drift_alignment_is_that_of_the_bank_asked_for(results):
    das = tables.das_of(results)
    svd = tables.das_of(results, direction="svd")
    found = {s: results.alignment(s, lambda c: not c.clean) for s in (das, svd)}
    assert (
        found[das].classes == found[svd].classes == 3 * 2 * 2 * 2
    )  # classes, mixings, SNRs, seeds
    assert found[das].mean != found[svd].mean
    one = results.alignment(das, lambda c: (c.mixing, c.snr_db, c.seed) == ("scaper", 0.0, 1))
    assert one.classes == 3
    assert -1 <= one.mean <= 1


def test_the_mean_difference_of_map_is_that_of_the_conditions(multi):
    found = Results(multi)
    for name in ("das", "tgap", "zs_text"):
        rows = found.where(lambda r, n=name: r.scoring.name == n and r.snr_db is not None)
        pairs = [(r.place, r.scoring, COSINE) for r in rows]
        interval = found.compare_precision(pairs)
        assert len(pairs) == 2
        assert 100 * interval.difference == pytest.approx(np.mean([r.gain for r in rows]))
        assert interval.low <= interval.difference <= interval.high
    assert found.compare(pairs) is None
    assert found.compare_precision([]) is None
