"""Write a figure as png, svg or html; a page of html holds the figure and a table of the events."""

import html
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from driftscore.clock import Start
from driftscore.errors import UsageError
from driftscore.events import Event
from driftscore.files import replacing, writing_to
from driftscore.formats import visible
from driftscore.pictures.drawing import hours_figure, loaded, recording_figure, styled
from driftscore.pictures.tracks import HOURS_OF_DAY, HourCounts, PictureTrack

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".html")
_MOST_ROWS = 2000
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;"
    "color:#1d2633}svg{width:100%;height:auto}table{border-collapse:collapse}"
    "td,th{padding:.15rem .9rem .15rem 0;text-align:left;border-bottom:1px solid #e9ecf2}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a page may load: nothing from anywhere else."""


def check_picture(path: str | os.PathLike[str]) -> str:
    """Return the kind of a picture by the ending of its name, before any work is done."""
    kind = Path(path).suffix.lower()
    if kind not in PICTURES:
        raise UsageError(f"A picture is {', '.join(PICTURES)}; this is none of them: {path}")
    loaded()
    return kind


def plot_recording(
    path: str | os.PathLike[str],
    track: PictureTrack,
    events: Sequence[Event],
    *,
    name: str,
    start: Start | None = None,
) -> None:
    """Draw the spectrogram, scores and events of one recording into a file."""
    kind = check_picture(path)
    with styled():
        figure = recording_figure(track, events, name=name, start=start)
        _save(path, kind, figure, visible(name), _event_table(events, start))


def plot_hours(path: str | os.PathLike[str], hours: HourCounts) -> None:
    """Draw a heatmap of label by hour of day into a file."""
    kind = check_picture(path)
    if hours.undated == hours.recordings:
        raise UsageError(
            "No recording says when it starts, so there is no hour of day to draw; name the files "
            "like 20261116_031500.wav, or give --start"
        )
    with styled():
        _save(path, kind, hours_figure(hours), "Events by hour of day", _hour_table(hours))


def _save(
    path: str | os.PathLike[str], kind: str, figure: "Figure", title: str, table: str
) -> None:
    content = _bytes(figure, "png" if kind == ".png" else "svg")
    if kind == ".html":
        drawing = content.decode("utf-8")
        content = _page(title, drawing[drawing.index("<svg") :], table).encode("utf-8")
    with replacing(path) as partial, writing_to(path):
        partial.write_bytes(content)


def _bytes(figure: "Figure", kind: str) -> bytes:
    out = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": "driftscore"}
    figure.savefig(out, format=kind, dpi=110, metadata=metadata)
    return out.getvalue()


def _page(title: str, drawing: str, table: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body>\n{drawing}\n{table}\n</body></html>\n"
    )


def _event_table(events: Sequence[Event], start: Start | None) -> str:
    reported = [event for event in events if not event.rejected]
    head = ["clock time", "start", "end", "label", "score", "threshold", "SNR"]
    rows = [_event_cells(event, start) for event in reported[:_MOST_ROWS]]
    left = len(reported) - len(rows)
    note = f"<p>{left:,} more events are not in this table.</p>" if left else ""
    if start is None:
        head, rows = head[1:], [row[1:] for row in rows]
    return _table(head, rows, texts=2 if start is None else 3) + note


def _event_cells(event: Event, start: Start | None) -> list[str]:
    clock = "" if start is None else start.text_at(event.start_s)[:23].replace("T", " ")
    snr = "" if event.snr_db is None else f"{event.snr_db:.1f} dB"
    threshold = "" if event.threshold is None else f"{event.threshold:.2f}"
    times = (_time(event.start_s), _time(event.end_s))
    return [clock, *times, visible(event.label), f"{event.score:.2f}", threshold, snr]


def _hour_table(hours: HourCounts) -> str:
    head = ["label", *(f"{hour:02d}" for hour in range(HOURS_OF_DAY))]
    rows = [
        [visible(label), *(str(count) for count in counts)]
        for label, counts in zip(hours.labels, hours.counts, strict=True)
    ]
    rows.append(["hours recorded", *(f"{value:.1f}" for value in hours.recorded_h)])
    return _table(head, rows, texts=1)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int) -> str:
    """Return a table; the first columns are texts, the others numbers."""

    def line(cells: Sequence[str], tag: str) -> str:
        shown = [
            f"<{tag}{' class=n' if column >= texts else ''}>{html.escape(text)}</{tag}>"
            for column, text in enumerate(cells)
        ]
        return f"<tr>{''.join(shown)}</tr>"

    body = "\n".join(line(row, "td") for row in rows)
    return f"<table>\n<thead>{line(head, 'th')}</thead>\n<tbody>\n{body}\n</tbody></table>"


def _time(seconds: float) -> str:
    tenths = round(seconds * 10)
    return f"{tenths // 36_000}:{tenths // 600 % 60:02d}:{tenths % 600 / 10:04.1f}"
