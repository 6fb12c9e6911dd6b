"""Draw the pictures of the page as SVG; the same figures give the same bytes.

A figure of any part whose details hold `model` and `steps_ms` (milliseconds per step) becomes a
bar of the first picture. The second is drawn from the part `growth`.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.records import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {
    "decode": "#3b4252",
    "resample": "#a4abb8",
    "mel": "#d9822b",
    "encoder": "#0b6e99",
    "scoring": "#5a9e6f",
}
_OTHER = "#9b6bb3"


def clip_bars(results: Results) -> list[tuple[str, Mapping[str, float]]]:
    """Return the models with the milliseconds of each step, fastest first."""
    bars = [
        (str(figure["details"].get("model", figure["work"])), figure["details"]["steps_ms"])
        for part in results.values()
        for figure in part["figures"]
        if "steps_ms" in figure["details"]
    ]
    return sorted(bars, key=lambda bar: sum(bar[1].values()))


def growth_curve(results: Results) -> Mapping[str, Any]:
    """Return the details with the cost at each number of clips; empty if there are none."""
    figures = results["growth"]["figures"] if "growth" in results else []
    return next((f["details"] for f in figures if "ms_per_clip" in f["details"]), {})


def draw_clip(results: Results) -> "Figure":
    """Draw where the time of one clip goes: one panel per model, each with its own axis."""
    from matplotlib import pyplot as plt

    bars = clip_bars(results)
    figure, panels = plt.subplots(
        len(bars), 1, figsize=(8, 0.5 + 1.3 * len(bars)), squeeze=False, layout="constrained"
    )
    for axes, (model, steps) in zip(panels[:, 0], bars, strict=True):
        _stack(axes, model, steps)
    panels[-1, 0].set_xlabel("milliseconds for one clip of 10 s, one thread")
    return figure


def draw_growth(results: Results) -> "Figure":
    """Draw cost per clip and memory against the number of clips."""
    from matplotlib import pyplot as plt

    details = growth_curve(results)
    figure, (cost, memory) = plt.subplots(1, 2, figsize=(8, 3.1), layout="constrained")
    clips = details["clips"]
    cost.fill_between(
        clips, details["ms_per_clip_low"], details["ms_per_clip_high"], color="#0b6e99", alpha=0.2
    )
    cost.plot(clips, details["ms_per_clip"], "o-", color="#0b6e99")
    cost.set(title="cost of one clip of 1 s", ylabel="milliseconds per clip")
    memory.plot(clips, details["peak_mb"], "o-", color="#d9822b")
    memory.set(title="peak memory", ylabel="MB")
    for axes in (cost, memory):
        axes.set(xscale="log", xlabel="clips")
        axes.minorticks_off()
        axes.set_xticks(clips, [f"{size:,}" for size in clips])
        axes.set_ylim(0, 1.35 * axes.get_ylim()[1])
    return figure


@dataclass(frozen=True)
class Picture:
    """A picture: its file, its title, the data that it shows, and how to draw it."""

    name: str
    title: str
    data: Callable[[Results], object]
    """Returns nothing (an empty list or dict) if the results have no figures for it."""
    draw: "Callable[[Results], Figure]"


_ALL = (
    Picture("bench-clip.svg", "Where the time of one clip goes", clip_bars, draw_clip),
    Picture("bench-growth.svg", "Cost per clip and memory by clips", growth_curve, draw_growth),
)


def pictures_of(results: Results) -> list[Picture]:
    """Return the pictures that the results have figures for."""
    return [picture for picture in _ALL if picture.data(results)]


def write_pictures(results: Results, folder: Path) -> list[str]:
    """Write the pictures, and return their file names."""
    if not pictures_of(results):
        return []
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    from driftscore.lab.report.figures import STYLE

    mpl.use("svg")
    style: dict[Any, Any] = dict(STYLE)
    for picture in pictures_of(results):
        with mpl.rc_context(style):
            figure, out = picture.draw(results), io.StringIO()
            figure.savefig(out, format="svg", metadata={"Date": None})
            plt.close(figure)
        lines = [line.rstrip() for line in out.getvalue().splitlines()]
        (folder / picture.name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [picture.name for picture in pictures_of(results)]


def _stack(axes: "Axes", model: str, steps: Mapping[str, float]) -> None:
    """Draw one bar of steps, with the share of each step that is wide enough, and a legend."""
    total, left = sum(steps.values()), 0.0
    for step, value in steps.items():
        colour = _COLOURS.get(step, _OTHER)
        axes.barh([0], [value], left=left, color=colour, label=f"{step} {value:.3g}", height=0.6)
        if value > 0.08 * total:
            share = f"{value / total:.0%}"
            axes.text(left + value / 2, 0, share, ha="center", va="center", color="white")
        left += value
    axes.set(yticks=[], xlim=(0, total * 1.01), ylim=(-0.35, 0.35))
    axes.set_title(f"{model}: {total:.3g} ms", loc="left", pad=22)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 0.98), ncols=len(steps), fontsize=8.5,
                borderaxespad=0, handlelength=1, columnspacing=1.2)  # fmt: skip
