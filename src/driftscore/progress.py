"""A progress bar for long work, on stderr or in a notebook; nothing where nobody can see it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

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
