"""The paper's tables in its own layout, filled with our rows.

A line of ours is one condition pooled over seeds; *Pos* counts the conditions with a gain, *Worst*
and *Best* are the extremes, and gains are in points of accuracy or mAP over cosine. Lines marked as
the paper's come from paper.toml: its figures on its data, not ours. The paper prints six tables;
the seventh here has what its text says about ablations and drifts.
"""

import math
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from driftscore.lab.conditions import COSINE, PooledCondition, Scoring
from driftscore.lab.report.headings import PANEL, heading, main_results, ordered
from driftscore.lab.report.page import Line, Table, interval, plain, signed
from driftscore.lab.report.results import PAPER_BETA, PooledResult, Results, mean

_POOL = (
    "The interval is that of the pooled accuracy gain over all single-label clips of the line (of "
    "the mean gain in mAP where there are none), clips resampled with all their mixes."
)


@cache
def _paper() -> dict[str, Any]:
    """Return the figures that the paper prints (paper.toml): on its data and models, not ours."""
    file = files("driftscore.lab.report") / "paper.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def all_tables(results: Results) -> list[Table]:
    """Return the seven tables, and the paper's own where it has other groups."""
    das = results.das()
    main = main_results(results)
    gains = [r for r in main if r.scoring.rule == "das" and r.noisy]
    return [
        panel(main),
        backbones(gains),
        methods(main),
        paper_methods(),
        robustness(results, gains, das),
        per_dataset(results, gains, das),
        beta(results),
        ablations(results),
    ]


def panel(main: Sequence[PooledResult]) -> Table:
    """Table 1: one line per SNR, one column per rule, and DAS against the best of Acevedo's."""
    others = [n for n in ordered(r.scoring.name for r in main) if n not in PANEL]
    by_condition: dict[PooledCondition, dict[str, PooledResult]] = {}
    for result in main:
        by_condition.setdefault(result.condition, {})[result.scoring.name] = result
    lines: list[Line] = []
    previous = ""
    for c, rules in by_condition.items():
        title = f"{c.dataset} ({next(iter(rules.values())).metric}), {c.backbone} · "
        title += f"{c.noise}, {c.mixing}" if c.noise else "clean"
        if title != previous:
            lines.append(Line((title,), "heading"))
        previous = title
        values = [rules[n].value if n in rules else math.nan for n in (*PANEL, *others)]
        papers, further = values[: len(PANEL)], values[len(PANEL) :]
        best = max((v for v in values if not math.isnan(v)), default=math.nan)
        rivals = [v for v in papers[1:-1] if not math.isnan(v)]
        gap = signed(papers[-1] - max(rivals)) if rivals else ""
        das = rules.get("das")
        gained = interval(das.gain) if das else ""
        cells = [with_paper(c, name, v) for name, v in zip(PANEL, papers, strict=True)]
        # The SNR is before the paper's rules; the gap and the interval are before further rules.
        bold = tuple(n + (1 if n < len(PANEL) else 3) for n, v in enumerate(values) if v == best)
        lines.append(Line((c.snr, *cells, gap, gained, *map(plain, further)), "ours", bold))
    for dataset in ("urbansound8k", "fsd50k"):
        lines.append(Line((f"the paper: {dataset}, TAU, Scaper, larger_clap",), "heading"))
        for snr, figures in _paper()["panel"].get(dataset, {}).items():
            cells = [f"{figure:.2f}" for figure in figures[:-1]]
            lines.append(Line((snr, *cells, f"{figures[-1]:+.2f}", ""), "paper"))
    columns = ("SNR", *map(heading, PANEL), "Δ", "DAS over Base, 95 %", *map(heading, others))
    note = (
        "Accuracy (single-label) or class-wise mAP (multi-label) in %. Δ is DAS minus the best of "
        "the five Acevedo columns, as in the paper; further rules follow after it. Bold: the best "
        "of the line."
    )
    return Table("panel", "Table 1 · Per-SNR comparison", columns, lines, note)


def with_paper(condition: PooledCondition, rule: str, value: float) -> str:
    """Return a value, with the paper's if it has the same dataset, noise, mixing, SNR and model."""
    figures = _paper()["panel"]
    same = all(getattr(condition, n) == figures[n] for n in ("noise", "mixing", "backbone"))
    line = figures.get(condition.dataset, {}).get(condition.snr) if same else None
    return plain(value) + (f" (paper {line[PANEL.index(rule)]:.2f})" if line else "")


def backbones(gains: Sequence[PooledResult]) -> Table:
    """Table S1: DAS over cosine by model and dataset."""
    ours = sorted({r.condition.dataset for r in gains})
    theirs = _paper()["backbones"]["datasets"]
    datasets = [*ours, *(d for d in theirs if d not in ours)]
    lines = []
    for model in dict.fromkeys(r.condition.backbone for r in gains):
        rows = [r for r in gains if r.condition.backbone == model]
        by_dataset = ([r for r in rows if r.condition.dataset == name] for name in datasets)
        means = [summary(here)[0] for here in by_dataset]
        lines.append(Line((model, *means, *summary(rows)[:3])))
    for model, values in _paper()["backbones"]["rows"].items():
        by_name = dict(zip(theirs, values[:5], strict=True))
        cells = [printed(by_name.get(dataset, "")) for dataset in datasets]
        name = model.removeprefix("laion/")
        lines.append(Line((name, *cells, *map(printed, values[5:])), "paper"))
    columns = ("Backbone", *datasets, "Mean", "Pos", "Worst")
    title, note = "Table S1 · DAS over cosine by backbone", "Noisy conditions only."
    return Table("backbones", title, columns, lines, note)


def methods(main: Sequence[PooledResult]) -> Table:
    """Table S2: each rule over cosine, accuracy and mAP separately."""
    noisy = [r for r in main if r.noisy and r.scoring != COSINE]
    groups: dict[str, list[PooledResult]] = {}
    for r in noisy:
        group = r.metric if r.metric == "accuracy" else f"{r.metric} {r.condition.dataset}"
        groups.setdefault(group, []).append(r)
    lines = []
    for name in ordered(r.scoring.name for r in noisy):
        cells: list[str] = []
        for rows in groups.values():
            cells += summary(r for r in rows if r.scoring.name == name)[:3]
        lines.append(Line((heading(name), *cells)))
    columns = ("Method", *(f"{g}: {c}" for g in groups for c in ("mean Δ", "Pos", "Worst")))
    note = (
        "A constant per class changes no ranking of clips, so ZS-T-g and ZS-A-m do not change mAP. "
        "ZS-T-m subtracts a constant per environment here, which does change rankings."
    )
    return Table("methods", "Table S2 · Each method over cosine", columns, lines, note)


def paper_methods() -> Table:
    """Table S2 as printed: its groups are other datasets than ours."""
    table = _paper()["methods"]
    parts = ("mean Δ", "Pos", "Worst")
    columns = ("Method", *(f"{group}: {part}" for group in table["groups"] for part in parts))
    rows = table["rows"].items()
    lines = [Line((heading(name), *map(printed, values)), "paper") for name, values in rows]
    return Table("methods-paper", "Table S2 · The paper's own", columns, lines)


def robustness(results: Results, gains: Sequence[PooledResult], das: Scoring | None) -> Table:
    """Table S3: DAS over cosine by noise corpus, mixing and SNR."""
    titles = {"noise": "By noise corpus", "mixing": "By mixing method", "snr": "By SNR (dB)"}
    lines = []
    for name, title in titles.items():
        lines.append(Line((title,), "heading"))
        groups: dict[str, list[PooledResult]] = {}
        for r in gains:
            groups.setdefault(str(getattr(r.condition, name)), []).append(r)
        for value in sorted(groups, key=float if name == "snr" else str):
            lines.append(Line((value, *_gain_cells(results, groups[value], das))))
        for value, figures in _paper()["robustness"][name].items():
            lines.append(Line((value, *map(printed, figures), ""), "paper"))
    columns = ("", "Cells", "Mean Δ", "Pos", "Worst", "Best", "pooled, 95 %")
    return Table("robustness", "Table S3 · DAS by noise, mixing and SNR", columns, lines, _POOL)


def per_dataset(results: Results, gains: Sequence[PooledResult], das: Scoring | None) -> Table:
    """Table S4: DAS over cosine by dataset."""
    lines = []
    for dataset in dict.fromkeys(r.condition.dataset for r in gains):
        rows = [r for r in gains if r.condition.dataset == dataset]
        *cells, _, pooled = _gain_cells(results, rows, das)
        lines.append(Line((dataset, f"{rows[0].clips} clips", rows[0].metric, *cells, pooled)))
    for dataset, values in _paper()["datasets"]["rows"].items():
        lines.append(Line((dataset, *map(printed, values), ""), "paper"))
    columns = ("Dataset", "Type", "Metric", "Cells", "Mean Δ", "Pos", "Worst", "pooled, 95 %")
    return Table("datasets", "Table S4 · DAS by dataset", columns, lines, _POOL)


def beta(results: Results) -> Table:
    """Table S5: the drift weight."""
    lines = []
    for value in results.betas:
        das = results.das(beta=value)
        rows = [r for r in results.all if r.scoring == das and r.noisy]
        lines.append(Line((f"{value:g}", *_gain_cells(results, rows, das)[1:])))
    for name, values in _paper()["beta"]["rows"].items():
        lines.append(Line((name, *map(printed, values), ""), "paper"))
    columns = ("β", "Mean Δ", "Pos", "Worst", "Best", "pooled, 95 %")
    note = f"Noisy conditions. {_POOL}"
    return Table("beta", "Table S5 · The drift weight β", columns, lines, note)


def ablations(results: Results) -> Table:
    """Table S6: direction, phrases and reference; then how text and audio drifts agree."""
    theirs = _paper()["ablations"]
    # The gain of DAS with each bank, over the conditions that all of them have.
    lines = [Line(("DAS with another bank (Δ over cosine, noisy conditions)",), "heading")]
    scorings = {
        s for r in results.rows if (s := r.cell.scoring).rule == "das" and s.beta == PAPER_BETA
    }
    noisy = [r for r in results.all if r.scoring in scorings and r.noisy]
    measured = [{r.condition for r in noisy if r.scoring == s} for s in scorings]
    common = set.intersection(*measured) if measured else set()
    for das in sorted(scorings, key=lambda s: (s.pack or "", s.direction or "", s.reference or "")):
        rows = [r for r in noisy if r.scoring == das and r.condition in common]
        _, average, positive, *_, pooled = _gain_cells(results, rows, das)
        bank = f"{das.pack}, {das.direction}, {das.reference}"
        lines.append(Line((bank, average, positive, pooled)))
    for name, values in theirs["rows"].items():
        lines.append(Line((name, *map(printed, values), ""), "paper"))

    title = "Text against audio drift (mean cosine, share of classes positive)"
    lines.append(Line((title,), "heading"))
    conditions = {r.condition for r in results.all if r.noisy}
    kinds = {(c.backbone, str(c.noise), c.snr_db or 0.0) for c in conditions}
    for backbone, noise, snr in sorted(kinds):
        alignment = results.alignment(results.das(), backbone=backbone, noise=noise, snr_db=snr)
        if alignment:
            share = f"{alignment.positive:.0%} of {alignment.classes}"
            cells = (f"{backbone}, {noise}, {snr:g} dB", f"{alignment.mean:+.3f}", share, "")
            lines.append(Line(cells))
    for name, (cosine, percent) in theirs["alignment"].items():
        lines.append(Line((name, f"{cosine:+.3f}", f"{percent:g}%", ""), "paper"))

    lines.append(Line(("Mean against SVD direction (mean cosine over classes)",), "heading"))
    for name, (cosines, common_share) in results.bank_reports().items():
        shared = f"common to all classes: {common_share:.0%}"
        lines.append(Line((name, f"{sum(cosines) / len(cosines):.3f}", shared, "")))
    for name, value in theirs["agreement"].items():
        lines.append(Line((name, f"{value:.3f}", "", ""), "paper"))
    columns, note = ("", "Mean", "Pos", "pooled, 95 %"), f"{theirs['title']}."
    return Table("ablations", "Table S6 · Ablations and drifts", columns, lines, note)


def summary(results: Iterable[PooledResult]) -> list[str]:
    """Return the mean, the number of positive ones, the least and the largest of the gains."""
    gains = (result.gain.difference for result in results)
    defined = [gain for gain in gains if not math.isnan(gain)]
    if not defined:
        return ["", "", "", ""]
    positive = f"{sum(gain > 0 for gain in defined)}/{len(defined)}"
    return [signed(mean(defined)), positive, signed(min(defined)), signed(max(defined))]


def printed(value: object) -> str:
    """Return a figure of the paper as the paper prints it."""
    if isinstance(value, float):
        return f"{value:+.2f}" if value else "0.00"
    return str(value)


def _gain_cells(results: Results, rows: Sequence[PooledResult], das: Scoring | None) -> list[str]:
    """Return count, mean, positive, worst, best and the pooled interval of the gains of DAS."""
    pairs = [(r.condition, das, COSINE) for r in rows] if das else []
    pooled = interval(results.difference(pairs))
    return [str(len(rows)), *summary(rows), pooled]
