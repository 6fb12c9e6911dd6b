"""The figures of the report as SVG. The only file that uses matplotlib."""

import importlib
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from driftscore.errors import MissingExtraError
from driftscore.files import cache_home
from driftscore.formats import visible
from driftscore.lab.report import findings
from driftscore.lab.report.detections import DetectionResult
from driftscore.lab.report.findings import Scene
from driftscore.lab.report.headings import PAPER_BETA, das_of, heading, line_styles, ordered
from driftscore.lab.report.parts import Figure
from driftscore.lab.report.results import PooledResult, Results
from driftscore.lab.report.tables import betas, main_results

_MOST_PER_HOUR = 30.0  # false alarms in the figure of events
T = TypeVar("T")
PlotAxes = Any  # matplotlib has no usable types for them
Panel = tuple[str, str, str | None, str | None]
"""Dataset, backbone, noise and mixing of one small chart."""

GREY, BLUE, RED = "#9aa5b8", "#0b6e99", "#c8553d"
STYLE: Mapping[str, object] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
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
    "text.parse_math": False,  # a label with dollars is not a formula
}
_SHOWN_CLASSES = 12
_LEGEND_COLUMNS = 7
_WITH_BAND = ("das", "cosine")


def figures(results: Results) -> list[Figure]:
    """Draw the four figures; one without data is left out."""
    drawn = (
        snr_figure(results),
        class_figure(results),
        drift_figure(results),
        beta_figure(results),
    )
    return [figure for figure in drawn if figure is not None]


def snr_figure(results: Results) -> Figure | None:
    """Draw every rule against SNR, with bands for cosine and DAS."""
    found = main_results(results)
    panels = list(dict.fromkeys(_panel(r) for r in found if r.snr_db is not None))
    if not panels:
        return None
    styles = line_styles(r.scoring.name for r in found)

    def draw(axes: PlotAxes, panel: Panel) -> None:
        here = [r for r in found if _panel(r) == panel]
        here += [r for r in found if _panel(r)[:2] == panel[:2] and r.snr_db is None]
        ticks = sorted({r.snr_db for r in here}, key=lambda s: math.inf if s is None else s)
        for name in ordered(r.scoring.name for r in here):
            by_snr = {r.snr_db: r for r in here if r.scoring.name == name}
            line = [by_snr[tick] for tick in ticks if tick in by_snr]
            _draw_rule(axes, results, line, ticks, styles[name])
        axes.set_xticks(range(len(ticks)), ["clean" if t is None else f"{t:g}" for t in ticks])
        axes.set_title(f"{panel[0]}, {panel[1]}\n{panel[2]}, {panel[3]}")
        axes.set_xlabel("SNR (dB)")
        axes.set_ylabel(f"{here[0].metric} (%)")

    caption = (
        "Accuracy or mAP against SNR. Bands are 95 % bootstrap intervals over event clips for "
        "cosine and DAS (accuracy only); paired differences have narrower intervals than the bands."
    )
    return Figure("snr", _svg(panels, draw), caption)


def class_figure(results: Results) -> Figure | None:
    """Draw the classes that gain and lose most by DAS in noise."""
    gains = findings.class_gains(results)
    if not gains:
        return None

    def draw(axes: PlotAxes, scene: Scene) -> None:
        sorted_gains = sorted(gains[scene].items(), key=lambda pair: pair[1])
        if len(sorted_gains) > 2 * _SHOWN_CLASSES:
            sorted_gains = sorted_gains[:_SHOWN_CLASSES] + sorted_gains[-_SHOWN_CLASSES:]
        names = [_shown(label.replace("_", " ")) for label, _ in sorted_gains]
        values = [gain for _, gain in sorted_gains]
        colours = [BLUE if value >= 0 else RED for value in values]
        axes.barh(range(len(values)), values, color=colours, height=0.72)
        axes.set_yticks(range(len(values)), names, fontsize=8)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("points of accuracy over cosine")
        axes.set_title(f"{scene[0]}, {scene[1]}")

    caption = (
        "Gain of DAS over cosine by class, all noisy conditions pooled: the largest and the "
        "smallest. A class has few clips, so single bars are uncertain."
    )
    return Figure("classes", _svg(list(gains), draw, height=5.2), caption)


def drift_figure(results: Results) -> Figure | None:
    """Draw how text and audio drifts agree, by SNR."""
    lines = _alignments(results)
    if not lines:
        return None
    styles = list(line_styles(f"{d}, {b}" for d, b in lines).values())

    def draw(axes: PlotAxes, column: int) -> None:
        for (scene, entries), (colour, _) in zip(lines.items(), styles, strict=True):
            at, values = [e[0] for e in entries], [e[column] for e in entries]
            axes.plot(at, values, "-o", ms=4, color=colour, label=f"{scene[0]}, {scene[1]}")
        axes.axhline(0 if column == 1 else 50, color=GREY, lw=1)
        axes.set_xlabel("SNR (dB)")
        titles = {
            1: "Mean cosine of text and audio drift",
            2: "Classes with a positive cosine (%)",
        }
        axes.set_title(titles[column])

    caption = (
        "Does the text drift predict the audio drift? Cosine of each class's text drift with its "
        "audio drift (noisy minus clean mean embedding). The paper reports +0.31 and 99 % for "
        "larger_clap on its panel."
    )
    return Figure("drift", _svg([1, 2], draw), caption)


def beta_figure(results: Results) -> Figure | None:
    """Draw the gain over cosine against beta."""
    if len(betas(results)) < 2:
        return None
    curves = {s: list(findings.beta_gains(results, s)) for s in findings.scenes(results)}
    known = {scene: gains for scene, gains in curves.items() if gains}
    if not known:
        return None

    def draw(axes: PlotAxes, scene: Scene) -> None:
        gains = known[scene]
        at = [gain.beta for gain in gains]
        axes.axhline(0, color=GREY, lw=1)
        axes.axvline(PAPER_BETA, color=GREY, lw=1, ls=":")
        lows, highs = [g.low for g in gains], [g.high for g in gains]
        axes.fill_between(at, lows, highs, color=BLUE, alpha=0.15, lw=0)
        axes.plot(at, [g.difference for g in gains], "-o", color=BLUE, lw=2, label="DAS")
        axes.set_xlabel(f"beta (dotted: the paper's {PAPER_BETA:g})")
        axes.set_ylabel("points over cosine")
        axes.set_title(f"{scene[0]}, {scene[1]}")

    caption = "Gain in accuracy against the drift weight, noisy conditions pooled, 95 % intervals."
    return Figure("beta", _svg(list(known), draw), caption)


def detection_figure(results: Sequence[DetectionResult]) -> Figure | None:
    """Draw recall against false alarms per hour, one chart per dataset and model."""
    if not results:
        return None
    styles = line_styles(result.name for result in results)

    def draw(axes: PlotAxes, scene: Scene) -> None:
        for result in results:
            if result.scene == scene:
                _, _, recall, rate = result.curve
                colour, dashes = styles[result.name]
                shown = rate <= _MOST_PER_HOUR
                at, height = [0.0, *rate[shown]], [0.0, *(100 * recall[shown])]
                axes.step(
                    at, height, dashes, where="post", color=colour, label=heading(result.name)
                )
                details = result.row.details
                here = (details["false_alarms_per_hour"], 100 * details["recall"])
                axes.plot(*here, "o", ms=6, color=colour)
        axes.set_xlim(0, _MOST_PER_HOUR)
        axes.set_ylim(0, 100)
        axes.set_xlabel("false alarms per hour, all words")
        axes.set_ylabel("recall (%)")
        axes.set_title(f"{scene[0]}, {scene[1]}")

    caption = (
        "Recall against false alarms per hour: what is found with a budget of many false alarms, "
        "ranked by score. Dots: the default settings, which also place times by their threshold."
    )
    scenes = list(dict.fromkeys(result.scene for result in results))
    return Figure("events", _svg(scenes, draw), caption)


def _panel(result: PooledResult) -> Panel:
    return (result.dataset, result.backbone, result.noise, result.mixing)


def _draw_rule(
    axes: PlotAxes,
    results: Results,
    line: Sequence[PooledResult],
    ticks: Sequence[float | None],
    style: tuple[str, str],
) -> None:
    """Draw one rule of a chart, with its band if it has one."""
    name, (colour, dashes) = line[0].scoring.name, style
    at = [ticks.index(r.snr_db) for r in line]
    main = name in _WITH_BAND
    values, width = [r.value for r in line], 2.2 if main else 1.3
    axes.plot(at, values, dashes, color=colour, lw=width, marker="o", ms=3.5, label=heading(name))
    bands = [results.band(r.place, r.scoring) for r in line] if main else []
    known = [band for band in bands if band is not None]
    if known and len(known) == len(line):
        lows, highs = zip(*known, strict=True)
        axes.fill_between(at, lows, highs, color=colour, alpha=0.11, lw=0)


def _alignments(results: Results) -> dict[Scene, list[tuple[float, float, float]]]:
    """Return for each dataset and model: SNR, mean cosine, percentage of positive classes."""
    lines: dict[Scene, list[tuple[float, float, float]]] = {}
    das = das_of(results)
    snrs = sorted({r.snr_db for r in results.all if r.snr_db is not None})
    for scene in findings.scenes(results):
        for snr in snrs:
            found = results.alignment(
                das,
                lambda c, key=(*scene, snr): (c.dataset, c.backbone, c.snr_db) == key,  # type: ignore[misc]
            )
            if found:
                lines.setdefault(scene, []).append((snr, found.mean, 100 * found.positive))
    return lines


def _shown(text: str) -> str:
    """Return a text that can be drawn: one line, with escapes for what no font and no XML has."""
    return visible(text).encode("utf-8", "backslashreplace").decode("utf-8")


def _svg(panels: Sequence[T], draw: Callable[[PlotAxes, T], None], *, height: float = 3.5) -> str:
    """Draw one small chart per panel, two per row, with one legend; return the SVG."""
    # matplotlib would write into the user's folder of settings otherwise.
    os.environ.setdefault("MPLCONFIGDIR", str(cache_home() / "matplotlib"))
    try:
        figure_module = importlib.import_module("matplotlib.figure")
        matplotlib = importlib.import_module("matplotlib")
    except ImportError as error:
        raise MissingExtraError("The report's figures", "lab") from error
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(dict(STYLE)):
        figure = figure_module.Figure(
            figsize=(5.2 * columns, height * rows + 0.4), layout="constrained"
        )
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for ax, panel in zip(axes, panels, strict=False):
            draw(ax, panel)
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        entries: dict[str, object] = {}
        for ax in axes[: len(panels)]:
            handles, labels = ax.get_legend_handles_labels()
            entries |= dict(zip(labels, handles, strict=True))
        if len(entries) > 1:
            wide = min(len(entries), _LEGEND_COLUMNS)
            figure.legend(entries.values(), entries.keys(), loc="outside upper left", ncols=wide)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()
