"""A progress bar on stderr for long work, and nothing if stderr is not a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress_bar(what: str, total: int | None, *, show: bool | None = None) -> Iterator[Advance]:
    """Yield a function that moves the bar on; `show=None` means only on a terminal."""
    if total == 0 or not (sys.stderr.isatty() if show is None else show):
        yield lambda count: None
        return
    from rich.console import Console
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
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
