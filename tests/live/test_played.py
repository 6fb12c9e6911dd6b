"""A file that is played faster than it lasts: nothing of it lies in the future."""

import shutil
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from driftscore.live.sources import PlayedFile


@pytest.mark.parametrize("ending", ["wav", "m4a"])
def test_a_file_that_is_read_at_once_ends_now(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "hour.wav"
    soundfile.write(path, 0.1 * np.random.default_rng(0).standard_normal(600 * 8000), 8000)
    if ending == "m4a":
        if shutil.which("ffmpeg") is None:
            pytest.skip("FFMPEG IS MISSING: apt install ffmpeg")
        subprocess.run(["ffmpeg", "-v", "error", "-i", path, tmp_path / "hour.m4a"], check=True)
        path = tmp_path / "hour.m4a"
    begun = time.monotonic()
    blocks = list(PlayedFile(str(path), speed=0).blocks(threading.Event()))
    first, last = blocks[0], blocks[-1]
    assert first.at == pytest.approx(begun - 600, abs=5)
    assert last.at + len(last.samples) / last.rate <= time.monotonic() + 0.1


def test_a_file_at_the_speed_of_the_clock_begins_now(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", 0.1 * np.ones(8000), 8000)
    begun = time.monotonic()
    first = next(PlayedFile(str(tmp_path / "a.wav")).blocks(threading.Event()))
    assert first.at == pytest.approx(begun, abs=1)
