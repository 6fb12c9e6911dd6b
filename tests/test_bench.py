"""The page of `make bench`: what it says of figures. Nothing here is timed."""

import json
import sys
from dataclasses import asdict

import pytest

from bench import __main__ as command
from bench import figures, parts, shell
from bench.figures import Figure, NotHereError, Spread, in_turns
from bench.machine import without_places
from bench.page import number, page, times
from bench.pictures import pictures_of, write_pictures


def part(*found, error="", quick=False):
    return {
        "title": "Some work",
        "about": "How it is done.",
        "command": "python -m bench --only some",
        "date": "2026-11-15",
        "commit": "abc",
        "quick": quick,
        "threads": 1,
        "seconds": 3.0,
        "machine": {"cpu": "A CPU", "cores": 2, "ram_gb": 8.0, "os": "Linux"},
        "versions": {"python": "3.11.7", "numpy": "2.0"},
        "figures": [asdict(figure) for figure in found],
        "error": error,
    }


FAST = Figure(
    "fast work",
    Spread(1.2345, 1.2, 1.3, 9),
    "ms",
    peer="a peer",
    theirs=Spread(12.9, 12.0, 13.0, 9),
    ratio=Spread(10.44, 10.1, 10.9, 9),
    bar=">= 10x",
    met=True,
    note="equal to 1e-12",
)
SLOW = Figure("slow work", Spread(7.25, 7.25, 7.25, 1), "s", bar="< 5 s", met=False)
STEPS = Figure("a clip", Spread(3, 3, 3, 1), "ms", details={"model": "m", "steps_ms": {"mel": 3.0}})
GROWTH = Figure(
    "growth", Spread(3, 3, 3, 1), "ms a clip",
    details={"clips": [1, 10], "ms_a_clip": [3.0, 3.1], "ms_a_clip_low": [2.9, 3.0],
             "ms_a_clip_high": [3.2, 3.3], "peak_mb": [100.0, 101.0]},
)  # fmt: skip


@pytest.fixture
def results():
    found = {"a": part(FAST), "b": part(SLOW), "c": part(error="torch is not installed")}
    return json.loads(json.dumps(found))


def test_the_page_says_what_is_met_and_what_is_not(results):
    bars = page(results).split("## Where")[0].splitlines()
    fast, slow, absent = bars[-4:-1] if bars[-1] == "" else bars[-3:]
    assert "| a peer | >= 10x | 10.4x (10.1 to 10.9) | met |" in fast
    assert "| < 5 s | 7.25 s | **NOT MET** |" in slow
    assert "could not run: torch is not installed | NOT MEASURED" in absent


def test_a_section_has_times_notes_and_its_command(results):
    text = page(results)
    assert "| fast work | 1.23 ms (1.20 to 1.30) | a peer | 12.9 ms (12.0 to 13.0) |" in text
    assert "- fast work: equal to 1e-12" in text
    assert "`python -m bench --only some`: 3 s, one thread." in text
    assert "A CPU, 2 cores, 8 GB, Linux; python 3.11.7, numpy 2.0" in text


def test_a_trial_is_not_passed_off_as_figures(results):
    assert "These are not the figures" not in page(results)
    assert "These are not the figures" in page({**results, "b": part(SLOW, quick=True)})


def test_the_page_shows_the_pictures_that_there_are_figures_for(results, tmp_path):
    assert not pictures_of(results)
    drawn = {**results, "a": part(STEPS), "growth": part(GROWTH)}
    assert write_pictures(drawn, tmp_path) == ["bench-clip.svg", "bench-growth.svg"]
    first = (tmp_path / "bench-growth.svg").read_bytes()
    assert "(bench-clip.svg)" in page(drawn)
    write_pictures(drawn, tmp_path)
    assert (tmp_path / "bench-growth.svg").read_bytes() == first


def test_numbers_are_rounded_to_what_they_say():
    assert [number(v) for v in (12_345.6, 123.4, 12.34, 1.234, 0.1234, 4e-9)] == [
        "12,346", "123", "12.3", "1.23", "0.123", "4.0e-09",
    ]  # fmt: skip
    close = {"median": 0.999, "low": 0.975, "high": 1.038, "turns": 41}
    assert times(close) == "0.999x (0.975 to 1.038)"


def test_turns_alternate_their_order():
    called = []
    runs = {name: lambda name=name: called.append(name) for name in "ab"}
    seconds = in_turns(runs, 3)
    assert "".join(called) == "ab" + "ab" + "ba" + "ab"
    assert [len(values) for values in seconds.values()] == [3, 3]


def test_a_ratio_is_of_turns_and_not_of_medians():
    assert figures.ratio([2.0, 4.0, 90.0], [1.0, 1.0, 30.0]).median == 3.0


def measure_with(monkeypatch, error):
    def measure(*, quick):
        raise error

    monkeypatch.setitem(sys.modules, "bench.scoring", type(sys)("bench.scoring"))
    monkeypatch.setattr(sys.modules["bench.scoring"], "measure", measure, raising=False)
    return parts.measure_part("scoring", quick=True)


def test_a_part_that_cannot_run_says_why_and_one_that_breaks_is_told_apart(monkeypatch):
    absent = measure_with(monkeypatch, NotHereError("no scaper at /home/me/env/bin/python"))
    assert (absent["error"], absent["failed"]) == ("no scaper at python", False)
    missing = measure_with(monkeypatch, ModuleNotFoundError("...", name="torch"))
    assert (missing["error"], missing["failed"]) == ("torch is not installed", False)
    assert measure_with(monkeypatch, ModuleNotFoundError("...", name="driftscore.x"))["failed"]
    broken = measure_with(monkeypatch, ValueError("wrong"))
    assert (broken["error"], broken["failed"]) == ("ValueError: wrong", True)


def test_no_place_of_this_machine_is_written():
    assert without_places("at /opt/x/y.py: 3 GFLOP/s") == "at y.py: 3 GFLOP/s"
    assert without_places("https://a.org/b/c") == "https://a.org/b/c"


def test_parts_that_are_not_run_keep_what_they_had(monkeypatch, tmp_path):
    (tmp_path / "bench.json").write_text(json.dumps({"mixing": part(SLOW)}))
    fresh = {**part(FAST), "failed": False}
    monkeypatch.setattr(command, "run_part", lambda name, *, quick: fresh)
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "scoring", "--out", str(tmp_path)])
    assert command.main() == 0
    kept = json.loads((tmp_path / "bench.json").read_text())
    assert list(kept) == ["scoring", "mixing"]  # in the page's order
    assert "NOT MET" in (tmp_path / "bench.md").read_text()


def test_every_part_has_a_title_and_is_a_file():
    for name in parts.part_names():
        assert parts._docstring(name).splitlines()[0].rstrip(".")


def test_a_command_is_watched_for_its_own_memory_and_output(tmp_path):
    held = bytearray(300_000_000)  # of this process, which must not count
    held[::4096] = b"x" * len(held[::4096])
    ran = shell.python("-c", "print('said')", cache=tmp_path)
    assert ran.out == "said\n"
    assert 1 < ran.peak_mb < 100
    with pytest.raises(RuntimeError, match="broken"):
        shell.python("-c", "raise SystemExit('broken')", cache=tmp_path)
