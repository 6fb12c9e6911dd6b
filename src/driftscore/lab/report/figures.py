"""The page that people read: what was found, tables in the paper's layout, figures.

The only file that draws. Where anything beats DAS, the page says so first. It is made from
the store alone, so it can be written anywhere that the store was copied to.
"""

import importlib
import io
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driftscore import __version__
from driftscore.errors import MissingExtraError, UsageError
from driftscore.lab import findings
from driftscore.lab.page import Figure, Folded, Heading, Part, Tiles, Words, write_page
from driftscore.lab.results import Result, Results
from driftscore.lab.scoring import COSINE
from driftscore.lab.store import Store
from driftscore.lab.tables import SHORT, all_tables, betas, das_of, is_plain, points, snr_words

_COLOURS = {
    "cosine": "#3b4252",
    "das": "#0b6e99",
    "zs_audio": "#d9822b",
    "zs_text": "#b0a13a",
    "tgap": "#5a9e6f",
    "noisy_ensemble": "#a4abb8",
    "zs_audio_oracle": "#9b6bb3",
}
_SHOWN_CLASSES = 12
_SAID = 6  # rivals named in sentences; all are in the table
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa5b8",
    "axes.labelcolor": "#3b4252",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.grid": True,
    "grid.color": "#e9ecf2",
    "axes.axisbelow": True,
    "xtick.color": "#5b6577",
    "ytick.color": "#5b6577",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "driftscore",
    "figure.facecolor": "white",
}


def write_report(store: Store, out: str | Path, *, only: Collection[str] | None = None) -> None:
    """Write the report as HTML, or as Markdown if `out` ends so; `only` are keys of cells."""
    target = Path(out)
    if target.suffix.lower() not in (".html", ".htm", ".md", ".markdown"):
        raise UsageError(f"A report is written as .html or .md, not as {target.name}")
    results = Results(store, only=only)
    if not results.rows:
        raise UsageError(
            f"The store {store.home} has no rows to report; run a grid first: driftscore lab run"
        )
    write_page("What noise does to zero-shot audio labels", _lead(results), parts(results), target)


def parts(results: Results) -> list[Part]:
    """Return the page, section by section."""
    found: list[Part] = [Heading("What beats DAS"), *_rival_words(results)]
    found.append(Tiles(tuple(_tiles(results))))
    origin = Words((_origin(results),))
    found += [Heading("What DAS gains"), origin, findings.gain_table(results), *figures(results)]
    if (classes := findings.class_table(results)) is not None:
        found.append(Folded(classes))
    found += [Heading("Advice"), Words(tuple(findings.advice(results)))]
    found += [Heading("The paper's tables with our rows"), Words((_TABLES,)), origin]
    found += [*all_tables(results), Heading("Every result"), origin]
    found.append(Folded(findings.rows_table(results)))
    if (failures := findings.failure_table(results)) is not None:
        found.append(Folded(failures))
    found += [Heading("How it was made"), Words(tuple(_method(results)))]
    return found


_TABLES = (
    "Same layout as the paper (Vo, Zaheer and Park, 2026), filled with what was measured here. "
    "Lines marked as the paper's are its printed figures, on its own data and models: they stand "
    "beside ours for orientation and are not a reproduction."
)


def _lead(results: Results) -> str:
    names = {
        "datasets": {r.dataset for r in results.all},
        "models": {r.backbone for r in results.all},
        "noise corpora": {r.noise for r in results.all if r.noise},
    }
    said = "; ".join(f"{what}: {', '.join(sorted(values))}" for what, values in names.items())
    day = datetime.now(UTC).date().isoformat()
    made = f"driftscore {__version__}, {day}"
    return f"Drift-Augmented Scoring and its rivals, measured. {said}. {made}."


def _origin(results: Results) -> str:
    """Return how much was heard, and by which command."""
    heard = [r for r in results.all if r.scoring == COSINE]
    sizes = []
    for dataset in dict.fromkeys(r.dataset for r in heard):
        rows = [r for r in heard if r.dataset == dataset]
        mixes, clips = sum(r.mixes for r in rows), max(r.clips for r in rows)
        sizes.append(f"{mixes:,} recordings and mixes of {clips:,} clips of {dataset}")
    commands = [f"`{command}`" for _, command in results.store.all_json("grids")]
    by = f" by {' and '.join(commands)}" if commands else ""
    return f"From {'; '.join(sizes)}, over all models{by}."


def _tiles(results: Results) -> Iterator[tuple[str, str, str]]:
    das = das_of(results)
    for scene in findings.scenes(results) if das else []:
        rows = [r for r in findings.noisy(results, scene) if r.scoring == das]
        pairs = [(r.place, r.scoring, COSINE) for r in rows]
        found = results.compare(pairs) or results.compare_precision(pairs)
        if found:
            metric = rows[0].metric
            what = f"points of {metric} by DAS over cosine in noise: {scene[0]}, {scene[1]}"
            sure = f"95 % interval {points(found).partition(' ')[2]}"
            yield f"{100 * found.difference:+.1f}", what, sure
    rows_n, heard = len(results.rows), sum(r.mixes for r in results.all if r.scoring == COSINE)
    failed = len(results.store.failures())
    yield f"{rows_n:,}", "rows", f"{len(results.errors)} with an error"
    yield f"{heard:,}", "mixes heard", f"{failed} clips could not be used"


def _rival_words(results: Results) -> list[Part]:
    """Say what is above DAS, the sure ones first; and if nothing is, that."""
    if das_of(results) is None:
        return [Words(("DAS with the paper's settings has no rows here.",), strong=True)]
    found = findings.rivals(results)
    sure = [rival.sentence for rival in found if rival.clear]
    first = (
        "Clearly better than DAS in noise, by an interval that leaves zero out:"
        if sure
        else "No rule measured here is clearly better than DAS by an interval that leaves zero out."
    )
    more = [f"And {len(sure) - _SAID} more, in the table."] if len(sure) > _SAID else []
    said: list[Part] = [Words((first, *sure[:_SAID], *more), strong=True)]
    return [*said, findings.rival_table(found)] if found else said


def _method(results: Results) -> Iterator[str]:
    grids = results.store.all_json("grids")
    for (name, command), content in grids.items():
        yield f"Grid {name} ({content['title']}): `{command}`, then `driftscore lab report`."
    sizes = {(r.dataset, r.clips) for r in results.all}
    clips = ", ".join(f"{dataset} {clips} clips" for dataset, clips in sorted(sizes))
    seeds = sorted({s for r in results.rows if (s := r.cell.condition.seed) is not None})
    yield f"Data: {clips}. Seeds {', '.join(map(str, seeds)) or 'none'}: each draws other noise."
    yield (
        "Additive mixing sets the power ratio over the event's active part; Scaper mixing sets a "
        "difference of loudness in a soundscape of 10 s. The two SNRs are different numbers."
    )
    yield (
        "ZS-A-m is given 200 clips of 10 s drawn from the noise corpus; TGAP the 10 nearest clean "
        "clips of the dataset, the test clip's own clean version among them; ZS-T-m the true place "
        "of each clip. Noise that holds a clip's class is never mixed into it."
    )
    yield (
        "Our 52 noise phrases and 4 templates are a reconstruction: the paper prints five phrases "
        "and one template. Values pool all seeds; mAP ranks all mixes of a condition together."
    )
    versions = {row.versions for row in results.rows}
    yield f"Versions: {'; '.join(sorted(versions))}."


def figures(results: Results) -> list[Figure]:
    """Draw the four figures; one without data is left out."""
    drawn = (_snr_figure(results), _class_figure(results), _drift_figure(results))
    return [figure for figure in (*drawn, _beta_figure(results)) if figure is not None]


def _snr_figure(results: Results) -> Figure | None:
    """Draw each rule against SNR, bands for cosine and DAS."""
    das = das_of(results)
    found = [r for r in results.all if is_plain(r, das) and r.scoring.name in _COLOURS]
    panels = list(dict.fromkeys(
        (r.dataset, r.backbone, r.noise, r.mixing) for r in found if r.snr_db is not None
    ))  # fmt: skip
    if not panels:
        return None

    def draw(axes: Any, panel: tuple[str, str, str | None, str | None]) -> None:
        here = [r for r in found if (r.dataset, r.backbone, r.noise, r.mixing) == panel]
        here += [r for r in found if (r.dataset, r.backbone) == panel[:2] and r.snr_db is None]
        ticks = sorted({r.snr_db for r in here}, key=lambda s: math.inf if s is None else s)
        for name, colour in _COLOURS.items():
            line = sorted((r for r in here if r.scoring.name == name),
                          key=lambda r: ticks.index(r.snr_db))  # fmt: skip
            line = list({r.snr_db: r for r in line}.values())
            _line(axes, results, line, ticks, name, colour)
        axes.set_xticks(range(len(ticks)), [snr_words(tick) for tick in ticks])
        axes.set_title(f"{panel[0]}, {panel[1]}\n{panel[2]}, {panel[3]}")
        axes.set_xlabel("SNR (dB)")
        axes.set_ylabel(f"{here[0].metric} (%)")

    svg = _grid_of(panels, draw)
    caption = (
        "Accuracy or mAP against SNR. Bands are 95 % bootstrap intervals over event clips for "
        "cosine and DAS (accuracy only); paired differences are surer than bands suggest."
    )
    return Figure("snr", svg, caption)


def _line(
    axes: Any, results: Results, line: Sequence[Result], ticks: list[Any], name: str, colour: str
) -> None:
    if not line:
        return
    at = [ticks.index(r.snr_db) for r in line]
    main = name in ("das", "cosine")
    dashes = "--" if name == "zs_audio_oracle" else "-"
    values = [r.value for r in line]
    width = 2.2 if main else 1.3
    axes.plot(at, values, dashes, color=colour, lw=width, marker="o", ms=3.5, label=SHORT[name])
    bands = [results.band(r.place, r.scoring) for r in line] if main else [None]
    if all(band is not None for band in bands):
        lows, highs = zip(*(band for band in bands if band is not None), strict=True)
        axes.fill_between(at, lows, highs, color=colour, alpha=0.11, lw=0)


def _class_figure(results: Results) -> Figure | None:
    """Draw the classes that gain and lose most by DAS in noise."""
    gains = findings.class_gains(results)
    if not gains:
        return None

    def draw(axes: Any, scene: findings.Scene) -> None:
        ordered = sorted(gains[scene].items(), key=lambda pair: pair[1])
        if len(ordered) > 2 * _SHOWN_CLASSES:
            ordered = ordered[:_SHOWN_CLASSES] + ordered[-_SHOWN_CLASSES:]
        names = [label.replace("_", " ") for label, _ in ordered]
        values = [gain for _, gain in ordered]
        colours = [_COLOURS["das"] if value >= 0 else "#c8553d" for value in values]
        axes.barh(range(len(values)), values, color=colours, height=0.72)
        axes.set_yticks(range(len(values)), names, fontsize=8)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("points of accuracy over cosine")
        axes.set_title(f"{scene[0]}, {scene[1]}")

    svg = _grid_of(list(gains), draw, height=5.2)
    caption = (
        "Gain of DAS over cosine by class, all noisy conditions pooled: the most and the least. "
        "A class has few clips, so single bars are uncertain."
    )
    return Figure("classes", svg, caption)


def _drift_figure(results: Results) -> Figure | None:
    """Draw how text and audio drifts agree, by SNR."""
    lines: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    noisy = [r for r in results.all if r.snr_db is not None]
    for dataset, backbone in findings.scenes(results):
        for snr in sorted({r.snr_db for r in noisy if r.snr_db is not None}):
            found = results.alignment(
                das_of(results),
                lambda c, d=dataset, b=backbone, s=snr: (  # type: ignore[misc]
                    (c.dataset, c.backbone, c.snr_db) == (d, b, s)
                ),
            )
            if found:
                entry = (snr, found.mean, 100 * found.positive)
                lines.setdefault((dataset, backbone), []).append(entry)
    if not lines:
        return None

    def draw(axes: Any, column: int) -> None:
        for number, (scene, entries) in enumerate(lines.items()):
            colour = list(_COLOURS.values())[1:][number % 6]
            at, values = [e[0] for e in entries], [e[column] for e in entries]
            axes.plot(at, values, "-o", ms=4, color=colour, label=f"{scene[0]}, {scene[1]}")
        axes.axhline(0 if column == 1 else 50, color="#9aa5b8", lw=1)
        axes.set_xlabel("SNR (dB)")
        axes.set_title(
            ("Mean cosine of text and audio drift", "Classes with a positive cosine (%)")[
                column - 1
            ]
        )

    svg = _grid_of([1, 2], draw)
    caption = (
        "Does the text drift point where the audio goes? Cosine of each class's text drift with "
        "its audio drift (noisy minus clean mean embedding). The paper reports +0.31 and 99 % for "
        "larger_clap on its panel."
    )
    return Figure("drift", svg, caption)


def _beta_figure(results: Results) -> Figure | None:
    """Draw the gain over cosine against beta."""
    values = betas(results)
    if len(values) < 2:
        return None
    curves = {s: list(findings.beta_gains(results, s)) for s in findings.scenes(results)}
    known = {scene: gains for scene, gains in curves.items() if gains}
    if not known:
        return None

    def draw(axes: Any, scene: findings.Scene) -> None:
        gains = known[scene]
        at = [gain.beta for gain in gains]
        axes.axhline(0, color="#9aa5b8", lw=1)
        axes.axvline(0.25, color="#9aa5b8", lw=1, ls=":")
        lows, highs = [g.low for g in gains], [g.high for g in gains]
        axes.fill_between(at, lows, highs, color=_COLOURS["das"], alpha=0.15, lw=0)
        axes.plot(at, [g.difference for g in gains], "-o", color=_COLOURS["das"], lw=2, label="DAS")
        axes.set_xlabel("beta (dotted: the paper's 0.25)")
        axes.set_ylabel("points over cosine")
        axes.set_title(f"{scene[0]}, {scene[1]}")

    caption = "Gain in accuracy against the drift weight, noisy conditions pooled, 95 % intervals."
    return Figure("beta", _grid_of(list(known), draw), caption)


def _grid_of(
    panels: Sequence[Any], draw: Callable[[Any, Any], None], *, height: float = 3.5
) -> str:
    """Draw one small chart a panel, two abreast, with one legend; return the SVG."""
    try:
        figure_module = importlib.import_module("matplotlib.figure")
        matplotlib = importlib.import_module("matplotlib")
    except ImportError as error:
        raise MissingExtraError("The report's figures", "lab") from error
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(STYLE):
        figure = figure_module.Figure(
            figsize=(5.2 * columns, height * rows + 0.4), layout="constrained"
        )
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for ax, panel in zip(axes, panels, strict=False):
            draw(ax, panel)
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        entries: dict[str, Any] = {}
        for ax in axes[: len(panels)]:
            handles, labels = ax.get_legend_handles_labels()
            entries |= dict(zip(labels, handles, strict=True))
        if len(entries) > 1:
            figure.legend(
                entries.values(), entries.keys(), loc="outside upper left", ncols=len(entries)
            )
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()
