"""The figures themselves, drawn with matplotlib: the only file of the package that imports it.

Labels are told apart by the colours of Okabe and Ito, which people with colour blindness can
distinguish, and scores are drawn as multiples of the threshold, so that one line is that of all.
"""

import importlib
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from driftscore.clock import Start
from driftscore.errors import MissingExtraError
from driftscore.events import Event
from driftscore.files import cache_home
from driftscore.formats import visible
from driftscore.pictures.tracks import HOURS_OF_DAY, HourCounts, PictureTrack, zone_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: Mapping[str, object] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa5b8",
    "axes.labelcolor": "#3b4252",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "xtick.color": "#5b6577",
    "ytick.color": "#3b4252",
    "legend.frameon": False,
    "hatch.color": "#c5ccd8",
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "driftscore",
    "figure.facecolor": "white",
}
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
OTHER = "#9aa5b8"
MOST_LINES = len(COLOURS)
MOST_ROWS = 14
_RANGE_DB = 70.0
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_TICKS = 12
_FREQUENCIES = (100, 250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 64000)
_LONGEST_LABEL = 40


@contextmanager
def styled() -> Iterator[None]:
    """Draw in our style; texts in a script for which there is no font are no reason to warn."""
    with loaded().rc_context(dict(STYLE)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def loaded() -> ModuleType:
    """Return matplotlib; what it keeps goes into our cache, not among the user's settings."""
    os.environ.setdefault("MPLCONFIGDIR", str(cache_home() / "matplotlib"))
    try:
        return importlib.import_module("matplotlib")
    except ImportError as error:
        raise MissingExtraError("Drawing a picture", "plot") from error


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure; its size is in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def recording_figure(
    track: PictureTrack, events: Sequence[Event], *, name: str, start: Start | None = None
) -> "Figure":
    """Draw the spectrogram, the scores and the events of one recording below each other."""
    rows = _event_labels(track, events)
    bars = 0.35 + 0.28 * max(1, len(rows))
    figure = new_figure(13, 2.6 + 2.4 + bars + 0.9)
    top, middle, bottom = figure.subplots(
        3, 1, sharex=True, gridspec_kw={"height_ratios": [2.6, 2.4, bars]}
    )
    colours = dict(zip(_lines(track, events), COLOURS, strict=False))
    reported = [event for event in events if not event.rejected]
    count = f"{len(reported)} event" + ("" if len(reported) == 1 else "s")
    top.set_title(f"{_shown(name, 90)}: {count}", parse_math=False, fontweight="bold")
    _draw_spectrogram(top, track)
    _draw_scores(middle, track, colours)
    _draw_events(bottom, rows, events, colours)
    about = "; pale: not reported" if len(reported) < len(events) else ""
    _time_axis(bottom, max(track.seconds, 1e-3), start, about)
    return figure


def hours_figure(hours: HourCounts) -> "Figure":
    """Draw how often each label was found in each hour of day, and how much was recorded."""
    labels, counts = _busiest(hours)
    figure = new_figure(13, 1.9 + 0.36 * max(1, len(labels)))
    top, bottom = figure.subplots(
        2, 1, sharex=True, gridspec_kw={"height_ratios": [0.36 * max(1, len(labels)), 0.7]}
    )
    total = f"{hours.recorded_h.sum():.1f} h in {hours.recordings} recordings"
    undated = f" ({hours.undated} without a known start left out)" if hours.undated else ""
    top.set_title(f"Events by hour of day, {total}{undated}", fontweight="bold")
    top.imshow(counts, aspect="auto", cmap="Blues", vmin=0, vmax=max(1.0, counts.max(initial=0)))
    for hour in np.flatnonzero(hours.recorded_h == 0):
        top.axvspan(hour - 0.5, hour + 0.5, facecolor="#eef1f6", hatch="////", linewidth=0)
    dark = counts.max(initial=0) * 0.55
    for row, hour in np.argwhere(counts > 0):
        colour = "white" if counts[row, hour] > dark else "#1d2633"
        top.text(hour, row, str(counts[row, hour]), ha="center", va="center", color=colour)
    named = [f"{_shown(label)} ({n})" for label, n in zip(labels, counts.sum(axis=1), strict=True)]
    top.set_yticks(range(len(labels)), named, parse_math=False)
    top.tick_params(length=0)
    bottom.bar(range(HOURS_OF_DAY), hours.recorded_h, color=OTHER, width=0.8)
    bottom.set_ylabel("hours\nrecorded")
    zone = f" ({', '.join(sorted(hours.zones))})" if hours.zones else ""
    bottom.set_xlabel(f"hour of day{zone}; hatched: nothing was recorded")
    bottom.set_xticks(range(HOURS_OF_DAY), [f"{hour:02d}" for hour in range(HOURS_OF_DAY)])
    bottom.set_xlim(-0.5, HOURS_OF_DAY - 0.5)
    return figure


def _draw_spectrogram(axes: "Axes", track: PictureTrack) -> None:
    axes.set_ylabel("frequency (kHz)")
    if track.spectrum is None or not len(columns := track.spectrum.decibels()):
        return
    edges = track.spectrum.edges_hz
    end = len(columns) * track.spectrum.track.step_s
    axes.imshow(
        columns.T, origin="lower", aspect="auto", cmap="magma", vmin=-_RANGE_DB, vmax=0,
        extent=(0.0, end, 0.0, float(columns.shape[1])), interpolation="nearest",
    )  # fmt: skip
    shown = [hertz for hertz in _FREQUENCIES if edges[0] <= hertz <= edges[-1]]
    places = np.interp(shown, edges, np.arange(len(edges)))
    axes.set_yticks(places, [f"{hertz / 1000:g}" for hertz in shown])


def _draw_scores(axes: "Axes", track: PictureTrack, colours: Mapping[str, str]) -> None:
    columns = track.shares.columns()
    times = (np.arange(len(columns)) + 0.5) * track.shares.step_s
    top = 1.5
    for label, colour in colours.items():
        line = columns[:, track.labels.index(label)]
        top = max(top, 1.08 * float(line.max(initial=0.0)))
        axes.plot(times, np.maximum(line, 0.0), color=colour, linewidth=1.1, label=_shown(label))
    axes.axhline(1.0, color="#3b4252", linewidth=1.0, linestyle=(0, (5, 3)))
    axes.text(
        1.003, 1.0, "threshold", transform=axes.get_yaxis_transform(), va="center", fontsize=9,
        color="#3b4252",
    )  # fmt: skip
    axes.set_ylim(0.0, top)
    axes.set_ylabel("score / threshold")
    axes.grid(axis="y", color="#e9ecf2")
    if colours:
        legend = axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=MOST_LINES, fontsize=9,
            borderaxespad=0.1, handlelength=1.4,
        )  # fmt: skip
        for text in legend.get_texts():
            text.set_parse_math(False)


def _draw_events(
    axes: "Axes", rows: Sequence[str], events: Sequence[Event], colours: Mapping[str, str]
) -> None:
    for number, label in enumerate(rows):
        for rejected in (True, False):
            spans = [
                (event.start_s, max(event.end_s - event.start_s, 1e-3))
                for event in events
                if event.label == label and bool(event.rejected) is rejected
            ]
            colour = colours.get(label, OTHER)
            # An edge keeps an event of a second visible among hours.
            axes.broken_barh(
                spans, (number - 0.36, 0.72), facecolors=colour, edgecolors=colour, linewidth=1.2,
                alpha=0.25 if rejected else 1.0,
            )  # fmt: skip
    axes.set_yticks(range(len(rows)), [_shown(label) for label in rows], parse_math=False)
    axes.set_ylim(max(1, len(rows)) - 0.4, -0.6)
    axes.grid(axis="x", color="#e9ecf2")
    axes.set_axisbelow(True)
    if not rows:
        axes.text(0.5, 0.5, "no events", transform=axes.transAxes, ha="center", va="center")


def _time_axis(axes: "Axes", seconds: float, start: Start | None, about: str) -> None:
    """Mark round times: of the clock if the start is known, else since the start."""
    step = next((step for step in _STEPS if seconds / step <= _TICKS), 7 * _STEPS[-1])
    since_s = 0.0
    axes.set_xlabel(f"time since the start of the recording{about}")
    if start is not None:
        midnight = start.time.replace(hour=0, minute=0, second=0, microsecond=0)
        since_s = (start.time - midnight).total_seconds()
        zone = "" if start.zone_known else " (time zone of this machine)"
        axes.set_xlabel(f"clock time on {start.time:%Y-%m-%d}, {zone_text(start)}{zone}{about}")
    first = -(-since_s // step) * step
    ticks = np.arange(first, since_s + seconds + 1e-6, step)
    clock = start is not None
    axes.set_xticks(ticks - since_s, [_time_text(tick, step, clock=clock) for tick in ticks])
    axes.set_xlim(0, seconds)


def _time_text(seconds: float, step: int, *, clock: bool) -> str:
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    hours = hours % HOURS_OF_DAY if clock else hours
    return f"{hours:02d}:{minutes:02d}" + (f":{rest:02d}" if step < 60 else "")


def _lines(track: PictureTrack, events: Sequence[Event]) -> list[str]:
    """Return the labels whose scores are drawn: those with events, then those that came nearest."""
    peaks = track.shares.columns().max(axis=0, initial=0.0)
    found = {event.label for event in events if not event.rejected}
    order = sorted(zip(track.labels, peaks, strict=True), key=lambda p: (p[0] not in found, -p[1]))
    return [label for label, _ in order[:MOST_LINES]]


def _event_labels(track: PictureTrack, events: Sequence[Event]) -> list[str]:
    """Return the labels that have events, in the order of the list; of many, the most frequent."""
    counts = dict.fromkeys(track.labels, 0)
    for event in events:
        counts[event.label] = counts.get(event.label, 0) + (1 if event.rejected else 1000)
    kept = sorted((label for label in counts if counts[label]), key=lambda c: -counts[c])
    return [label for label in counts if label in kept[:MOST_ROWS]]


def _busiest(hours: HourCounts) -> tuple[list[str], NDArray[np.int64]]:
    order = np.argsort(-hours.counts.sum(axis=1), kind="stable")[: 2 * MOST_ROWS]
    return [hours.labels[row] for row in order], hours.counts[order]


def _shown(text: str, most: int = _LONGEST_LABEL) -> str:
    text = visible(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"
