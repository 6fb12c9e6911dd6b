"""A progress bar for long work, on stderr or in a notebook; nothing where nobody can see it."""

import os.path
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

Advance = Callable[[int], None]
_MAX_HEADERS = 1000
"""Recordings whose headers are read to know how long all of them are."""


@contextmanager
def progress_bar(what: str, total: int | None, *, show: bool | None = None) -> Iterator[Advance]:
    """Yield a function that advances the bar by a count.

    `total` is None where the length is not known; a total of 0 draws no bar. `show=None` draws
    the bar only on a terminal or in a notebook.
    """
    if total == 0 or not (_visible() if show is None else show):
        yield lambda count: None
        return
    from rich.progress import MofNCompleteColumn

    with _bar(MofNCompleteColumn()) as bar:
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
    import soundfile
    from rich.progress import TextColumn

    total: float | None = None
    names = [name for name in recordings if isinstance(name, str) and os.path.isfile(name)]  # noqa: PTH113 (impossible names are not files)
    if len(names) == len(recordings) <= _MAX_HEADERS:
        try:
            total = sum(float(soundfile.info(name).duration) for name in names)
        except (RuntimeError, OSError, ValueError):
            total = None  # a header does not say
    of_total = "" if total is None else f" of {hours_text(total)}"
    with _bar(TextColumn("{task.fields[done]}" + of_total)) as bar:
        task = bar.add_task(what, total=total, done=hours_text(0))
        yield lambda seconds: bar.update(task, completed=seconds, done=hours_text(seconds))


def hours_text(seconds: float) -> str:
    """Return a time as 1:02:03."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _bar(done: "ProgressColumn") -> "Progress":
    """Return a bar with a column that says how much is done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if console.is_jupyter and find_spec("ipywidgets") is None:  # drawn to like a terminal
        console = Console(stderr=True, force_jupyter=False, force_terminal=True)
    # A bar that was asked for in a log file or pipe stays there as its last line.
    transient = console.is_terminal or console.is_jupyter
    columns = (TextColumn("{task.description}"), BarColumn(), done, TimeRemainingColumn())
    return Progress(*columns, console=console, transient=transient)


def _visible() -> bool:
    """Return whether a bar would be seen: stderr is a terminal, or this is a notebook."""
    if sys.stderr.isatty():
        return True
    if "IPython" not in sys.modules:  # rich takes long to import
        return False
    from rich.console import Console

    return Console(stderr=True).is_jupyter
