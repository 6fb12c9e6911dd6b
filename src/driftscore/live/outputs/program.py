"""Events as JSON on the standard input of a program, one run per event, without a shell.

Exit status 0 means that the event was taken. What the program writes to stdout is not read; the
last line of stderr is in the message if it fails.
"""

import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from driftscore.decisions.records import JsonFields
from driftscore.errors import UsageError
from driftscore.live.outputs.delivery import Transport, UndeliveredError

TIMEOUT_S = 30.0


class Program(Transport):
    """Starts a program for each event."""

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"The command {command!r} cannot be read: {error}") from error
        if not self._words or shutil.which(self._words[0]) is None:
            raise UsageError(
                f"There is no program {(self._words or [''])[0]!r} for --exec that can be executed"
            )
        self.name = f"The program {Path(self._words[0]).name}"
        self._running: subprocess.Popen[bytes] | None = None
        self.key = f"exec {hashlib.sha256(command.encode()).hexdigest()}"

    def deliver(self, fields: JsonFields) -> None:
        """Run the program; Ctrl-C does not reach it."""
        text = json.dumps(fields, ensure_ascii=False) + "\n"
        # A file and no pipe: what the program leaves running, such as a player, may keep it open.
        with ExitStack() as opened:
            try:
                errors = opened.enter_context(tempfile.TemporaryFile())
                self._running = subprocess.Popen(
                    self._words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise UndeliveredError(f"cannot be started: {error.strerror}") from error
            try:
                self._running.communicate(text.encode(), TIMEOUT_S)
            except subprocess.TimeoutExpired as error:
                self._end()
                why = f"did not end within {TIMEOUT_S:g} s"
                raise UndeliveredError(why, refused=True) from error
            if status := self._running.wait():
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - 1000))
                lines = errors.read().decode("utf-8", "replace").strip().splitlines()
                why = ": ".join(
                    [f"ends with status {status}", *(line[:200] for line in lines[-1:])]
                )
                raise UndeliveredError(why, refused=True)

    def close(self) -> None:
        """End a program that still runs: the next run may start it again for its event."""
        self._end()

    def _end(self) -> None:
        """End the program, with what it has started, unless it has ended."""
        if self._running is not None and self._running.poll() is None:
            with suppress(ProcessLookupError):
                if hasattr(os, "killpg") and hasattr(signal, "SIGKILL"):
                    os.killpg(self._running.pid, signal.SIGKILL)
                else:
                    self._running.kill()
