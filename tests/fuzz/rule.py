"""Run one case and check the rule that holds for every command.

Status 0, 1 or 2 (130 on Ctrl-C), no traceback, the handler of unforeseen errors not reached,
nothing left behind, nothing changed but the output and the cache, time and memory bounded.
"""

import io
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import cast

from driftscore.cli.app import main

from .world import World

LONGEST_S = 60
MOST_GROWTH_KB = 1_000_000
COUNTS: Counter[str] = Counter()
"""What the summary at the end of a run shows."""
KINDS = ("cases", "tracebacks", "hangs", "lost rows", "foreign changes", "files left behind",
         "other failures")  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One call of the command in a world."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """Variables that are set, or removed (None); "{root}" stands for the folder of the world."""
    encoding: str = "utf-8"
    stdin: bytes = b""
    subprocess: bool = False


@dataclass(frozen=True)
class Ended:
    """How a call ended."""

    status: int
    out: str
    err: str
    seconds: float


class Hang(BaseException):
    """The command did not end in time."""


def run_case(case: Case, world: World) -> Ended:
    """Run a case and check the rule."""
    before, peak = world.snapshot(), _peak_kb()
    COUNTS["cases"] += 1
    try:
        ended = _in_subprocess(case, world) if case.subprocess else _in_process(case, world)
    except (Hang, subprocess.TimeoutExpired):
        COUNTS["hangs"] += 1
        raise AssertionError(f"no end after {LONGEST_S} s: {case}") from None
    shown = f"{case}\nstatus {ended.status}\n{ended.err[-3000:]}"
    if "Traceback" in ended.err or "error: unexpected" in ended.err:
        COUNTS["tracebacks"] += 1
        raise AssertionError(f"traceback or unforeseen error: {shown}")
    expect(ended.status in (0, 1, 2), "other failures", f"status: {shown}")
    expect(ended.status == 0 or bool(ended.err), "other failures", f"no message: {shown}")
    expect(_peak_kb() - peak < MOST_GROWTH_KB, "other failures", f"memory: {shown}")
    after = world.snapshot()
    changed = {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)}
    left = {p for p in changed if p.startswith(str(world.root / "tmp"))}
    expect(not changed - left, "foreign changes", f"changed: {sorted(changed)}: {shown}")
    hidden = [str(path) for path in world.out.rglob(".driftscore-*")]
    expect(not left and not hidden, "files left behind", f"left: {left} {hidden}: {shown}")
    return ended


def expect(holds: bool, kind: str, message: str) -> None:
    """Count and report a case that breaks the rule."""
    if not holds:
        COUNTS[kind] += 1
        raise AssertionError(message)


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _variables(case: Case, world: World) -> dict[str, str]:
    """Return the environment of a case."""
    root = str(world.root)
    found = dict(os.environ) | {
        "HOME": f"{root}/home",
        "TMPDIR": f"{root}/tmp",
        "DRIFTSCORE_CACHE": f"{root}/cache",
    }
    for name in ("DRIFTSCORE_LAB", "DRIFTSCORE_DATA", "DRIFTSCORE_DEBUG", "XDG_CACHE_HOME"):
        found.pop(name, None)
    for name, value in case.environment.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = value.replace("{root}", root)
    return found


def _in_process(case: Case, world: World) -> Ended:
    """Run `main` in this process, with streams, variables and arguments of the case."""
    out, err = io.BytesIO(), io.BytesIO()
    begun, status = time.monotonic(), -1
    with ExitStack() as stack:
        stack.enter_context(_replaced(os.environ, _variables(case, world)))
        stack.enter_context(_attributes(sys, {
            "argv": ["driftscore", *case.arguments],
            "stdin": io.TextIOWrapper(io.BytesIO(case.stdin), encoding="utf-8"),
            "stdout": io.TextIOWrapper(out, encoding=case.encoding, write_through=True),
            "stderr": io.TextIOWrapper(err, encoding=case.encoding, write_through=True),
        }))  # fmt: skip
        stack.enter_context(_attributes(tempfile, {"tempdir": None}))
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(_working_in(world.root / "work"))
        stack.enter_context(_alarm())
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        for stream in (sys.stdout, sys.stderr):  # a wrapper closes what it wraps at its end
            cast(io.TextIOWrapper, stream).detach()
    shown, said = (stream.getvalue().decode(case.encoding, "replace") for stream in (out, err))
    return Ended(status, shown, said, time.monotonic() - begun)


def _in_subprocess(case: Case, world: World) -> Ended:
    """Run the command as a user does."""
    variables = _variables(case, world) | {"PYTHONIOENCODING": case.encoding}
    variables |= {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "driftscore", *case.arguments], input=case.stdin, env=variables,
        cwd=world.root / "work", capture_output=True, timeout=LONGEST_S, check=False,
    )  # fmt: skip
    shown, said = (text.decode(case.encoding, "replace") for text in (done.stdout, done.stderr))
    return Ended(done.returncode, shown, said, time.monotonic() - begun)


@contextmanager
def _replaced(target: "os._Environ[str]", values: Mapping[str, str]) -> Iterator[None]:
    before = dict(target)
    target.clear()
    target.update(values)
    try:
        yield
    finally:
        target.clear()
        target.update(before)


@contextmanager
def _attributes(module: object, values: Mapping[str, object]) -> Iterator[None]:
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _alarm() -> Iterator[None]:
    """Raise `Hang` in the main thread when the time is over."""

    def over(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
