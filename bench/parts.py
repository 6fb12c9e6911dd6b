"""The parts of `make bench`, each run in a process of its own.

A part is a file here with `measure(*, quick) -> list[Figure]`, and `THREADS = 1` if its libraries
must use one thread. A separate process keeps one part's threads, memory and library settings from
affecting the next; a part that cannot run becomes a line that says why.
`python -m bench.parts NAME RESULT.json [--quick]` measures one part.
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
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import numpy as np

from bench.figures import Figure, NotHereError
from bench.machine import commit, describe_machine, versions, without_places
from bench.records import FigureRecord, Measured, PartRecord

HOME = Path(__file__).resolve().parent
_FIRST = ("pipelines", "tower", "texts", "scoring", "precision", "one_clip", "peers", "mixing",
          "relabel", "memory", "growth", "startup")  # fmt: skip
"""The order of the page; parts that are not named here follow, by name."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def part_names() -> list[str]:
    """Return the parts in the order of the page: every file that defines `measure`."""
    found = {path.stem for path in HOME.glob("*.py") if _definition(path.stem, "measure")}
    return [name for name in _FIRST if name in found] + sorted(found.difference(_FIRST))


def thread_count(name: str) -> int | None:
    """Return the THREADS of a part; None, the default of each library, if it defines none."""
    node = _definition(name, "THREADS")
    return ast.literal_eval(node.value) if isinstance(node, ast.Assign) else None


def _definition(name: str, wanted: str) -> ast.stmt | None:
    """Return the statement of a part's file that defines a name."""
    for node in _tree(name).body:
        if isinstance(node, ast.FunctionDef) and node.name == wanted:
            return node
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == wanted:
            return node
    return None


def _tree(name: str) -> ast.Module:
    """Return a part's syntax tree, without importing it: it may need missing libraries."""
    return ast.parse((HOME / f"{name}.py").read_text(encoding="utf-8"))


def describe_part(name: str) -> tuple[str, str]:
    """Return a part's title and description: the first line of its docstring, and the rest."""
    title, _, about = (ast.get_docstring(_tree(name)) or name).partition("\n")
    return title.removesuffix("."), about.strip()


def run_part(name: str, *, quick: bool) -> tuple[PartRecord, bool]:
    """Measure one part in a new process; return its record, and whether it broke."""
    start = time.perf_counter()
    measured = _measure_apart(name, quick=quick)
    title, about = describe_part(name)
    record = PartRecord(
        title=title,
        about=about,
        command=f"python -m bench --only {name}",
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=commit(HOME.parent),
        quick=quick,
        threads=thread_count(name) or _requested_threads(),
        seconds=round(time.perf_counter() - start, 1),
        machine=describe_machine(),
        versions=versions(),
        figures=measured["figures"],
        error=measured["error"],
    )
    return record, measured["failed"]


def _measure_apart(name: str, *, quick: bool) -> Measured:
    """Run `measure_part` in a new process with the part's number of threads."""
    threads = thread_count(name)
    fixed = dict.fromkeys(_THREADS, str(threads)) if threads else {}
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, "-m", "bench.parts", name, str(result)]
        done = subprocess.run(
            command + ["--quick"] * quick, cwd=HOME.parent, env=os.environ | fixed, check=False
        )
        if not result.is_file():
            error = f"its process ended with status {done.returncode}"
            return Measured(figures=[], error=error, failed=True)
        return cast(Measured, json.loads(result.read_text(encoding="utf-8")))


def measure_part(name: str, *, quick: bool) -> Measured:
    """Measure one part in this process; return its figures, or why there are none."""
    try:
        figures: list[Figure] = importlib.import_module(f"bench.{name}").measure(quick=quick)
        records = [cast(FigureRecord, asdict(figure)) for figure in figures]
        return Measured(figures=records, error="", failed=False)
    except NotHereError as error:
        reason, failed = str(error), False
    except ModuleNotFoundError as error:
        reason = f"{error.name} is not installed"
        failed = (error.name or "").split(".")[0] in ("bench", "driftscore")
        trace = traceback.format_exc()
    except Exception as error:  # the other parts must run even if this one is broken
        reason, failed = f"{type(error).__name__}: {error}", True
        trace = traceback.format_exc()
    if failed:
        print(trace, file=sys.stderr)
    return Measured(figures=[], error=without_places(reason), failed=failed)


def _requested_threads() -> int | None:
    requested = os.environ.get(_THREADS[0], "")
    return int(requested) if requested.isdecimal() else None


def _plain(value: object) -> object:
    """Return numpy numbers and arrays as plain Python values."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"A figure must hold numbers and text, got {type(value).__name__}")


if __name__ == "__main__":
    found = measure_part(sys.argv[1], quick="--quick" in sys.argv[3:])
    Path(sys.argv[2]).write_text(
        json.dumps(found, default=_plain, allow_nan=False), encoding="utf-8"
    )
