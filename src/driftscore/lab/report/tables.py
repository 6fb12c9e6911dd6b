"""The paper's tables in its own layout, filled with our rows.

A row of ours is one condition pooled over seeds; *Pos* counts the rows with a gain, *Worst*
and *Best* are their extremes, and gains are in points of accuracy or mAP over cosine. Rows
marked as the paper's come from paper.toml: they are its figures on its data, not ours. The
paper prints six tables; the seventh here holds what its text says of ablations and drifts.
"""

import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from driftscore.lab.grid import Scoring
from driftscore.lab.metrics import Interval
from driftscore.lab.results import Place, Result, Results
from driftscore.lab.scoring import COSINE

ACEVEDO = ("zs_text", "zs_text:matched", "zs_audio", "tgap", "tgap_audio")
PANEL = ("cosine", *ACEVEDO, "das")
SHORT = {
    "cosine": "Base",
    "zs_text": "ZS-T-g",
    "zs_text:matched": "ZS-T-m",
    "zs_audio": "ZS-A-m",
    "zs_audio_oracle": "ZS-A oracle",
    "tgap": "TGAP",
    "tgap_audio": "TGAP-A",
    "tgap:noisy": "TGAP, noisy pool",
    "tgap_audio:noisy": "TGAP-A, noisy pool",
    "das": "DAS",
    "prompt_ensemble": "Prompt ens.",
    "noisy_ensemble": "Noisy ens.",
    "debias": "Debias",
}
_BETA = 0.25


@dataclass(frozen=True)
class Line:
    """One line of a table; `kind` is ours, paper or heading; `bold` marks the best cells."""

    cells: tuple[str, ...]
    kind: str = "ours"
    bold: tuple[int, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table to be drawn: what it is, its columns and its lines."""

    name: str
    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    note: str = ""


@cache
def paper() -> dict[str, Any]:
    """Return the paper's figures."""
    return tomllib.loads((files("driftscore.lab") / "paper.toml").read_text(encoding="utf-8"))


def das_of(results: Results, **changes: Any) -> Scoring | None:
    """Return the scoring that is the paper's DAS (or differs from it by `changes`), if measured."""
    wanted = {"beta": _BETA, "direction": "mean", "reference": "prompt", **changes}
    found = sorted(
        {r.cell.scoring for r in results.rows if r.cell.scoring.rule == "das"},
        key=lambda s: (s.pack != "das52", s.pack or ""),
    )
    fits = (s for s in found if all(getattr(s, k) == v for k, v in wanted.items()))
    return next(fits, None)


def is_plain(result: Result, das: Scoring | None) -> bool:
    """Return whether a result belongs in a main table: any rule, but DAS only as in the paper."""
    if result.scoring.rule == "das":
        return result.scoring == das
    return result.scoring.pack in (None, das.pack if das else None)


def all_tables(results: Results) -> list[Table]:
    """Return the seven tables, and the paper's own where it has other groups."""
    das = das_of(results)
    main = [result for result in results.all if is_plain(result, das)]
    return [
        panel(results, main),
        backbones(main),
        methods(main),
        paper_methods(),
        robustness(results, main, das),
        per_dataset(results, main, das),
        beta(results),
        ablations(results),
    ]


def panel(results: Results, main: Sequence[Result]) -> Table:
    """Table 1: one line an SNR, one column a method, and DAS against the best of Acevedo's."""
    lines: list[Line] = []
    for place_lines in _panel_blocks(results, main):
        lines += place_lines
    figures = paper()["panel"]
    for dataset in ("urbansound8k", "fsd50k"):
        lines.append(Line((f"the paper: {dataset}, TAU, Scaper, larger_clap",), "heading"))
        for snr, values in figures[dataset].items():
            cells = [f"{value:.2f}" for value in values[:-1]]
            lines.append(Line((snr, *cells, f"{values[-1]:+.2f}", ""), "paper"))
    columns = ("SNR", *(SHORT[name] for name in PANEL), "Δ", "DAS over Base, 95 %")
    note = (
        "Accuracy (single-label) or class-wise mAP (multi-label) in %. Δ is DAS minus the best of "
        "the five Acevedo columns, as in the paper. Bold: the best of the line."
    )
    return Table("panel", "Table 1 · Per-SNR comparison", columns, tuple(lines), note)


def _panel_blocks(results: Results, main: Sequence[Result]) -> Iterator[list[Line]]:
    by_place: dict[Place, dict[str, Result]] = {}
    for result in main:
        by_place.setdefault(result.place, {})[result.scoring.name] = result
    heading = None
    for place, found in by_place.items():
        lines = []
        title = describe(next(iter(found.values())))
        if title != heading:
            lines.append(Line((title,), "heading"))
            heading = title
        values = [found[name].value if name in found else math.nan for name in PANEL]
        best = max((v for v in values if not math.isnan(v)), default=math.nan)
        rivals = [v for v in values[1:-1] if not math.isnan(v)]
        gap = signed(values[-1] - max(rivals)) if rivals else ""
        das = found.get("das")
        sure = interval(das.gain, das.low, das.high) if das else ""
        cells = [_with_paper(place, name, v) for name, v in zip(PANEL, values, strict=True)]
        bold = tuple(i + 1 for i, v in enumerate(values) if v == best)
        lines.append(Line((snr_words(place[4]), *cells, gap, sure), "ours", bold))
        yield lines


def _with_paper(place: Place, name: str, value: float) -> str:
    """Return a value, with the paper's beside it where it has the same cell."""
    figures = paper()["panel"]
    dataset, _, noise, mixing, snr_db, backbone = place
    same = (noise, mixing, backbone) == tuple(figures[k] for k in ("noise", "mixing", "backbone"))
    row = figures.get(dataset, {}).get(snr_words(snr_db)) if same else None
    theirs = f" (paper {row[PANEL.index(name)]:.2f})" if row else ""
    return plain(value) + theirs


def backbones(main: Sequence[Result]) -> Table:
    """Table S1: DAS over cosine by model and dataset."""
    gains = [r for r in main if r.scoring.rule == "das" and r.snr_db is not None]
    ours = sorted({r.dataset for r in gains})
    known = paper()["backbones"]["datasets"]
    datasets = [*ours, *(d for d in known if d not in ours)]
    lines = []
    for model in dict.fromkeys(r.backbone for r in gains):
        rows = [r for r in gains if r.backbone == model]
        means = [_mean(r.gain for r in rows if r.dataset == dataset) for dataset in datasets]
        summary = _summary([r.gain for r in rows])
        lines.append(Line((model, *map(signed, means), *summary[:2], summary[2])))
    for model, values in paper()["backbones"]["rows"].items():
        by_name = dict(zip(known, values[:5], strict=True))
        cells = [_figure(by_name.get(dataset, "")) for dataset in datasets]
        name = model.removeprefix("laion/")
        lines.append(Line((name, *cells, *map(_figure, values[5:])), "paper"))
    columns = ("Backbone", *datasets, "Mean", "Pos", "Worst")
    title = "Table S1 · DAS over cosine by backbone"
    return Table("backbones", title, columns, tuple(lines), "Noisy conditions only.")


def methods(main: Sequence[Result]) -> Table:
    """Table S2: each method over cosine, accuracy and mAP apart."""
    noisy = [r for r in main if r.snr_db is not None and r.scoring != COSINE]
    kinds = list(
        dict.fromkeys((r.metric, "" if r.metric == "accuracy" else r.dataset) for r in noisy)
    )
    lines = []
    for name in [n for n in SHORT if n != "cosine"]:
        rows = [r for r in noisy if r.scoring.name == name]
        if rows:
            cells: list[str] = []
            for metric, dataset in kinds:
                fits = [r.gain for r in rows if r.metric == metric and dataset in ("", r.dataset)]
                cells += _summary(fits)[:3]
            lines.append(Line((SHORT[name], *cells)))
    groups = [metric if not dataset else f"{metric} {dataset}" for metric, dataset in kinds]
    columns = ("Method", *(f"{g}: {c}" for g in groups for c in ("mean Δ", "Pos", "Worst")))
    note = (
        "A constant per class changes no ranking of clips, so ZS-T-g and ZS-A-m leave mAP exactly "
        "as it is. ZS-T-m subtracts by each clip's own place here, which does move rankings."
    )
    title = "Table S2 · Each method over cosine"
    return Table("methods", title, columns, tuple(lines), note)


def paper_methods() -> Table:
    """Table S2 as the paper has it: its groups are other datasets than ours."""
    groups = paper()["methods"]["groups"]
    columns = ("Method", *(f"{g}: {c}" for g in groups for c in ("mean Δ", "Pos", "Worst")))
    rows = paper()["methods"]["rows"]
    lines = tuple(Line((SHORT[n], *map(_figure, values)), "paper") for n, values in rows.items())
    return Table("methods-paper", "Table S2 · The paper's own", columns, lines)


def robustness(results: Results, main: Sequence[Result], das: Scoring | None) -> Table:
    """Table S3: DAS over cosine by noise corpus, mixing and SNR."""
    gains = [r for r in main if r.scoring.rule == "das" and r.snr_db is not None]
    axes: list[tuple[str, str, Callable[[Result], str]]] = [
        ("By noise corpus", "noise", lambda r: str(r.noise)),
        ("By mixing method", "mixing", lambda r: str(r.mixing)),
        ("By SNR (dB)", "snr", lambda r: snr_words(r.snr_db)),
    ]
    lines = []
    for heading, name, of in axes:
        lines.append(Line((heading,), "heading"))
        for value in sorted({of(r) for r in gains}, key=_as_number):
            rows = [r for r in gains if of(r) == value]
            lines.append(Line((value, *_full(results, rows, das))))
        for value, figures in paper()["robustness"][name].items():
            lines.append(Line((value, *map(_figure, figures), ""), "paper"))
    columns = ("", "Cells", "Mean Δ", "Pos", "Worst", "Best", "pooled, 95 %")
    return Table(
        "robustness", "Table S3 · DAS by noise, mixing and SNR", columns, tuple(lines), _POOL
    )


_POOL = (
    "The interval is that of the pooled accuracy gain over all single-label clips of the line (of "
    "the mean gain in mAP where there are none), clips resampled with all their mixes."
)


def per_dataset(results: Results, main: Sequence[Result], das: Scoring | None) -> Table:
    """Table S4: DAS over cosine by dataset."""
    gains = [r for r in main if r.scoring.rule == "das" and r.snr_db is not None]
    lines = []
    for dataset in dict.fromkeys(r.dataset for r in gains):
        rows = [r for r in gains if r.dataset == dataset]
        count, mean, positive, worst, _, sure = _full(results, rows, das)
        kind = f"{rows[0].clips} clips"
        lines.append(Line((dataset, kind, rows[0].metric, count, mean, positive, worst, sure)))
    for dataset, values in paper()["datasets"]["rows"].items():
        lines.append(Line((dataset, *map(_figure, values), ""), "paper"))
    columns = ("Dataset", "Type", "Metric", "Cells", "Mean Δ", "Pos", "Worst", "pooled, 95 %")
    return Table("datasets", "Table S4 · DAS by dataset", columns, tuple(lines), _POOL)


def beta(results: Results) -> Table:
    """Table S5: the drift weight."""
    lines = []
    for value in betas(results):
        das = das_of(results, beta=value)
        rows = results.where(lambda r, s=das: r.scoring == s and r.snr_db is not None)  # type: ignore[misc]
        _, *summary, sure = _full(results, rows, das)
        lines.append(Line((f"{value:g}", *summary, sure)))
    for name, values in paper()["beta"]["rows"].items():
        lines.append(Line((name, *map(_figure, values), ""), "paper"))
    columns = ("β", "Mean Δ", "Pos", "Worst", "Best", "pooled, 95 %")
    note = "Noisy conditions. " + _POOL
    return Table("beta", "Table S5 · The drift weight β", columns, tuple(lines), note)


def betas(results: Results) -> list[float]:
    """Return the betas measured with the paper's other settings."""
    found = {r.cell.scoring.beta for r in results.rows if r.cell.scoring.rule == "das"}
    return sorted(b for b in found if b is not None and das_of(results, beta=b))


def ablations(results: Results) -> Table:
    """Table S6: direction, phrases and reference; then how text and audio drifts agree."""
    lines = [Line(("DAS with another bank (Δ over cosine, noisy conditions)",), "heading")]
    scorings = {r.cell.scoring for r in results.rows if r.cell.scoring.beta == _BETA}
    noisy = [r for r in results.all if r.scoring in scorings and r.snr_db is not None]
    places = {s: {r.place for r in noisy if r.scoring == s} for s in scorings}
    shared = set.intersection(*places.values()) if places else set()
    for das in sorted(scorings, key=lambda s: (s.pack or "", s.direction or "", s.reference or "")):
        rows = [r for r in noisy if r.scoring == das and r.place in shared]
        _, mean, positive, *_, sure = _full(results, rows, das)
        lines.append(Line((f"{das.pack}, {das.direction}, {das.reference}", mean, positive, sure)))
    for name, values in paper()["ablations"]["rows"].items():
        lines.append(Line((name, *map(_figure, values), ""), "paper"))
    lines.append(
        Line(("Text against audio drift (mean cosine, share of classes positive)",), "heading")
    )
    kinds = {(r.backbone, str(r.noise), r.snr_db) for r in results.all if r.snr_db is not None}
    for backbone, noise, snr in sorted(kinds):
        found = results.alignment(
            das_of(results),
            lambda c, k=(backbone, noise, snr): (c.backbone, c.noise, c.snr_db) == k,  # type: ignore[misc]
        )
        if found:
            share = f"{found.positive:.0%} of {found.classes}"
            name = f"{backbone}, {noise}, {snr:g} dB"
            lines.append(Line((name, f"{found.mean:+.3f}", share, "")))
    for name, (cosine, share) in paper()["ablations"]["alignment"].items():
        lines.append(Line((name, f"{cosine:+.3f}", f"{share:g}%", ""), "paper"))
    lines.append(Line(("Mean against SVD direction (mean cosine over classes)",), "heading"))
    for name, (cosines, common) in results.bank_reports().items():
        cells = (f"{sum(cosines) / len(cosines):.3f}", f"common to all classes: {common:.0%}")
        lines.append(Line((name, *cells, "")))
    for name, value in paper()["ablations"]["agreement"].items():
        lines.append(Line((name, f"{value:.3f}", "", ""), "paper"))
    columns = ("", "Mean", "Pos", "pooled, 95 %")
    title = "Table S6 · Ablations and drifts"
    return Table("ablations", title, columns, tuple(lines), paper()["ablations"]["title"] + ".")


def describe(result: Result) -> str:
    """Return a result's condition in words, without its SNR."""
    where = f"{result.dataset} ({result.metric}), {result.backbone}"
    return f"{where} · {result.noise}, {result.mixing}" if result.noise else f"{where} · clean"


def snr_words(snr_db: float | None) -> str:
    """Return an SNR as a table shows it."""
    return "clean" if snr_db is None else f"{snr_db:g}"


def plain(value: float) -> str:
    """Return a percentage, empty where there is none."""
    return "" if math.isnan(value) else f"{value:.2f}"


def signed(value: float) -> str:
    """Return a gain with its sign, empty where there is none."""
    return "" if math.isnan(value) else _rounded(value, 2)


def interval(value: float, low: float, high: float, *, digits: int = 2) -> str:
    """Return a gain with its interval."""
    if math.isnan(value):
        return ""
    shown, least, most = (_rounded(number, digits) for number in (value, low, high))
    return f"{shown} [{least}, {most}]"


def _rounded(value: float, digits: int) -> str:
    """Return a signed number; what rounds to nothing has no minus."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def points(found: Interval | None) -> str:
    """Return an interval of shares as points."""
    if found is None:
        return ""
    return interval(100 * found.difference, 100 * found.low, 100 * found.high)


def _full(results: Results, rows: Sequence[Result], das: Scoring | None) -> list[str]:
    """Return count, mean, positive, worst, best and the pooled interval of DAS's gains."""
    mean, positive, worst, best = _summary([r.gain for r in rows])
    pairs = [(r.place, das, COSINE) for r in rows] if das else []
    sure = points(results.compare(pairs) or results.compare_precision(pairs))
    return [str(len(rows)), mean, positive, worst, best, sure]


def _summary(gains: Sequence[float]) -> list[str]:
    known = [gain for gain in gains if not math.isnan(gain)]
    if not known:
        return ["", "", "", ""]
    positive = f"{sum(gain > 0 for gain in known)}/{len(known)}"
    return [signed(_mean(known)), positive, signed(min(known)), signed(max(known))]


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:+.2f}" if value else "0.00"
    return str(value)


def _as_number(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        return math.inf, text
