"""A short soak with faults: what `python -m bench.soak --faults` does for hours."""

import shutil
from pathlib import Path

import pytest

from bench.faults import run, unlike_the_scene

needs_broker = pytest.mark.skipif(
    (shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")) is None,
    reason="MOSQUITTO IS MISSING: apt install mosquitto",
)


@pytest.mark.slow
@needs_broker
def test_nothing_is_lost_or_doubled_while_things_break(tmp_path: Path) -> None:
    result = run(tmp_path, minutes=0.6, speed=20, sources=4, every_s=4.0)
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
