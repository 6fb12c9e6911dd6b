"""The page of `make bench`, from figures that are made up here. Nothing is timed."""

import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import cast

import numpy as np
import pytest

from bench import __main__ as command
from bench import figures, parts, shell
from bench.figures import Figure, NotHereError, Spread, in_turns
from bench.machine import without_places
from bench.page import number, page, times
from bench.pictures import pictures_of, write_pictures
from bench.records import FigureRecord, Measured, PartRecord, Results, SpreadRecord

from .conftest import PROJECT, WriteWav


def part(*found: Figure, error: str = "", quick: bool = False) -> PartRecord:
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
        "figures": [cast(FigureRecord, asdict(figure)) for figure in found],
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
    "growth", Spread(3, 3, 3, 1), "ms per clip",
    details={"clips": [1, 10], "ms_per_clip": [3.0, 3.1], "ms_per_clip_low": [2.9, 3.0],
             "ms_per_clip_high": [3.2, 3.3], "peak_mb": [100.0, 101.0]},
)  # fmt: skip


@pytest.fixture
def results() -> Results:
    found = {"a": part(FAST), "b": part(SLOW), "c": part(error="torch is not installed")}
    return cast(Results, json.loads(json.dumps(found)))


def test_the_page_says_which_bars_are_met(results: Results) -> None:
    bars = page(results).split("## Machines")[0].splitlines()
    fast, slow, absent = bars[-4:-1] if bars[-1] == "" else bars[-3:]
    assert "| a peer | >= 10x | 10.4x (10.1 to 10.9) | met |" in fast
    assert "| < 5 s | 7.25 s | **NOT MET** |" in slow
    assert "could not run: torch is not installed | NOT MEASURED" in absent


def test_a_section_has_times_notes_and_its_command(results: Results) -> None:
    text = page(results)
    assert "| fast work | 1.23 ms (1.20 to 1.30) | a peer | 12.9 ms (12.0 to 13.0) |" in text
    assert "- fast work: equal to 1e-12" in text
    assert "`python -m bench --only some`: 3 s, one thread." in text
    assert "A CPU, 2 cores, 8 GB, Linux; python 3.11.7, numpy 2.0" in text


def test_a_trial_is_marked_as_one(results: Results) -> None:
    assert "These are not the figures" not in page(results)
    assert "These are not the figures" in page({**results, "b": part(SLOW, quick=True)})


def test_the_page_shows_a_picture_only_if_its_figures_exist(
    results: Results, tmp_path: Path
) -> None:
    assert not pictures_of(results)
    drawn = {**results, "a": part(STEPS), "growth": part(GROWTH)}
    assert write_pictures(drawn, tmp_path) == ["bench-clip.svg", "bench-growth.svg"]
    first = (tmp_path / "bench-growth.svg").read_bytes()
    assert "(bench-clip.svg)" in page(drawn)
    write_pictures(drawn, tmp_path)
    assert (tmp_path / "bench-growth.svg").read_bytes() == first


def test_numbers_have_about_three_digits() -> None:
    assert [number(v) for v in (12_345.6, 123.4, 12.34, 1.234, 0.1234, 4e-9)] == [
        "12,346", "123", "12.3", "1.23", "0.123", "4.0e-09",
    ]  # fmt: skip
    close: SpreadRecord = {"median": 0.999, "low": 0.975, "high": 1.038, "turns": 41}
    assert times(close) == "0.999x (0.975 to 1.038)"


def test_turns_alternate_their_order() -> None:
    called: list[str] = []
    runs = {name: partial(called.append, name) for name in "ab"}
    seconds = in_turns(runs, 3)
    assert "".join(called) == "ab" + "ab" + "ba" + "ab"
    assert [len(values) for values in seconds.values()] == [3, 3]


def test_a_ratio_is_taken_per_turn_and_not_of_the_medians() -> None:
    assert figures.ratio([2.0, 4.0, 90.0], [1.0, 1.0, 30.0]).median == 3.0


def measure_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> Measured:
    def measure(*, quick: bool) -> list[Figure]:
        raise error

    monkeypatch.setitem(sys.modules, "bench.scoring", ModuleType("bench.scoring"))
    monkeypatch.setattr(sys.modules["bench.scoring"], "measure", measure, raising=False)
    return parts.measure_part("scoring", quick=True)


def test_a_part_that_cannot_run_says_why_and_a_broken_one_counts_as_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absent = measure_with(monkeypatch, NotHereError("no scaper at /home/me/env/bin/python"))
    assert (absent["error"], absent["failed"]) == ("no scaper at python", False)
    missing = measure_with(monkeypatch, ModuleNotFoundError("...", name="torch"))
    assert (missing["error"], missing["failed"]) == ("torch is not installed", False)
    assert measure_with(monkeypatch, ModuleNotFoundError("...", name="driftscore.x"))["failed"]
    broken = measure_with(monkeypatch, ValueError("wrong"))
    assert (broken["error"], broken["failed"]) == ("ValueError: wrong", True)


def test_no_path_of_this_machine_is_written() -> None:
    assert without_places("at /opt/x/y.py: 3 GFLOP/s") == "at y.py: 3 GFLOP/s"
    assert without_places("https://a.org/b/c") == "https://a.org/b/c"


def test_parts_that_are_not_run_keep_their_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bench.json").write_text(json.dumps({"mixing": part(SLOW)}))
    monkeypatch.setattr(command, "run_part", lambda name, *, quick: (part(FAST), False))
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "scoring", "--out", str(tmp_path)])
    assert command.main() == 0
    kept = json.loads((tmp_path / "bench.json").read_text())
    assert list(kept) == ["scoring", "mixing"]  # in the page's order
    assert "NOT MET" in (tmp_path / "bench.md").read_text()


def test_every_part_has_a_title_and_a_description() -> None:
    assert set(parts._FIRST) <= set(parts.part_names())
    for name in parts.part_names():
        assert all(parts.describe_part(name))


def test_a_part_says_itself_how_many_threads_it_uses() -> None:
    assert (parts.thread_count("scoring"), parts.thread_count("texts")) == (1, None)


def test_the_page_in_the_repository_is_that_of_its_figures_and_files() -> None:
    kept = json.loads((PROJECT / "docs" / "bench.json").read_text(encoding="utf-8"))
    for name, record in kept.items():
        assert (record["title"], record["about"]) == parts.describe_part(name)
    assert page(kept) == (PROJECT / "docs" / "bench.md").read_text(encoding="utf-8")


def test_the_memory_of_a_command_is_measured_without_that_of_its_parent(tmp_path: Path) -> None:
    held = bytearray(300_000_000)  # memory of this process, which must not count
    held[::4096] = b"x" * len(held[::4096])
    ran = shell.python("-c", "print('said')", cache=tmp_path)
    assert ran.out == "said\n"
    assert 1 < ran.peak_mb < 100
    with pytest.raises(RuntimeError, match="broken"):
        shell.python("-c", "raise SystemExit('broken')", cache=tmp_path)


def test_yamnet_gets_windows_that_cover_a_clip() -> None:
    from bench.peers import YAMNET_FRAME, YAMNET_HOP, yamnet_frames

    clip = np.arange(10 * 16_000, dtype=np.float32)
    frames = yamnet_frames(clip, YAMNET_HOP)
    assert {len(frame) for frame in frames} == {YAMNET_FRAME}
    assert [int(frame[0]) for frame in frames] == [YAMNET_HOP * i for i in range(20)]
    assert int(frames[-1].max()) == len(clip) - 1
    assert np.array_equal(np.concatenate(yamnet_frames(clip, YAMNET_FRAME))[: len(clip)], clip)
    assert len(yamnet_frames(clip[:100], YAMNET_HOP)) == 1


def test_yamnet_gives_the_mean_of_its_windows_scores(
    monkeypatch: pytest.MonkeyPatch, wav: WriteWav, tmp_path: Path
) -> None:
    from bench.peers import yamnet

    class Interpreter:
        """Scores of a window: its first sample and the number of samples."""

        def __init__(self, file: str, num_threads: int) -> None:
            assert num_threads == 1

        def allocate_tensors(self) -> None: ...
        def invoke(self) -> None: ...
        def get_input_details(self) -> list[dict[str, int]]:
            return [{"index": 3}]

        def get_output_details(self) -> list[dict[str, int]]:
            return [{"index": 7}]

        def set_tensor(self, index: int, value: np.typing.NDArray[np.float32]) -> None:
            assert (index, value.shape) == (3, (1, 15_600))
            self.value = value

        def get_tensor(self, index: int) -> np.typing.NDArray[np.float32]:
            assert index == 7
            return np.array([[self.value.max(), self.value.size]], np.float32)

    module = ModuleType("ai_edge_litert.interpreter")
    monkeypatch.setattr(module, "Interpreter", Interpreter, raising=False)
    monkeypatch.setitem(sys.modules, "ai_edge_litert", ModuleType("ai_edge_litert"))
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", module)
    path = Path(wav())
    with pytest.raises(NotHereError, match="no TFLite file"):
        yamnet(str(tmp_path / "absent.tflite"), 7_680)
    (tmp_path / "yamnet.tflite").write_bytes(b"")
    found = np.asarray(yamnet(str(tmp_path / "yamnet.tflite"), 7_680)(path))
    assert found[1] == 15_600
    assert 0 < found[0] <= 1


def test_a_run_can_be_timed_by_the_processors_clock() -> None:
    ticks = iter(range(100))
    seconds = in_turns({"a": lambda: next(ticks)}, 3, warm=False, clock=lambda: next(ticks))
    assert seconds == {"a": [2, 2, 2]}


def test_commands_are_timed_with_compiled_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    ran = shell.python("-c", "import sys; print(sys.dont_write_bytecode)", cache=tmp_path)
    assert ran.out.strip() == "False"
