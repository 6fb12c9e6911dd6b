"""Loudness: measured as Scaper measures it, once per sound, and cached on disk."""

import math
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from driftscore.audio.recordings import Samples
from driftscore.lab.mixing.loudness import LoudnessMeter, integrated_loudness

from .test_mixing import RATE, noise


def test_a_sound_shorter_than_half_a_second_is_as_loud_as_its_repetition() -> None:
    for seconds, times in ((0.2, 3), (0.3, 2), (0.45, 2)):
        short = noise(seconds, seed=4).audio.samples
        assert integrated_loudness(short, RATE) == integrated_loudness(np.tile(short, times), RATE)


def test_loudness_is_measured_once_per_sound_and_cached_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from driftscore.lab.mixing import loudness

    calls: list[int] = []

    def counted(samples: Samples, rate: int) -> float:
        calls.append(rate)
        return integrated_loudness(samples, rate)

    monkeypatch.setattr(loudness, "integrated_loudness", counted)
    sound = noise(1).audio
    first = LoudnessMeter(tmp_path / "loudness.sqlite")
    value = first(sound.samples, RATE)
    assert first(sound.samples.copy(), RATE) == value
    assert LoudnessMeter(tmp_path / "loudness.sqlite")(sound.samples, RATE) == value
    assert calls == [RATE]
    assert first(sound.samples, 2 * RATE) != value
    assert calls == [RATE, 2 * RATE]


def test_a_damaged_loudness_cache_causes_a_warning_only(tmp_path: Path) -> None:
    (tmp_path / "loudness.sqlite").write_bytes(b"not a database" * 100)
    meter, sound = LoudnessMeter(tmp_path / "loudness.sqlite"), noise(1).audio
    with pytest.warns(UserWarning, match="cannot be used"):
        value = meter(sound.samples, RATE)
    assert value == integrated_loudness(sound.samples, RATE)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [None, "words", "-20", b"", -20, -20.0, math.inf, math.nan])
@pytest.mark.parametrize("column", ["lufs", "checksum"])
def test_a_foreign_value_in_the_loudness_cache_is_measured_again(
    column: str, value: object, tmp_path: Path
) -> None:
    path, sound = tmp_path / "loudness.sqlite", noise(1).audio
    true = LoudnessMeter(path)(sound.samples, RATE)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE loudness_2 SET {column} = ?", (value,))
    assert LoudnessMeter(path)(sound.samples, RATE) == true
    with closing(sqlite3.connect(path)) as db:
        ((stored,),) = db.execute("SELECT lufs FROM loudness_2").fetchall()
    assert stored == true


def test_only_its_owner_can_read_the_loudness_cache(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "loudness.sqlite"
    LoudnessMeter(path)(noise(1).audio.samples, RATE)
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_loudness_of_a_known_sine_is_its_level() -> None:
    # BS.1770: a full-scale sine of 997 Hz in one channel reads -3.01 LUFS.
    sine = np.sin(2 * np.pi * 997 * np.arange(48_000 * 2) / 48_000).astype(np.float32)
    assert integrated_loudness(sine, 48_000) == pytest.approx(-3.01, abs=0.05)
    assert integrated_loudness(np.zeros(48_000, np.float32), 48_000) == -70


def test_without_pyloudnorm_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyloudnorm", None)
    with pytest.raises(ImportError, match=r"pip install '.*\[lab\]'"):
        integrated_loudness(np.ones(RATE, np.float32), RATE)
