"""The check of the rule sees each way to break it: a check that cannot fail is none."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import rule
from .rule import COUNTS, Case, run_case
from .world import World


@pytest.fixture
def counts() -> Iterator[None]:
    """Leave the numbers of the summary as they were."""
    before = dict(COUNTS)
    yield
    COUNTS.clear()
    COUNTS.update(before)


def say(text: str) -> None:
    print(text, file=sys.stderr)


WAYS: dict[str, tuple[str, Callable[[], object]]] = {
    "a traceback": ("tracebacks", lambda: say("Traceback (most recent call last):")),
    "an unforeseen error": ("tracebacks", lambda: say("error: unexpected KeyError: 'x'")),
    "no end": ("hangs", lambda: time.sleep(30)),
    "a file in the working directory": ("foreign changes", lambda: Path("x").write_text("x")),
    "a changed file": ("foreign changes", lambda: Path("notes.txt").write_text("other\n")),
    "a file in the home folder": (
        "foreign changes", lambda: (Path.home() / ".id").write_text("x")),
    "a temporary file": ("files left behind", lambda: Path("../tmp/x").write_text("x")),
    "half an output": ("files left behind", lambda: Path("../out/.driftscore-1").write_text("x")),
    "another status": ("other failures", lambda: sys.exit(3)),
    "no message": ("other failures", lambda: sys.exit(1)),
}  # fmt: skip


@pytest.mark.usefixtures("counts")
@pytest.mark.parametrize("way", WAYS)
def test_a_broken_rule_is_seen_and_counted(
    way: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, harm = WAYS[way]

    def main() -> None:
        harm()
        sys.exit(0)

    monkeypatch.setattr(rule, "main", main)
    monkeypatch.setattr(rule, "LONGEST_S", 1)
    world.reset()
    before = COUNTS[kind]
    with pytest.raises(AssertionError):
        run_case(Case(()), world)
    assert COUNTS[kind] == before + 1
    (world.root / "work" / "x").unlink(missing_ok=True)
    (world.root / "work" / "notes.txt").write_text("mine\n")
    world.reset()


@pytest.mark.usefixtures("counts")
def test_a_call_that_keeps_the_rule_passes(world: World) -> None:
    world.reset()
    assert run_case(Case(("list", "rules")), world).status == 0
