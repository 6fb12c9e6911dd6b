"""Run commands and programs in one new process, which looks up entry points anew.

One process for many steps: starting Python and importing the package is most of a short command.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

_DRIVER = """
import json, os, runpy, shlex, sys, traceback
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO


def run(kind, text):
    if kind == "folder":
        os.chdir(text)
        return
    if kind == "python":
        exec(compile(text, "program", "exec"), {"__name__": "__main__"})
        return
    text, _, file = text.partition(" > ")
    if file:
        with open(os.path.expanduser(file.strip()), "w") as out, redirect_stdout(out):
            return run(kind, text)
    words = shlex.split(text)
    if words[:2] == ["python", "-c"]:
        return run("python", words[2])
    if words[:2] == ["mkdir", "-p"]:
        for folder in words[2:]:
            os.makedirs(os.path.expanduser(folder), exist_ok=True)
        return
    if words[:2] == ["python", "-m"]:
        words = words[2:]
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__")


for kind, text in json.load(sys.stdin):
    out, err, status = StringIO(), StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            run(kind, text)
        except SystemExit as stop:
            status = stop.code or 0
        except Exception:
            status = traceback.format_exc()
    print(json.dumps([status, out.getvalue(), err.getvalue()]), flush=True)
"""


@dataclass(frozen=True)
class Done:
    """How a step ended: its exit status (or a traceback), and what it wrote."""

    status: int | str
    out: str
    err: str


def run_steps(
    steps: Sequence[tuple[str, str]],
    *,
    cwd: Path,
    paths: Sequence[Path],
    cache: Path,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> list[Done]:
    """Run steps in order, all in one new process, with further settings of the environment.

    A step is ("command", line), ("python", program), or ("folder", path) to go to.
    """
    changes = {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "DRIFTSCORE_CACHE": str(cache),
        "COLUMNS": "200",
    }
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER],
        input=json.dumps(list(steps)),
        cwd=cwd,
        env={**os.environ, **changes, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    results = [Done(*json.loads(line)) for line in done.stdout.splitlines()]
    assert len(results) == len(steps), done.stderr
    return results
