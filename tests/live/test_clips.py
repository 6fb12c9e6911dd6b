"""Clips: what is kept in memory, what is written, and what is deleted."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from driftscore import Audio
from driftscore.errors import UsageError
from driftscore.live.clips import MAX_LENGTH_S, AudioRing, EventClips, slug, span

from .scenes import stored

DAY = 86_400.0
START = datetime(2026, 11, 16, 2, 10, 3, tzinfo=UTC)


def test_the_ring_returns_what_it_keeps_and_forgets_the_rest() -> None:
    ring = AudioRing(100, seconds=2.0)
    samples = (np.arange(1000) / 1000).astype(np.float32)
    for first in range(0, 1000, 30):
        ring.add(samples[first : first + 30])
    np.testing.assert_array_equal(ring.cut(8.5, 9.5).samples, samples[850:950])
    assert len(ring.cut(0, 5).samples) == 0
    np.testing.assert_array_equal(ring.cut(7.0, 99).samples[-100:], samples[900:])
    np.testing.assert_array_equal(ring.cut(0, 99).samples, samples[800:])
    ring.add(samples)  # a block that is longer than the ring
    np.testing.assert_array_equal(ring.cut(18.5, 99).samples, samples[850:])


@given(st.floats(0, 200), st.floats(0, 200), st.floats(0, 20))
def test_a_clip_is_never_longer_than_asked_for(start: float, length: float, later: float) -> None:
    now = start + length + later
    first, last = span(start, start + length, now, 3)
    assert first >= 0
    assert last - first <= MAX_LENGTH_S + 1e-9
    assert last <= now
    if now - start < 80:
        assert first == max(0, start - 3)


def clip(folder: EventClips, label: str, id: int, day: int = 16) -> str:
    start = START.replace(day=day)
    event = stored(id, label, "yard", start=start)
    return folder.write(Audio(np.zeros(100, np.float32), 16_000), event)


def test_a_clip_is_a_private_flac_in_the_folder_of_its_day(tmp_path: Path) -> None:
    folder = EventClips(str(tmp_path))
    inside = clip(folder, "Hundegebell / Größe", 42)
    assert inside == "2026-11-16/driftscore_20261116T021003Z_yard__hundegebell_groe_42.flac"
    assert (tmp_path / inside).stat().st_mode & 0o077 == 0
    assert soundfile.info(tmp_path / inside).subtype == "PCM_16"


def test_old_clips_are_deleted_and_nothing_else(tmp_path: Path) -> None:
    folder = EventClips(str(tmp_path), keep_days=7)
    old, new = clip(folder, "dog bark", 1, day=1), clip(folder, "dog bark", 2)
    strangers = [
        tmp_path / "notes.txt", tmp_path / "2026-11-01" / "holiday.flac",
        tmp_path / "driftscore_20261101T000000Z_yard__dog_bark_9.flac",
        tmp_path / "music" / "driftscore_20261101T000000Z_yard__dog_bark_9.flac",
    ]  # fmt: skip
    for path in strangers:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    link = tmp_path / "2026-11-01" / "driftscore_20261101T000000Z_yard__dog_bark_8.flac"
    link.symlink_to(strangers[0])
    long_ago = time.time() - 30 * DAY
    for path in (tmp_path / old, *strangers):
        os.utime(path, (long_ago, long_ago))
    assert folder.tidy(now=time.time()) == 1
    assert not (tmp_path / old).exists()
    assert (tmp_path / new).exists()
    assert link.is_symlink()
    assert all(path.exists() for path in strangers)


def test_a_full_disk_deletes_the_oldest_but_keeps_some_of_each_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = EventClips(str(tmp_path), disk_share=0.8)
    many = [clip(folder, "dog bark", n, day=1 + n) for n in range(15)]
    few = [clip(folder, "siren", n, day=1 + n) for n in range(3)]
    monkeypatch.setattr("driftscore.live.clips.disk_share", lambda _: 0.9)
    assert folder.tidy(now=time.time()) == 5
    assert [(tmp_path / path).exists() for path in many] == [False] * 5 + [True] * 10
    assert all((tmp_path / path).exists() for path in few)
    monkeypatch.setattr("driftscore.live.clips.disk_share", lambda _: 0.5)
    clip(folder, "dog bark", 99)
    assert folder.tidy(now=time.time()) == 0


def test_clips_are_looked_through_seldom(tmp_path: Path) -> None:
    folder = EventClips(str(tmp_path), keep_days=1)
    folder.tidy()
    old = clip(folder, "dog bark", 1)
    os.utime(tmp_path / old, (0, 0))
    assert folder.tidy() == 0
    assert folder.tidy(now=time.time()) == 1


@pytest.mark.parametrize("wrong", [{"pre_roll_s": -1}, {"disk_share": 2.0}, {"keep_days": 0.0}])
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        EventClips(str(tmp_path), **wrong)


def test_a_slug_is_ascii() -> None:
    assert slug("Dog bark!") == "dog_bark"
    assert slug("犬") == "x"
