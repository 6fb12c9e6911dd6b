"""The parts of `make bench`, each run in a fresh process, and what is noted of a run.

A part is a file here with `measure(*, quick) -> list[Figure]`. What one does to threads,
memory or torch's settings cannot colour the next; one that cannot run is a line that says
why. As a program: `python -m bench.parts NAME RESULT.json [--quick]` measures one part.
"""

import ast
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench.figures import NotHereError
from bench.machine import commit, describe_machine, versions, without_places

HOME = Path(__file__).resolve().parent
PARTS: Mapping[str, int | None] = {
    "pipelines": None,
    "tower": 1,
    "texts": None,
    "scoring": 1,
    "precision": 1,
    "one_clip": 1,
    "mixing": 1,
    "relabel": None,
    "memory": None,
    "growth": None,
    "startup": None,
}
"""Every part in the order of the page, and its threads: 1, or None for all cores as
each library uses them by default."""

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def part_names() -> list[str]:
    """Return the parts that are there."""
    return [name for name in PARTS if (HOME / f"{name}.py").is_file()]


def run_part(name: str, *, quick: bool) -> dict[str, Any]:
    """Measure one part in a process of its own; return its figures with all that made them."""
    threads = PARTS[name]
    fixed = dict.fromkeys(_THREADS, str(threads)) if threads else {}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, "-m", "bench.parts", name, str(result)]
        done = subprocess.run(
            command + ["--quick"] * quick, cwd=HOME.parent, env=os.environ | fixed, check=False
        )
        if result.is_file():
            measured = json.loads(result.read_text(encoding="utf-8"))
        else:
            measured = {"figures": [], "error": f"it ended with status {done.returncode}"}
            measured["failed"] = True
    title, _, about = _docstring(name).partition("\n")
    return {
        "title": title.removesuffix("."),
        "about": about.strip(),
        "command": f"python -m bench --only {name}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit(HOME.parent),
        "quick": quick,
        "threads": threads or _asked_threads(),
        "seconds": round(time.perf_counter() - start, 1),
        "machine": describe_machine(),
        "versions": versions(),
        **measured,
    }


def measure_part(name: str, *, quick: bool) -> dict[str, Any]:
    """Measure one part in this process: its figures, or why there are none."""
    try:
        figures = importlib.import_module(f"bench.{name}").measure(quick=quick)
        return {"figures": [asdict(figure) for figure in figures], "error": "", "failed": False}
    except NotHereError as error:
        reason, failed = str(error), False
    except ModuleNotFoundError as error:
        reason = f"{error.name} is not installed"
        failed = (error.name or "").split(".")[0] in ("bench", "driftscore")
        told = traceback.format_exc()
    except Exception as error:  # one broken part must not cost the others
        reason, failed = f"{type(error).__name__}: {error}", True
        told = traceback.format_exc()
    if failed:
        print(told, file=sys.stderr)
    return {"figures": [], "error": without_places(reason), "failed": failed}


def _asked_threads() -> int | None:
    asked = os.environ.get(_THREADS[0], "")
    return int(asked) if asked.isdecimal() else None


def _docstring(name: str) -> str:
    """Return a part's docstring without importing it: it may need what is not installed."""
    tree = ast.parse((HOME / f"{name}.py").read_text(encoding="utf-8"))
    return ast.get_docstring(tree) or name


def _plain(value: Any) -> Any:
    """Return numpy's numbers as plain ones."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"A figure holds a {type(value).__name__}, which is no number or text")


if __name__ == "__main__":
    found = measure_part(sys.argv[1], quick="--quick" in sys.argv[3:])
    Path(sys.argv[2]).write_text(
        json.dumps(found, default=_plain, allow_nan=False), encoding="utf-8"
    )
