"""What a process has only once: its signals, environment, descriptor 2 and heaps.

The library leaves all of them as they are, except inside the blocks below; heaps are bounded by the
command that listens.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import NoReturn

from driftscore.errors import UsageError

HEAPS, LARGE_BYTES = 2, 256 * 1024
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # as in malloc.h of glibc

_lock = Lock()
_separate = False
_silenced = 0
_saved = -1


class Interrupted(BaseException):
    """The process was asked to end; `status` is its exit status: 130 or 143."""

    reached = ""
    """How far the work is, as in " after 3 of 10 recordings"."""
    advice = ""
    """How to continue, a sentence after ". "; empty where the next run begins anew."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number

    def __str__(self) -> str:
        return f"stopped{self.reached}{self.advice}"


def bound_heaps() -> None:
    """Let all threads share a few heaps without large arrays, where the C library is glibc.

    For a process that runs for weeks. By default glibc has a heap per thread and puts arrays of up
    to 32 MB into it; of a heap only its free end is given back, so free memory in the heaps grows
    with each thread that ends and each array that is made anew. A large array that is memory of its
    own is given back when it is freed. Call it before threads are started.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_M_ARENA_MAX, HEAPS)
        libc.mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


def check_process(pid: int) -> None:
    """Refuse to continue in a forked process what needs the threads of the process `pid`."""
    if pid != os.getpid():
        raise UsageError(
            "This iterator was begun before the process was forked, and its threads stayed in the "
            "parent; begin a new one here"
        )


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `Interrupted` in the main thread for Ctrl-C and SIGTERM in the block.

    Every `finally` and `with` on the way out is run, so no temporary file is left.
    """

    def interrupt(number: int, frame: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough: cleaning up has begun
        raise Interrupted(number)

    # An ignored signal stays ignored: `nohup` and shells in the background ask for that.
    signals = [
        one
        for one in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(one) is not signal.SIG_IGN
    ]
    before = {one: signal.signal(one, interrupt) for one in signals}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set variables in the block, unless they are set already, and remove them after it.

    Several libraries report what they are used for unless a variable is set at their import.
    """
    missing = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def separate_stderr() -> None:
    """Let Python write to a copy of descriptor 2; only a program that owns the process may.

    libmpg123 writes several lines to descriptor 2 about each damaged frame of an mp3, which would
    bury our own messages: `silenced` discards them.
    """
    global _separate
    try:
        if _separate or sys.stderr.fileno() != 2:
            return
        copy = os.dup(2)
    except (OSError, ValueError):  # a stream in memory, or no descriptor left
        return
    encoding = sys.stderr.encoding
    sys.stderr = open(copy, "w", buffering=1, encoding=encoding, errors="backslashreplace")  # noqa: SIM115
    _separate = True


@contextmanager
def silenced() -> Iterator[None]:
    """Discard what C libraries write to descriptor 2 in the block; threads may overlap.

    Without `separate_stderr` nothing is discarded.
    """
    global _silenced, _saved
    if not _separate:
        yield
        return
    with _lock:
        _silenced += 1
        with suppress(OSError):  # without a free descriptor the messages are shown
            if _saved < 0:
                with open(os.devnull, "wb") as nowhere:
                    _saved = os.dup(2)
                    os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        with _lock:
            _silenced -= 1
            if _silenced == 0 and _saved >= 0:
                os.dup2(_saved, 2)
                os.close(_saved)
                _saved = -1
