"""Pictures drawn with matplotlib, and written as png or svg.

Labels are told apart by the colours of Okabe and Ito, which people with colour blindness can
distinguish, and scores are drawn as multiples of the threshold, so that one line is that of all.
"""

import importlib
import io
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from driftscore.audio.clock import Start
from driftscore.errors import MissingExtraError, UsageError
from driftscore.events.tracking import Event
from driftscore.formats import visible
from driftscore.pictures.tracks import HOURS_OF_DAY, HourCounts, PictureTrack, zone_text
from driftscore.storage.files import cache_home, replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg")
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
MAX_LINES = len(COLOURS)
MAX_ROWS = 14
_RANGE_DB = 70.0
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_TICKS = 12
_FREQUENCIES = (100, 250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 64000)
_MAX_LABEL = 40


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


def check_picture(path: str | os.PathLike[str]) -> str:
    """Return the kind of a picture by the ending of its name, before any work is done."""
    kind = Path(path).suffix.lower()
    if kind not in PICTURES:
        raise UsageError(f"A picture is {' or '.join(PICTURES)}; this is neither: {path}")
    loaded()
    return kind.removeprefix(".")


@contextmanager
def _figure(path: str | os.PathLike[str], width: float, height: float) -> "Iterator[Figure]":
    """Yield a figure in our style, and save it; a missing font is no reason to warn."""
    kind, out = check_picture(path), io.BytesIO()
    with loaded().rc_context(dict(STYLE)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = new_figure(width, height)
        yield figure
        metadata = {"Date": None} if kind == "svg" else {"Software": "driftscore"}
        figure.savefig(out, format=kind, dpi=110, metadata=metadata)
    with replacing(path) as partial:
        partial.write_bytes(out.getvalue())


def plot_recording(
    path: str | os.PathLike[str],
    track: PictureTrack,
    events: Sequence[Event],
    *,
    name: str,
    start: Start | None = None,
) -> None:
    """Draw the spectrogram, the scores and the events of one recording below each other."""
    # Rows for the labels that have events, in the order of the list; of many, the most frequent.
    counts = dict.fromkeys(track.labels, 0)
    for event in events:
        counts[event.label] = counts.get(event.label, 0) + (1 if event.rejected else 1000)
    frequent = sorted((label for label in counts if counts[label]), key=lambda c: -counts[c])
    rows = [label for label in counts if label in frequent[:MAX_ROWS]]
    # Lines for the labels with events, then for those that came nearest.
    reported = [event for event in events if not event.rejected]
    peaks = dict(zip(track.labels, track.shares.columns().max(axis=0, initial=0.0), strict=True))
    names = {event.label for event in reported}
    lines = sorted(peaks, key=lambda label: (label not in names, -peaks[label]))
    colours = dict(zip(lines, COLOURS, strict=False))
    bars = 0.35 + 0.28 * max(1, len(rows))
    with _figure(path, 13, 2.6 + 2.4 + bars + 0.9) as figure:
        top, middle, bottom = figure.subplots(
            3, 1, sharex=True, gridspec_kw={"height_ratios": [2.6, 2.4, bars]}
        )
        count = f"{len(reported)} event" + ("" if len(reported) == 1 else "s")
        top.set_title(f"{_shown(name, 90)}: {count}", parse_math=False, fontweight="bold")
        top.set_ylabel("frequency (kHz)")
        spectrum = track.spectrum
        if spectrum is not None and len(columns := spectrum.decibels()):
            end = len(columns) * spectrum.track.step_s
            top.imshow(
                columns.T, origin="lower", aspect="auto", cmap="magma", vmin=-_RANGE_DB, vmax=0,
                extent=(0.0, end, 0.0, float(columns.shape[1])), interpolation="nearest",
            )  # fmt: skip
            shown = [f for f in _FREQUENCIES if spectrum.low_hz <= f <= spectrum.high_hz]
            top.set_yticks(spectrum.bands_of(shown), [f"{hertz / 1000:g}" for hertz in shown])
        _draw_scores(middle, track, colours)
        _draw_events(bottom, rows, events, colours)
        about = "; pale: nearly reported" if len(reported) < len(events) else ""
        _time_axis(bottom, max(track.seconds, 1e-3), start, about)


def plot_hours(path: str | os.PathLike[str], hours: HourCounts) -> None:
    """Draw how often each label was found in each hour of day, and how much was recorded."""
    if hours.undated == hours.recordings:
        raise UsageError(
            "No recording says when it starts, so there is no hour of day to draw; name the files "
            "like 20261116_031500.wav, or give --start"
        )
    order = np.argsort(-hours.counts.sum(axis=1), kind="stable")[: 2 * MAX_ROWS]
    labels, counts = [hours.labels[row] for row in order], hours.counts[order]
    height = 0.36 * max(1, len(labels))
    with _figure(path, 13, 1.9 + height) as figure:
        top, bottom = figure.subplots(
            2, 1, sharex=True, gridspec_kw={"height_ratios": [height, 0.7]}
        )
        total = f"{hours.recorded_h.sum():.1f} h in {hours.recordings} recordings"
        undated = f" ({hours.undated} without a known start left out)" if hours.undated else ""
        top.set_title(f"Events by hour of day, {total}{undated}", fontweight="bold")
        most = counts.max(initial=0)
        top.imshow(counts, aspect="auto", cmap="Blues", vmin=0, vmax=max(1.0, most))
        for hour in np.flatnonzero(hours.recorded_h == 0):
            top.axvspan(hour - 0.5, hour + 0.5, facecolor="#eef1f6", hatch="////", linewidth=0)
        for row, hour in np.argwhere(counts > 0):
            colour = "white" if counts[row, hour] > most * 0.55 else "#1d2633"
            top.text(hour, row, str(counts[row, hour]), ha="center", va="center", color=colour)
        totals = zip(labels, counts.sum(axis=1), strict=True)
        named = [f"{_shown(label)} ({count})" for label, count in totals]
        top.set_yticks(range(len(labels)), named, parse_math=False)
        top.tick_params(length=0)
        bottom.bar(range(HOURS_OF_DAY), hours.recorded_h, color=OTHER, width=0.8)
        bottom.set_ylabel("hours\nrecorded")
        zone = f" ({', '.join(sorted(hours.zones))})" if hours.zones else ""
        bottom.set_xlabel(f"hour of day{zone}; hatched: nothing was recorded")
        bottom.set_xticks(range(HOURS_OF_DAY), [f"{hour:02d}" for hour in range(HOURS_OF_DAY)])
        bottom.set_xlim(-0.5, HOURS_OF_DAY - 0.5)


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
            loc="lower left", bbox_to_anchor=(0, 1), ncols=MAX_LINES, fontsize=9,
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
    unit = "hours:minutes:seconds" if step < 60 else "hours:minutes"
    since_s, label = 0.0, f"time since the start of the recording ({unit})"
    if start is not None:
        midnight = start.time.replace(hour=0, minute=0, second=0, microsecond=0)
        since_s = (start.time - midnight).total_seconds()
        zone = "" if start.zone_known else " (time zone of this machine)"
        label = f"clock time ({unit}) on {start.time:%Y-%m-%d}, {zone_text(start)}{zone}"
    axes.set_xlabel(f"{label}{about}")
    ticks = np.arange(-(-since_s // step) * step, since_s + seconds + 1e-6, step)
    texts = []
    for tick in ticks:
        whole = round(tick)
        hours = whole // 3600 if start is None else whole // 3600 % HOURS_OF_DAY
        rest = f":{whole % 60:02d}" if step < 60 else ""
        texts.append(f"{hours:02d}:{whole // 60 % 60:02d}{rest}")
    axes.set_xticks(ticks - since_s, texts)
    axes.set_xlim(0, seconds)


def _shown(text: str, length: int = _MAX_LABEL) -> str:
    text = visible(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"
