"""The page's recordings: bounded, expiring, in memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from driftscore import Audio
from driftscore.errors import UsageError
from driftscore.service.page_clips import ClipStore, loudest_start_s, part


def clip(samples: int) -> Audio:
    return Audio(np.full(samples, 0.5, np.float32), 1000)


def store_of(**bounds: float) -> ClipStore:
    store = ClipStore()
    vars(store).update(bounds)
    return store


def test_a_recording_is_found_by_its_id_and_ids_differ() -> None:
    store, audio = ClipStore(), clip(10)
    first, second = store.add(audio), store.add(clip(10))
    assert first != second
    assert len(first) >= 20
    assert store.get(first) is audio


def test_the_recording_that_was_not_used_for_longest_makes_room() -> None:
    store = store_of(max_clips=2)
    first, second = store.add(clip(10)), store.add(clip(10))
    store.get(first)
    third = store.add(clip(10))
    assert len(store) == 2
    assert len(store.get(first).samples) == len(store.get(third).samples) == 10
    with pytest.raises(HTTPException, match="give it again"):
        store.get(second)


@given(st.lists(st.integers(1, 100), max_size=40))
def test_the_bytes_of_all_recordings_stay_within_the_bound(lengths: list[int]) -> None:
    store = store_of(max_bytes=400, max_clips=5)
    ids = [store.add(clip(length)) for length in lengths]
    alive = [one for one in ids if one in store._clips]
    assert sum(store.get(one).samples.nbytes for one in alive) <= 400
    assert len(alive) <= 5
    assert alive[-1:] == ids[-1:]


def test_a_recording_that_alone_is_too_large_is_refused_and_costs_no_other() -> None:
    store = store_of(max_bytes=400)
    first = store.add(clip(50))
    with pytest.raises(UsageError, match="give a shorter one"):
        store.add(clip(101))
    assert len(store.get(first).samples) == 50


def test_a_recording_expires_after_its_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    store = store_of(expiry_s=60)
    used, unused = store.add(clip(10)), store.add(clip(10))
    now = 50.0
    store.get(used)
    now = 70.0
    store.get(used)
    assert len(store) == 1
    with pytest.raises(HTTPException):
        store.get(unused)


def test_a_removed_recording_is_gone() -> None:
    store = ClipStore()
    one = store.add(clip(10))
    store.remove(one)
    store.remove(one)
    assert len(store) == 0


@given(st.integers(1, 5000), st.floats(-10, 100), st.integers(1, 40))
def test_a_part_lies_within_the_recording(length: int, start_s: float, tenths: int) -> None:
    audio = Audio((np.arange(length) / 5000).astype(np.float32), 1000)
    found = part(audio, start_s, tenths / 10)
    assert len(found.samples) == min(length, tenths * 100)
    np.testing.assert_array_equal(np.diff(found.samples).round(5), np.float32(0.0002))


def test_the_loudest_part_is_found() -> None:
    samples = np.full(30_000, 0.01, np.float32)
    samples[17_000:21_000] = 0.5
    assert loudest_start_s(Audio(samples, 1000), 4.0) == pytest.approx(17.0)
    assert loudest_start_s(Audio(samples, 1000), 30.0) == 0.0
