"""The page's recordings: bounded, expiring, in memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftscore import Audio
from driftscore.errors import UsageError
from driftscore.service.page_clips import ClipGoneError, ClipStore, loudest_start_s, part


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def clip(samples: int) -> Audio:
    return Audio(np.full(samples, 0.5, np.float32), 1000)


def test_a_recording_is_found_by_its_id_and_ids_differ() -> None:
    store = ClipStore()
    first, second = store.add(clip(10), "a.wav"), store.add(clip(10), "b.wav")
    assert first.id != second.id
    assert len(first.id) >= 20
    assert store.get(first.id).name == "a.wav"


def test_the_recording_that_was_not_used_for_longest_makes_room() -> None:
    store = ClipStore(most_clips=2)
    first, second = store.add(clip(10)), store.add(clip(10))
    store.get(first.id)
    third = store.add(clip(10))
    assert len(store) == 2
    assert {store.get(first.id).id, store.get(third.id).id} == {first.id, third.id}
    with pytest.raises(ClipGoneError, match="give it again"):
        store.get(second.id)


@given(st.lists(st.integers(1, 100), max_size=40))
def test_the_bytes_of_all_recordings_stay_within_the_bound(lengths: list[int]) -> None:
    store = ClipStore(most_bytes=400, most_clips=5)
    kept = [store.add(clip(length)) for length in lengths]
    alive = [one for one in kept if one.id in store._clips]
    assert sum(one.audio.samples.nbytes for one in alive) <= 400
    assert len(alive) <= 5
    if kept:
        assert alive[-1] is kept[-1]


def test_a_recording_that_alone_is_too_large_is_refused_and_costs_no_other() -> None:
    store = ClipStore(most_bytes=400)
    first = store.add(clip(50))
    with pytest.raises(UsageError, match="give a shorter one"):
        store.add(clip(101))
    assert store.get(first.id) is first


def test_a_recording_expires_after_its_last_use() -> None:
    clock = Clock()
    store = ClipStore(expiry_s=60, clock=clock)
    used, unused = store.add(clip(10)), store.add(clip(10))
    clock.now = 50
    store.get(used.id)
    clock.now = 70
    assert store.get(used.id) is used
    assert len(store) == 1
    with pytest.raises(ClipGoneError):
        store.get(unused.id)


def test_a_removed_recording_is_gone() -> None:
    store = ClipStore()
    one = store.add(clip(10))
    store.remove(one.id)
    store.remove(one.id)
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
