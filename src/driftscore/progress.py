"""A progress bar for long work, on stderr or in a notebook; nothing where nobody can see it."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from driftscore.reading import is_file

if TYPE_CHECKING:
    from rich.console import Console

Advance = Callable[[int], None]


@contextmanager
def progress_bar(what: str, total: int | None, *, show: bool | None = None) -> Iterator[Advance]:
    """Yield a function that advances the bar by a count.

    `total` is None where the length is not known; a total of 0 draws no bar. `show=None` draws
    the bar only on a terminal or in a notebook.
    """
    if total == 0 or not (_visible() if show is None else show):
        yield lambda count: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = _console()
    # A bar that was asked for in a log file or pipe stays there as its last line.
    transient = console.is_terminal or console.is_jupyter
    with Progress(*columns, console=console, transient=transient) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def seconds_bar(
    what: str, recordings: Sequence[object], *, show: bool | None = None
) -> Iterator[Callable[[float], None]]:
    """Yield a function that moves a bar to a number of seconds of audio.

    The total is read from the headers of recordings that are files.
    """
    if not (_visible() if show is None else show):
        yield lambda seconds: None
        return
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class AudioTime(ProgressColumn):
        """Hours, minutes and seconds of audio."""

        def render(self, task: Task) -> Text:
            total = "" if task.total is None else f" of {hours_text(task.total)}"
            return Text(f"{hours_text(task.completed)}{total}")

    console = _console()
    transient = console.is_terminal or console.is_jupyter
    columns = (TextColumn("{task.description}"), BarColumn(), AudioTime(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=transient) as bar:
        task = bar.add_task(what, total=_total_seconds(recordings))
        yield lambda seconds: bar.update(task, completed=seconds)


def hours_text(seconds: float) -> str:
    """Return a time as 1:02:03."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


_MOST_HEADERS = 1000
"""Recordings whose headers are read to know how long all of them are."""


def _total_seconds(recordings: Sequence[object]) -> float | None:
    """Return the length of all recordings; None where a header does not say."""
    if len(recordings) > _MOST_HEADERS:
        return None
    import soundfile

    total = 0.0
    for recording in recordings:
        if not (isinstance(recording, str) and is_file(recording)):
            return None
        try:
            total += float(soundfile.info(recording).duration)
        except (RuntimeError, OSError, ValueError):
            return None
    return total


def _console() -> "Console":
    """Return the console of the bar: a notebook without ipywidgets is drawn to like a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_jupyter and find_spec("ipywidgets") is None:
        return Console(stderr=True, force_jupyter=False, force_terminal=True)
    return console


def _visible() -> bool:
    """Return whether a bar would be seen: stderr is a terminal, or this is a notebook."""
    if sys.stderr.isatty():
        return True
    if "IPython" not in sys.modules:  # rich takes long to import
        return False
    from rich.console import Console

    return Console(stderr=True).is_jupyter
