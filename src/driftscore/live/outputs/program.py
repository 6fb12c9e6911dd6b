"""Events as JSON on the standard input of a program, one run per event, without a shell.

Exit status 0 means that the event was taken. What the program writes to stdout is not read; the
last line of stderr is in the message if it fails.
"""

import hashlib
import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from driftscore.decisions.records import JsonFields, LiveReport
from driftscore.errors import UsageError
from driftscore.live.outputs.delivery import UndeliveredError

TIMEOUT_S = 30.0


class Program:
    """Starts a program for each event."""

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"The command {command!r} cannot be read: {error}") from error
        if not self._words or shutil.which(self._words[0]) is None:
            raise UsageError(f"There is no program {(self._words or [''])[0]!r} for --exec")
        self.name = f"The program {Path(self._words[0]).name}"
        self.key = f"exec {hashlib.sha256(command.encode()).hexdigest()}"

    def begin(self, failed: Callable[[str], None], ready: Callable[[], None]) -> None:
        """Do nothing: the program was looked for already."""

    def show(self, report: LiveReport) -> None:
        """Take a state: a program gets events only."""

    def deliver(self, fields: JsonFields) -> None:
        """Run the program; Ctrl-C does not reach it."""
        text = json.dumps(fields, ensure_ascii=False) + "\n"
        try:
            done = subprocess.run(
                self._words,
                input=text.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=TIMEOUT_S,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired as error:
            why = f"did not end within {TIMEOUT_S:g} s"
            raise UndeliveredError(why, refused=True) from error
        except OSError as error:
            raise UndeliveredError(f"cannot be started: {error.strerror}") from error
        if done.returncode:
            line = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [""])[-1][:200]
            why = f"ends with status {done.returncode}{': ' if line else ''}{line}"
            raise UndeliveredError(why, refused=True)

    def close(self) -> None:
        """Do nothing: no program runs between events."""
