"""Messages that C libraries write to descriptor 2 by themselves, kept off the command's stderr.

libmpg123 writes several lines about each damaged frame of an mp3, which would bury our own
messages. The command therefore writes its messages to a copy of descriptor 2, and descriptor 2
itself leads nowhere while a file is decoded. A program that imports the library is left as it is.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

_lock = Lock()
_separate = False
_silenced = 0
_saved = -1


def separate_stderr() -> None:
    """Let Python write to a copy of descriptor 2; only a program that owns the process may."""
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
    """Discard what is written to descriptor 2 in the block; threads may overlap."""
    if not _separate:
        yield
        return
    _begin()
    try:
        yield
    finally:
        _end()


def _begin() -> None:
    global _silenced, _saved
    with _lock, suppress(OSError):  # without a free descriptor the messages are shown
        if _saved < 0:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            try:
                _saved = os.dup(2)
                os.dup2(nowhere, 2)
            finally:
                os.close(nowhere)
    with _lock:
        _silenced += 1


def _end() -> None:
    global _silenced, _saved
    with _lock:
        _silenced -= 1
        if _silenced == 0 and _saved >= 0:
            os.dup2(_saved, 2)
            os.close(_saved)
            _saved = -1
