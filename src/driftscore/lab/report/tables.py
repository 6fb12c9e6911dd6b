"""The paper's tables in its own layout, filled with our rows.

A line of ours is one condition pooled over seeds; *Pos* counts the conditions with a gain, *Worst*
and *Best* are the extremes, and gains are in points of accuracy or mAP over cosine. Lines marked as
the paper's come from paper.toml: its figures on its data, not ours. The paper prints six tables;
the seventh here has what its text says about ablations and drifts.
"""

import math
from collections.abc import Callable, Iterator, Sequence

from driftscore.lab.conditions import COSINE, PooledCondition, Scoring
from driftscore.lab.report.headings import (
    PANEL,
    PAPER_BETA,
    das_of,
    heading,
    main_settings,
    ordered,
    settings_of,
)
from driftscore.lab.report.numbers import (
    interval,
    mean,
    numeric_order,
    plain,
    points,
    printed,
    signed,
    summary,
)
from driftscore.lab.report.paper import panel_line, paper_panel, paper_robustness, paper_table
from driftscore.lab.report.parts import Line, Table
from driftscore.lab.report.results import PooledResult, Results

_POOL = (
    "The interval is that of the pooled accuracy gain over all single-label clips of the line (of "
    "the mean gain in mAP where there are none), clips resampled with all their mixes."
)


def all_tables(results: Results) -> list[Table]:
    """Return the seven tables, and the paper's own where it has other groups."""
    das = das_of(results)
    main = main_results(results)
    return [
        panel(main),
        backbones(main),
        methods(main),
        paper_methods(),
        robustness(results, main, das),
        per_dataset(results, main, das),
        beta(results),
        ablations(results),
    ]


def main_results(results: Results) -> list[PooledResult]:
    """Return the results of a main table: every rule, each with one choice of settings."""
    chosen = main_settings(results)
    return [result for result in results.all if settings_of(result.scoring) in chosen]


def panel(main: Sequence[PooledResult]) -> Table:
    """Table 1: one line per SNR, one column per rule, and DAS against the best of Acevedo's."""
    others = [n for n in ordered(r.scoring.name for r in main) if n not in PANEL]
    lines = [line for block in _panel_blocks(main, others) for line in block]
    for dataset in ("urbansound8k", "fsd50k"):
        lines.append(Line((f"the paper: {dataset}, TAU, Scaper, larger_clap",), "heading"))
        for snr, values in paper_panel(dataset).items():
            cells = [f"{value:.2f}" for value in values[:-1]]
            lines.append(Line((snr, *cells, f"{values[-1]:+.2f}", ""), "paper"))
    columns = ("SNR", *map(heading, PANEL), "Δ", "DAS over Base, 95 %", *map(heading, others))
    note = (
        "Accuracy (single-label) or class-wise mAP (multi-label) in %. Δ is DAS minus the best of "
        "the five Acevedo columns, as in the paper; further rules follow after it. Bold: the best "
        "of the line."
    )
    return Table("panel", "Table 1 · Per-SNR comparison", columns, tuple(lines), note)


def _panel_blocks(main: Sequence[PooledResult], others: Sequence[str]) -> Iterator[list[Line]]:
    by_place: dict[PooledCondition, dict[str, PooledResult]] = {}
    for result in main:
        by_place.setdefault(result.place, {})[result.scoring.name] = result
    previous = None
    for place, found in by_place.items():
        title = describe(next(iter(found.values())))
        lines = [Line((title,), "heading")] if title != previous else []
        previous = title
        yield [*lines, _panel_line(place, found, others)]


def _panel_line(
    place: PooledCondition, found: dict[str, PooledResult], others: Sequence[str]
) -> Line:
    values = [found[n].value if n in found else math.nan for n in (*PANEL, *others)]
    known = values[: len(PANEL)]
    best = max((v for v in values if not math.isnan(v)), default=math.nan)
    rivals = [v for v in known[1:-1] if not math.isnan(v)]
    gap = signed(known[-1] - max(rivals)) if rivals else ""
    das = found.get("das")
    gained = interval(das.gain, das.low, das.high) if das else ""
    cells = [with_paper(place, name, v) for name, v in zip(PANEL, known, strict=True)]
    # Columns are: SNR, the paper's rules, the gap, the interval, further rules.
    at = [*range(1, len(PANEL) + 1), *range(len(PANEL) + 3, len(values) + 3)]
    bold = tuple(i for i, v in zip(at, values, strict=True) if v == best)
    further = map(plain, values[len(PANEL) :])
    return Line((place.snr, *cells, gap, gained, *further), "ours", bold)


def with_paper(place: PooledCondition, name: str, value: float) -> str:
    """Return a value, with the paper's if it has the same cell."""
    line = panel_line(place)
    theirs = f" (paper {line[PANEL.index(name)]:.2f})" if line else ""
    return plain(value) + theirs


def backbones(main: Sequence[PooledResult]) -> Table:
    """Table S1: DAS over cosine by model and dataset."""
    gains = _das_in_noise(main)
    ours = sorted({r.dataset for r in gains})
    known = paper_table("backbones")["datasets"]
    datasets = [*ours, *(d for d in known if d not in ours)]
    lines = []
    for model in dict.fromkeys(r.backbone for r in gains):
        rows = [r for r in gains if r.backbone == model]
        means = [mean(r.gain for r in rows if r.dataset == dataset) for dataset in datasets]
        lines.append(Line((model, *map(signed, means), *summary([r.gain for r in rows])[:3])))
    for model, values in paper_table("backbones")["rows"].items():
        by_name = dict(zip(known, values[:5], strict=True))
        cells = [printed(by_name.get(dataset, "")) for dataset in datasets]
        name = model.removeprefix("laion/")
        lines.append(Line((name, *cells, *map(printed, values[5:])), "paper"))
    columns = ("Backbone", *datasets, "Mean", "Pos", "Worst")
    title = "Table S1 · DAS over cosine by backbone"
    return Table("backbones", title, columns, tuple(lines), "Noisy conditions only.")


def methods(main: Sequence[PooledResult]) -> Table:
    """Table S2: each rule over cosine, accuracy and mAP separately."""
    noisy = [r for r in main if r.snr_db is not None and r.scoring != COSINE]
    kinds = list(
        dict.fromkeys((r.metric, "" if r.metric == "accuracy" else r.dataset) for r in noisy)
    )
    lines = []
    for name in ordered(r.scoring.name for r in noisy):
        rows = [r for r in noisy if r.scoring.name == name]
        cells: list[str] = []
        for metric, dataset in kinds:
            fits = [r.gain for r in rows if r.metric == metric and dataset in ("", r.dataset)]
            cells += summary(fits)[:3]
        lines.append(Line((heading(name), *cells)))
    groups = [metric if not dataset else f"{metric} {dataset}" for metric, dataset in kinds]
    columns = ("Method", *(f"{g}: {c}" for g in groups for c in ("mean Δ", "Pos", "Worst")))
    note = (
        "A constant per class changes no ranking of clips, so ZS-T-g and ZS-A-m do not change mAP. "
        "ZS-T-m subtracts a constant per environment here, which does change rankings."
    )
    title = "Table S2 · Each method over cosine"
    return Table("methods", title, columns, tuple(lines), note)


def paper_methods() -> Table:
    """Table S2 as printed: its groups are other datasets than ours."""
    table = paper_table("methods")
    columns = (
        "Method",
        *(f"{group}: {c}" for group in table["groups"] for c in ("mean Δ", "Pos", "Worst")),
    )
    lines = tuple(
        Line((heading(name), *map(printed, values)), "paper")
        for name, values in table["rows"].items()
    )
    return Table("methods-paper", "Table S2 · The paper's own", columns, lines)


def robustness(results: Results, main: Sequence[PooledResult], das: Scoring | None) -> Table:
    """Table S3: DAS over cosine by noise corpus, mixing and SNR."""
    gains = _das_in_noise(main)
    axes: list[tuple[str, str, Callable[[PooledResult], str]]] = [
        ("By noise corpus", "noise", lambda r: str(r.noise)),
        ("By mixing method", "mixing", lambda r: str(r.mixing)),
        ("By SNR (dB)", "snr", lambda r: r.place.snr),
    ]
    lines = []
    for title, name, of in axes:
        lines.append(Line((title,), "heading"))
        for value in sorted({of(r) for r in gains}, key=numeric_order):
            rows = [r for r in gains if of(r) == value]
            lines.append(Line((value, *_gain_cells(results, rows, das))))
        for value, figures in paper_robustness(name).items():
            lines.append(Line((value, *map(printed, figures), ""), "paper"))
    columns = ("", "Cells", "Mean Δ", "Pos", "Worst", "Best", "pooled, 95 %")
    title = "Table S3 · DAS by noise, mixing and SNR"
    return Table("robustness", title, columns, tuple(lines), _POOL)


def per_dataset(results: Results, main: Sequence[PooledResult], das: Scoring | None) -> Table:
    """Table S4: DAS over cosine by dataset."""
    gains = _das_in_noise(main)
    lines = []
    for dataset in dict.fromkeys(r.dataset for r in gains):
        rows = [r for r in gains if r.dataset == dataset]
        count, average, positive, worst, _, pooled = _gain_cells(results, rows, das)
        size = f"{rows[0].clips} clips"
        cells = (dataset, size, rows[0].metric, count, average, positive, worst, pooled)
        lines.append(Line(cells))
    for dataset, values in paper_table("datasets")["rows"].items():
        lines.append(Line((dataset, *map(printed, values), ""), "paper"))
    columns = ("Dataset", "Type", "Metric", "Cells", "Mean Δ", "Pos", "Worst", "pooled, 95 %")
    return Table("datasets", "Table S4 · DAS by dataset", columns, tuple(lines), _POOL)


def beta(results: Results) -> Table:
    """Table S5: the drift weight."""
    lines = []
    for value in betas(results):
        das = das_of(results, beta=value)
        rows = [r for r in results.all if r.scoring == das and r.snr_db is not None]
        lines.append(Line((f"{value:g}", *_gain_cells(results, rows, das)[1:])))
    for name, values in paper_table("beta")["rows"].items():
        lines.append(Line((name, *map(printed, values), ""), "paper"))
    columns = ("β", "Mean Δ", "Pos", "Worst", "Best", "pooled, 95 %")
    note = "Noisy conditions. " + _POOL
    return Table("beta", "Table S5 · The drift weight β", columns, tuple(lines), note)


def betas(results: Results) -> list[float]:
    """Return the betas of DAS that were measured with the paper's other settings."""
    found = {r.cell.scoring.beta for r in results.rows if r.cell.scoring.rule == "das"}
    return sorted(b for b in found if b is not None and das_of(results, beta=b))


def ablations(results: Results) -> Table:
    """Table S6: direction, phrases and reference; then how text and audio drifts agree."""
    lines = [*_bank_lines(results), *_alignment_lines(results), *_agreement_lines(results)]
    columns = ("", "Mean", "Pos", "pooled, 95 %")
    note = paper_table("ablations")["title"] + "."
    return Table("ablations", "Table S6 · Ablations and drifts", columns, tuple(lines), note)


def _bank_lines(results: Results) -> Iterator[Line]:
    """Yield the gain of DAS with each bank, over the conditions that all of them have."""
    yield Line(("DAS with another bank (Δ over cosine, noisy conditions)",), "heading")
    scorings = {
        s for r in results.rows if (s := r.cell.scoring).rule == "das" and s.beta == PAPER_BETA
    }
    noisy = [r for r in results.all if r.scoring in scorings and r.snr_db is not None]
    places = {s: {r.place for r in noisy if r.scoring == s} for s in scorings}
    shared = set.intersection(*places.values()) if places else set()
    for das in sorted(scorings, key=lambda s: (s.pack or "", s.direction or "", s.reference or "")):
        rows = [r for r in noisy if r.scoring == das and r.place in shared]
        _, average, positive, *_, pooled = _gain_cells(results, rows, das)
        name = f"{das.pack}, {das.direction}, {das.reference}"
        yield Line((name, average, positive, pooled))
    for name, values in paper_table("ablations")["rows"].items():
        yield Line((name, *map(printed, values), ""), "paper")


def _alignment_lines(results: Results) -> Iterator[Line]:
    yield Line(("Text against audio drift (mean cosine, share of classes positive)",), "heading")
    kinds = {(r.backbone, str(r.noise), r.snr_db) for r in results.all if r.snr_db is not None}
    das = das_of(results)
    for kind in sorted(kinds):
        found = results.alignment(das, lambda c, k=kind: (c.backbone, c.noise, c.snr_db) == k)  # type: ignore[misc]
        if found:
            backbone, noise, snr = kind
            share = f"{found.positive:.0%} of {found.classes}"
            yield Line((f"{backbone}, {noise}, {snr:g} dB", f"{found.mean:+.3f}", share, ""))
    for name, (cosine, percent) in paper_table("ablations")["alignment"].items():
        yield Line((name, f"{cosine:+.3f}", f"{percent:g}%", ""), "paper")


def _agreement_lines(results: Results) -> Iterator[Line]:
    yield Line(("Mean against SVD direction (mean cosine over classes)",), "heading")
    for name, (cosines, common) in results.bank_reports().items():
        cells = (f"{sum(cosines) / len(cosines):.3f}", f"common to all classes: {common:.0%}")
        yield Line((name, *cells, ""))
    for name, value in paper_table("ablations")["agreement"].items():
        yield Line((name, f"{value:.3f}", "", ""), "paper")


def describe(result: PooledResult) -> str:
    """Return the condition of a result in words, without its SNR."""
    where = f"{result.dataset} ({result.metric}), {result.backbone}"
    return f"{where} · {result.noise}, {result.mixing}" if result.noise else f"{where} · clean"


def _das_in_noise(main: Sequence[PooledResult]) -> list[PooledResult]:
    return [r for r in main if r.scoring.rule == "das" and r.snr_db is not None]


def _gain_cells(results: Results, rows: Sequence[PooledResult], das: Scoring | None) -> list[str]:
    """Return count, mean, positive, worst, best and the pooled interval of the gains of DAS."""
    pairs = [(r.place, das, COSINE) for r in rows] if das else []
    pooled = points(results.difference(pairs))
    return [str(len(rows)), *summary([r.gain for r in rows]), pooled]
