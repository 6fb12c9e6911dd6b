"""Every command with good, damaged and odd values of all its parameters keeps the rule."""

import csv
import io
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conftest import restore_sigint
from tests.mutation import DAMAGE, Damage, cases, damaged

from .cases import (
    ASK,
    COMMANDS,
    FAKE,
    LASTING,
    NAMES,
    VARIABLES,
    all_commands,
    command_cases,
    damaged_files,
)
from .rule import COUNTS, Case, Ended, expect, run_case
from .world import World


def fuzz(share: float = 1.0) -> settings:
    """Return settings for some cases: 16 for a share of 1, or as many as DRIFTSCORE_FUZZ says.

    Without it the cases are always the same, so that a run of all tests is repeatable.
    """
    return settings(
        derandomize="DRIFTSCORE_FUZZ" not in os.environ,
        max_examples=max(2, round(share * cases(16))),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate),
    )


def test_every_command_has_fuzz_cases() -> None:
    assert sorted([*COMMANDS, *LASTING]) == sorted(all_commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_keeps_the_rule(name: str, world: World) -> None:
    @fuzz(COMMANDS[name].share)
    @given(case=command_cases(name, world))
    def check(case: Case) -> None:
        run_case(case, world)

    check()


def rows_by_file(ended: Ended) -> dict[str, str]:
    """Return the rows of a csv by the name of the recording."""
    lines = io.StringIO(ended.out, newline="")
    return {row["file"]: ",".join(row.values()) for row in csv.DictReader(lines)}


def label(world: World, *files: str, more: tuple[str, ...] = ()) -> Ended:
    """Classify files as csv; all options are right, so only the files decide."""
    case = Case(("classify", *more, *FAKE, *ASK, "--format", "csv", "--", *files))
    return run_case(case, world)


def good_rows(world: World) -> dict[str, str]:
    """Return the rows of the good recordings, computed once."""
    if not world.rows:
        world.reset()
        ended = label(world, *map(str, world.files["recordings"]))
        assert ended.status == 0, ended.err
        world.rows.update(rows_by_file(ended))
    return world.rows


@pytest.mark.parametrize("cached", [(), ("--cache",)])
def test_good_recordings_have_their_rows_beside_bad_ones(
    world: World, cached: tuple[str, ...]
) -> None:
    expected = good_rows(world)
    bad = st.one_of(
        damaged_files(world, world.files["recordings"]),
        st.sampled_from([name for name in NAMES if not set(name) & set("*[") and name]),
        st.sampled_from([str(path) for path in world.all_files()]),
    )

    @fuzz(2.0)
    @given(bad=st.lists(bad, min_size=1, max_size=4), turn=st.integers(0, 5))
    def check(bad: list[str], turn: int) -> None:
        good = world.files["recordings"][turn]
        files = [path for path in bad if path not in (".", "..", "/", "~", "-")]
        ended = label(world, *files, str(good), more=cached)
        found = rows_by_file(ended)
        expect(found.get(str(good)) == expected[str(good)], "lost rows", f"{files} {ended}")
        expect(ended.status in (0, 1), "lost rows", f"{files} {ended}")

    world.reset()
    check()


@pytest.mark.parametrize("name", ["texts.sqlite", "audio.sqlite"])
def test_a_damaged_cache_changes_no_row(world: World, name: str) -> None:
    expected, files = good_rows(world), [str(path) for path in world.files["recordings"][:3]]
    world.reset()
    label(world, *files, more=("--cache",))
    whole = (world.root / "cache" / name).read_bytes()

    @fuzz(2.0)
    @given(changes=DAMAGE, value=st.sampled_from([None, b"", b"\0" * 99, "x", 7, 1e300]),
           row=st.booleans())  # fmt: skip
    def check(changes: list[Damage], value: object, row: bool) -> None:
        world.reset()
        path = world.root / "cache" / name
        path.write_bytes(whole if row else damaged(whole, changes))
        if row:
            overwrite(path, changes[0][1], value)
        found = rows_by_file(label(world, *files, more=("--cache",)))
        for file in files:
            expect(found.get(file) == expected[file], "lost rows", f"{file}: {found}")

    check()


def overwrite(path: Path, where: float, value: object) -> None:
    """Put a value into one column of a table, chosen by a number from 0 to 1."""
    with sqlite3.connect(path) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE sql <> ''")]
        columns = [(t, c[1]) for t in tables for c in db.execute(f"PRAGMA table_info({t})")]
        table, column = columns[min(int(where * len(columns)), len(columns) - 1)]
        db.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))
    db.close()


@pytest.mark.parametrize("command", ["status", "export {out}/rows.csv", "report --out {out}/r.md"])
def test_a_damaged_store_of_the_lab_keeps_the_rule(world: World, command: str) -> None:
    home = world.inputs / "store"

    @fuzz(0.5 if command.startswith("report") else 1.0)  # a report draws its figures
    @given(which=st.sampled_from(world.files["stores"]), changes=DAMAGE,
           value=st.sampled_from([None, b"", "x", 7, "{}", "[]"]), row=st.booleans())  # fmt: skip
    def check(which: Path, changes: list[Damage], value: object, row: bool) -> None:
        world.reset()
        copy = world.root / "cache" / "lab"
        shutil.copytree(home, copy)
        path = copy / which.relative_to(home)
        if row and path.suffix == ".sqlite":
            overwrite(path, changes[0][1], value)
        else:
            path.write_bytes(damaged(which.read_bytes(), changes))
        words = command.format(out=world.out).split()
        run_case(Case(("lab", *words, "--store", str(copy))), world)

    check()


def test_a_sample_of_cases_as_real_commands_in_odd_environments(world: World) -> None:
    some = st.sampled_from(["classify", "head", "list", "cache", "score", "embed"])

    @fuzz(0.6)
    @given(data=st.data(), name=some, variables=st.lists(st.sampled_from(VARIABLES), max_size=4))
    def check(data: st.DataObject, name: str, variables: list[tuple[str, tuple[str, ...]]]) -> None:
        case = data.draw(command_cases(name, world))
        if any("\0" in word for word in case.arguments):
            return
        changes = {key: data.draw(st.sampled_from(values)) for key, values in variables}
        run_case(Case(case.arguments, changes, case.encoding, case.stdin, subprocess=True), world)

    check()


def test_ctrl_c_at_any_time_is_one_line_and_leaves_nothing(world: World) -> None:
    files = [str(path) for path in world.files["recordings"]] * 30

    @fuzz(0.2)
    @given(after=st.floats(0.05, 1.5))
    def check(after: float) -> None:
        world.reset()
        command = [sys.executable, "-m", "driftscore", "classify", *files, *FAKE, *ASK]
        process = subprocess.Popen(
            [*command, "--cache", "--out", str(world.out / "rows.csv")], stderr=subprocess.PIPE,
            text=True, env={"PATH": "/usr/bin:/bin", "HOME": str(world.root / "home"),
                            "TMPDIR": str(world.root / "tmp"),
                            "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")},
            preexec_fn=restore_sigint,
        )  # fmt: skip
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        COUNTS["cases"] += 1
        if "Traceback" in err and not re.search(r"__main__\.py.* in start$", err, re.MULTILINE):
            return  # while Python itself started, before our command began
        expect("Traceback" not in err, "tracebacks", err)
        # -2: before Python itself looks for the signal
        expect(process.returncode in (0, 130, -2), "other failures", f"{process.returncode} {err}")
        left = [*world.out.rglob(".driftscore-*"), *(world.root / "tmp").iterdir()]
        expect(not left, "files left behind", f"{left}")

    check()
