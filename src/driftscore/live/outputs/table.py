"""A live table in the terminal: levels, what each source sounds like now, and the last events."""

import threading
from collections import deque
from collections.abc import Callable, Sequence, Set

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from driftscore.live.records import EventRecord, LevelRecord, SourceStatus, SourceView
from driftscore.watchlist import WatchList

_ROWS = 12
_MESSAGES = 4
_PER_SECOND = 4


class LiveTable:
    """Draws sources, events and messages until it is closed."""

    def __init__(self, console: Console, *, rejected: bool = True) -> None:
        self._rejected = rejected
        self._records: deque[EventRecord] = deque(maxlen=_ROWS)
        self._messages: deque[str] = deque(maxlen=_MESSAGES)
        self._levels: dict[str, LevelRecord] = {}
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

    def words(self, source: str, watch: WatchList) -> None:
        """Show that the labels of a source are these."""
        self.message(f"{source}: looking for {', '.join(watch.names)}")

    def event(self, record: EventRecord) -> None:
        """Show an event, and why it was rejected if it was."""
        if self._rejected or not record.event.rejected:
            with self._lock:
                self._records.appendleft(record)

    def active(self, source: str, labels: Set[str]) -> None:
        """Show nothing here: the views have it."""

    def level(self, record: LevelRecord) -> None:
        """Show the last level of a source."""
        with self._lock:
            self._levels[record.source] = record

    def status(self, status: SourceStatus) -> None:
        """Show nothing here: the views have it."""

    def close(self) -> None:
        """Stop drawing; the last picture stays."""
        self._live.stop()

    def picture(self) -> Group:
        """Return what is drawn."""
        views = self._views()
        with self._lock:
            records, messages = list(self._records), list(self._messages)
            levels = dict(self._levels)
        shown = [self._sources(views, levels), self._events(records)]
        return Group(*shown, *map(escape, messages))

    def _sources(self, views: Sequence[SourceView], levels: dict[str, LevelRecord]) -> Table:
        table = Table(
            "source", "level", "LAeq / L10 / L90", "now (share of the threshold)", "audio"
        )
        for view in views:
            report = levels.get(view.name)
            table.add_row(
                escape(view.name),
                "-" if view.level_db is None else f"{view.level_db:.0f} dB",
                "-" if report is None else
                f"{report.laeq:.0f} / {report.l10:.0f} / {report.l90:.0f} {report.unit}",
                ", ".join(map(_current(view), view.current[:3])) or "-",
                _audio(view),
            )  # fmt: skip
        return table

    def _events(self, records: Sequence[EventRecord]) -> Table:
        table = Table("time", "source", "label", "score", "seconds", "SNR", "note")
        for record in records:
            event = record.event
            style = "dim" if event.rejected else "bold"
            table.add_row(
                f"{record.start:%H:%M:%S}", escape(record.source), escape(event.label),
                f"{event.score:.1f}", f"{record.duration_s:.1f}",
                "-" if event.snr_db is None else f"{event.snr_db:.0f} dB",
                escape(_note(record)), style=style,
            )  # fmt: skip
        return table


def _current(view: SourceView) -> Callable[[tuple[str, float]], str]:
    def shown(pair: tuple[str, float]) -> str:
        text = f"{escape(pair[0])} {max(0.0, pair[1]):.0%}"
        return f"[bold]{text}[/bold]" if pair[0] in view.active else text

    return shown


def _audio(view: SourceView) -> str:
    if not view.online:
        return escape(view.why or "offline")
    lost = f", {view.dropped_s:.0f} s dropped" if view.dropped_s else ""
    return f"{view.seconds:.0f} s{lost}"


def _note(record: EventRecord) -> str:
    if record.event.rejected:
        return f"rejected: {record.event.rejected}"
    return record.clip or (f"no clip: {record.withheld}" if record.withheld else "")
