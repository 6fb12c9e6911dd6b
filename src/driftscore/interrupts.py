"""Ctrl-C and SIGTERM end the command with one line and leave no temporary file.

Both are raised in the main thread as `Interrupted`, so that every `finally` and `with` on the way
out is run. The exit status is 128 plus the number of the signal: 130 and 143.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from types import FrameType, TracebackType
from typing import NoReturn

STOPPED = (
    "stopped; run the same command again to continue (with --cache, recordings that are done are "
    "not embedded again)"
)
_MODULES = ("driftscore", "driftscore.cli", "driftscore.cli.app")


class Interrupted(BaseException):
    """The process was asked to end; `status` is its exit status."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough: cleaning up has begun
    raise Interrupted(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `Interrupted` for Ctrl-C and SIGTERM in the block; only the main thread can."""
    signals = [signal.SIGINT, signal.SIGTERM]
    # An ignored signal stays ignored: `nohup` and shells in the background ask for that.
    signals = [one for one in signals if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, _interrupt) for one in signals}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def watch_startup() -> None:
    """If this process is our command, let a Ctrl-C during its imports be one line as well.

    The imports take a fraction of a second in which `main` is not yet running, and an exception
    there may become another one (numpy's ImportError), so the process ends at once: nothing has
    been written yet. In a program that imports the library nothing is changed.
    """
    if not _is_command():
        return
    sys.excepthook = _without_traceback
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored by the shell
        with suppress(ValueError):  # only the main thread can
            signal.signal(signal.SIGINT, _end_now)


def _end_now(number: int, frame: FrameType | None) -> NoReturn:
    print(STOPPED, file=sys.stderr, flush=True)
    os._exit(128 + number)


def _is_command() -> bool:
    program = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""  # noqa: PTH119
    if program in ("driftscore", "driftscore.exe"):
        return True
    return any(a == "-m" and b in _MODULES for a, b in pairwise(sys.orig_argv))


def _without_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    print(STOPPED, file=sys.stderr, flush=True)
    os._exit(128 + signal.SIGINT)
