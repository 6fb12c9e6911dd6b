"""The figures of the report as SVG, drawn by matplotlib in the style of `pictures`."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from driftscore.formats import visible
from driftscore.lab.conditions import COSINE
from driftscore.lab.metrics import Interval
from driftscore.lab.report.detections import DetectionResult
from driftscore.lab.report.headings import heading, line_styles, main_results, ordered
from driftscore.lab.report.page import Figure
from driftscore.lab.report.results import PAPER_BETA, PooledResult, Results, Scene
from driftscore.pictures import drawing

MAX_PER_HOUR = 30.0  # false alarms in the figure of events
T = TypeVar("T")
PlotAxes = Any  # matplotlib has no usable types for them
Drawer = Callable[[PlotAxes, T], None]
Panel = tuple[str, str, str | None, str | None]
"""Dataset, backbone, noise and mixing of one small chart."""

GREY, BLUE, RED = "#9aa5b8", "#0b6e99", "#c8553d"
STYLE: Mapping[str, object] = {
    **drawing.STYLE,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "center",
    "axes.grid": True,
    "grid.color": "#e9ecf2",
    "axes.axisbelow": True,
    "ytick.color": "#5b6577",
    "svg.fonttype": "none",
    "text.parse_math": False,  # a label with dollars is not a formula
}
SHOWN_CLASSES = 12
_LEGEND_COLUMNS = 7
_WITH_BAND = ("das", "cosine")


def figures(results: Results) -> list[Figure]:
    """Draw the four figures; one without data is left out."""
    drawers = (snr_figure, class_figure, drift_figure, beta_figure)
    return [figure for draw in drawers for figure in draw(results)]


def snr_figure(results: Results) -> list[Figure]:
    """Draw every rule against SNR, with bands for cosine and DAS."""
    main = main_results(results)
    panels = list(dict.fromkeys(_panel(r) for r in main if r.noisy))
    styles = line_styles(r.scoring.name for r in main)

    def draw(axes: PlotAxes, panel: Panel) -> None:
        here = [r for r in main if _panel(r) == panel]
        here += [r for r in main if r.scene == panel[:2] and not r.noisy]
        ticks = sorted(
            {r.condition.snr_db for r in here}, key=lambda s: math.inf if s is None else s
        )
        for name in ordered(r.scoring.name for r in here):
            by_snr = {r.condition.snr_db: r for r in here if r.scoring.name == name}
            line = [by_snr[tick] for tick in ticks if tick in by_snr]
            colour, dashes = styles[name]
            banded = name in _WITH_BAND
            at, width = [ticks.index(r.condition.snr_db) for r in line], 2.2 if banded else 1.3
            marks = {"color": colour, "lw": width, "marker": "o", "ms": 3.5}
            axes.plot(at, [r.value for r in line], dashes, label=heading(name), **marks)
            bands = [results.band(r.condition, r.scoring) for r in line] if banded else []
            if bands and None not in bands:
                lows, highs = zip(*(band for band in bands if band), strict=True)
                axes.fill_between(at, lows, highs, color=colour, alpha=0.11, lw=0)
        axes.set_xticks(range(len(ticks)), ["clean" if t is None else f"{t:g}" for t in ticks])
        title = f"{panel[0]}, {panel[1]}\n{panel[2]}, {panel[3]}"
        axes.set(title=title, xlabel="SNR (dB)", ylabel=f"{here[0].metric} (%)")

    caption = (
        "Accuracy or mAP against SNR. Bands are 95 % bootstrap intervals over event clips for "
        "cosine and DAS (accuracy only); paired differences have narrower intervals than the bands."
    )
    return drawn("snr", panels, draw, caption)


def class_figure(results: Results) -> list[Figure]:
    """Draw the classes that gain and lose most by DAS in noise."""
    gains = results.class_gains

    def draw(axes: PlotAxes, scene: Scene) -> None:
        sorted_gains = sorted(gains[scene].items(), key=lambda pair: pair[1])
        if len(sorted_gains) > 2 * SHOWN_CLASSES:
            sorted_gains = sorted_gains[:SHOWN_CLASSES] + sorted_gains[-SHOWN_CLASSES:]
        names = [shown(label.replace("_", " ")) for label, _ in sorted_gains]
        values = [gain for _, gain in sorted_gains]
        colours = [BLUE if value >= 0 else RED for value in values]
        axes.barh(range(len(values)), values, color=colours, height=0.72)
        axes.set_yticks(range(len(values)), names, fontsize=8)
        axes.grid(axis="y", visible=False)
        axes.set(title=", ".join(scene), xlabel="points of accuracy over cosine")

    caption = (
        "Gain of DAS over cosine by class, all noisy conditions pooled: the largest and the "
        "smallest. A class has few clips, so single bars are uncertain."
    )
    return drawn("classes", list(gains), draw, caption, height=5.2)


def drift_figure(results: Results) -> list[Figure]:
    """Draw how text and audio drifts agree, by SNR."""
    lines: dict[Scene, list[tuple[float, float, float]]] = {}
    das = results.das()
    snrs = sorted({s for r in results.all if (s := r.condition.snr_db) is not None})
    for scene in results.scenes:
        for snr in snrs:
            alignment = results.alignment(das, dataset=scene[0], backbone=scene[1], snr_db=snr)
            if alignment:
                values = (snr, alignment.mean, 100 * alignment.positive)
                lines.setdefault(scene, []).append(values)
    styles = list(line_styles(", ".join(scene) for scene in lines).values())

    def draw(axes: PlotAxes, column: int) -> None:
        for (scene, entries), (colour, _) in zip(lines.items(), styles, strict=True):
            at, values = [e[0] for e in entries], [e[column] for e in entries]
            axes.plot(at, values, "-o", ms=4, color=colour, label=", ".join(scene))
        axes.axhline(0 if column == 1 else 50, color=GREY, lw=1)
        titles = ("", "Mean cosine of text and audio drift", "Classes with a positive cosine (%)")
        axes.set(title=titles[column], xlabel="SNR (dB)")

    caption = (
        "Does the text drift predict the audio drift? Cosine of each class's text drift with its "
        "audio drift (noisy minus clean mean embedding). The paper reports +0.31 and 99 % for "
        "larger_clap on its panel."
    )
    return drawn("drift", [1, 2] if lines else [], draw, caption)


def beta_figure(results: Results) -> list[Figure]:
    """Draw the gain over cosine against beta."""
    curves: dict[Scene, dict[float, Interval]] = {}  # without mAP
    for scene in results.scenes if len(results.betas) > 1 else []:
        for beta in results.betas:
            rows = results.in_noise(scene, results.das(beta=beta))
            if gain := results.compare((r.condition, r.scoring, COSINE) for r in rows):
                curves.setdefault(scene, {})[beta] = gain

    def draw(axes: PlotAxes, scene: Scene) -> None:
        betas, gains = list(curves[scene]), curves[scene].values()
        axes.axhline(0, color=GREY, lw=1)
        axes.axvline(PAPER_BETA, color=GREY, lw=1, ls=":")
        lows, highs = [g.low for g in gains], [g.high for g in gains]
        axes.fill_between(betas, lows, highs, color=BLUE, alpha=0.15, lw=0)
        axes.plot(betas, [g.difference for g in gains], "-o", color=BLUE, lw=2, label="DAS")
        where = f"beta (dotted: the paper's {PAPER_BETA:g})"
        axes.set(title=", ".join(scene), xlabel=where, ylabel="points over cosine")

    caption = "Gain in accuracy against the drift weight, noisy conditions pooled, 95 % intervals."
    return drawn("beta", list(curves), draw, caption)


def detection_figure(results: Sequence[DetectionResult]) -> list[Figure]:
    """Draw recall against false alarms per hour, one chart per dataset and model."""
    styles = line_styles(result.name for result in results)

    def draw(axes: PlotAxes, scene: Scene) -> None:
        for result in results:
            if result.scene == scene:
                _, _, recall, rate = result.curve
                name, (colour, dashes) = heading(result.name), styles[result.name]
                within, details = rate <= MAX_PER_HOUR, result.row.details
                at, height = [0.0, *rate[within]], [0.0, *(100 * recall[within])]
                axes.step(at, height, dashes, where="post", color=colour, label=name)
                here = (details["false_alarms_per_hour"], 100 * details["recall"])
                axes.plot(*here, "o", ms=6, color=colour)
        axes.set(xlim=(0, MAX_PER_HOUR), xlabel="false alarms per hour, all words")
        axes.set(ylim=(0, 100), ylabel="recall (%)", title=", ".join(scene))

    caption = (
        "Recall against false alarms per hour: what is found with a budget of many false alarms, "
        "ranked by score. Dots: the default settings, which also place times by their threshold."
    )
    scenes = list(dict.fromkeys(result.scene for result in results))
    return drawn("events", scenes, draw, caption)


def _panel(result: PooledResult) -> Panel:
    return (*result.scene, result.condition.noise, result.condition.mixing)


def shown(text: str) -> str:
    """Return a text that can be drawn: one line, with escapes for what no font and no XML has."""
    return visible(text).encode("utf-8", "backslashreplace").decode("utf-8")


def drawn(
    name: str, panels: Sequence[T], draw: Drawer[T], caption: str, *, height: float = 3.5
) -> list[Figure]:
    """Draw one small chart per panel, two per row, with one legend; nothing without a panel."""
    if not panels:
        return []
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with drawing.loaded().rc_context(dict(STYLE)):
        figure = drawing.new_figure(5.2 * columns, height * rows + 0.4)
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
            names, wide = list(entries), min(len(entries), _LEGEND_COLUMNS)
            figure.legend(list(entries.values()), names, loc="outside upper left", ncols=wide)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return [Figure(name, out.getvalue(), caption)]
