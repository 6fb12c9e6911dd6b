"""A short soak with faults: what `python -m bench.soak --faults` does for hours."""

import shutil
from pathlib import Path

import pytest

from bench.faults import run, unlike_the_scene
from bench.memory_slope import MemoryLog, MemoryRow

needs_broker = pytest.mark.skipif(
    (shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")) is None,
    reason="MOSQUITTO IS MISSING: apt install mosquitto",
)


@pytest.mark.slow
@needs_broker
def test_nothing_is_lost_or_doubled_while_things_break(tmp_path: Path) -> None:
    result = run(tmp_path, minutes=0.6, speed=20, sources=4, every_s=4.0, out=tmp_path)
    assert result["faults"].keys() >= {"broker", "kill", "disk"}
    assert result["events"] > 0
    assert set(result["lost"].values()) == {0}
    assert set(result["doubled"].values()) == {0}
    assert result["wrong"] == 0
    assert (result["status"], result["store"], result["waiting"]) == (0, "ok", 0)
    assert result["tracebacks"] == 0


def test_a_lost_or_doubled_event_is_not_the_scene() -> None:
    scene = [("siren", 7.1), ("bell", 5.5), ("siren", 7.2), ("bell", 5.6), ("dog", 3.0)]
    cut = ("siren", 6.0)
    assert unlike_the_scene([scene, [*scene[:2], cut, *scene[:3]]]) == (0, 3)
    assert unlike_the_scene([scene, [scene[0], *scene[2:]]])[0] > 0
    assert unlike_the_scene([scene, [*scene[:2], scene[1], *scene[2:]]])[0] > 0


def test_the_slope_of_memory_leaves_out_the_warm_up_and_the_offset_of_each_life(
    tmp_path: Path,
) -> None:
    log = MemoryLog(tmp_path / "memory.csv", sources=4)
    for life, offset_mb in ((1, 300.0), (2, 350.0)):
        for number in range(40):
            hours = number / 10
            memory_mb = offset_mb + 50 * min(1.0, hours) + 0.2 * max(0.0, hours - 1.0)
            log.add(MemoryRow(life, 10.0 * number, hours, memory_mb, 12))
    log.close()
    summary = log.summary()
    assert summary["slope_mb_per_audio_hour"] == pytest.approx(0.2)
    assert summary["slope_rests_on_audio_hours"] == pytest.approx(2 * 2.8)
    assert summary["descriptors"] == [12, 12]
    with open(tmp_path / "memory.csv", encoding="utf-8") as file:
        assert len(file.readlines()) == 81


def test_a_life_that_is_too_short_has_no_slope(tmp_path: Path) -> None:
    log = MemoryLog(tmp_path / "memory.csv", sources=1)
    log.add(MemoryRow(1, 2.0, 0.1, 300.0, 12))
    log.close()
    assert log.summary()["slope_mb_per_audio_hour"] is None
