"""A live table in the terminal: levels, what each source sounds like now, and the last events."""

import threading
from collections import deque
from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from driftscore.decisions.records import LevelReport, LiveReport, OutputStatus, StoredEvent, Words
from driftscore.live.outputs import SourceView

SHOWN_EVENTS = 12
SHOWN_MESSAGES = 4
_PER_SECOND = 4


class LiveTable:
    """Draws sources, events and messages until it is closed."""

    def __init__(self, console: Console) -> None:
        self._events: deque[StoredEvent] = deque(maxlen=SHOWN_EVENTS)
        self._messages: deque[str] = deque(maxlen=SHOWN_MESSAGES)
        self._levels: dict[str, LevelReport] = {}
        self._problems: dict[str, str] = {}
        self._lock = threading.Lock()
        self._views: Callable[[], Sequence[SourceView]] = tuple
        self._live = Live(console=console, refresh_per_second=_PER_SECOND, screen=False,
                          get_renderable=self.picture)  # fmt: skip

    def begin(self, views: Callable[[], Sequence[SourceView]]) -> None:
        """Begin to draw; `views` returns what the sources do now."""
        self._views = views
        self._live.start(refresh=True)

    def message(self, text: str) -> None:
        """Show a message below the table."""
        with self._lock:
            self._messages.append(text)

    def send(self, report: LiveReport) -> None:
        """Show an event, a level or new labels; the views have everything else."""
        if isinstance(report, Words):
            self.message(f"{report.source}: looking for {report.text}")
        with self._lock:
            if isinstance(report, StoredEvent):
                self._events.appendleft(report)
            elif isinstance(report, LevelReport):
                self._levels[report.source] = report
            elif isinstance(report, OutputStatus):
                self._problems[report.output] = report.problem

    def close(self) -> None:
        """Stop drawing; the last picture stays."""
        self._live.stop()

    def picture(self) -> Group:
        """Return what is drawn."""
        sources = Table(
            "source", "level", "LAeq / L10 / L90", "now (share of the threshold)", "audio"
        )
        table = Table("time", "source", "label", "score", "seconds", "SNR", "note")
        views = self._views()
        with self._lock:
            events, messages = list(self._events), list(self._messages)
            levels = dict(self._levels)
            lines = [f"{name} {why}" for name, why in self._problems.items() if why]
        for view in views:
            current = []
            for label, share in view.current[:3]:
                text = f"{escape(label)} {max(0.0, share):.0%}"
                current.append(f"[bold]{text}[/bold]" if label in view.active else text)
            audio = escape(view.why or "offline")
            if view.online:
                lost = f", {view.dropped_s:.0f} s dropped" if view.dropped_s else ""
                audio = f"{view.seconds:.0f} s{lost}"
            report = levels.get(view.name)
            sources.add_row(
                escape(view.name),
                "-" if view.level_db is None else f"{view.level_db:.0f} dB",
                "-" if report is None else
                f"{report.laeq:.0f} / {report.l10:.0f} / {report.l90:.0f} {report.unit}",
                ", ".join(current) or "-",
                audio,
            )  # fmt: skip
        for event in events:
            note = event.clip or (f"no clip: {event.withheld}" if event.withheld else "")
            table.add_row(
                f"{event.start:%H:%M:%S}", escape(event.source), escape(event.label),
                f"{event.score:.1f}", f"{event.duration_s:.1f}",
                "-" if event.snr_db is None else f"{event.snr_db:.0f} dB",
                escape(f"rejected: {event.rejected}" if event.rejected else note),
                style="dim" if event.rejected else "bold",
            )  # fmt: skip
        problems = (f"[bold red]{escape(line)}[/bold red]" for line in lines)
        return Group(sources, table, *problems, *map(escape, messages))
