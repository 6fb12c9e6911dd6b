"""Run commands from the shell, as a user does, and measure their time and peak memory."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_WATCH = Path(__file__).with_name("watch.py")


@dataclass(frozen=True)
class Ran:
    """The cost of a command, and what it wrote to stdout."""

    seconds: float
    cpu_s: float
    """Time of the processor, in all threads: what a busy machine hardly changes."""
    peak_mb: float
    out: str


def driftscore(*arguments: object, cache: Path) -> Ran:
    """Run the command `driftscore` of this environment with the given cache folder."""
    command = Path(sys.executable).with_name("driftscore")
    return _run([str(command), *map(str, arguments)], cache)


def python(*arguments: object, cache: Path) -> Ran:
    """Run this Python interpreter with the given cache folder."""
    return _run([sys.executable, *map(str, arguments)], cache)


def _run(command: Sequence[str], cache: Path) -> Ran:
    """Run a command to its end; raise an error with its stderr if it failed.

    Bytecode may be written, as pip does for an installed package.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "watched.json"
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(_WATCH), str(result), *command],
            env=environment | {"DRIFTSCORE_CACHE": str(cache)},
            capture_output=True,
            text=True,
            check=True,
        )
        watched = json.loads(result.read_text(encoding="utf-8"))
    if watched["status"]:
        raise RuntimeError(f"{' '.join(command[:3])} ... failed: {done.stderr.strip()[-1000:]}")
    return Ran(watched["seconds"], watched["cpu_s"], watched["peak_mb"], done.stdout)
