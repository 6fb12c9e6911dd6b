"""Uploads in memory: bounded, expiring."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from driftscore.errors import UsageError
from driftscore.service.memory import MemoryStore


def store_of(
    max_count: int = 10, max_bytes: int = 1000, expiry_s: float = 60.0
) -> MemoryStore[bytes]:
    return MemoryStore("recording", max_count=max_count, max_bytes=max_bytes, expiry_s=expiry_s)


def add(store: MemoryStore[bytes], size: int, key: str = "") -> str:
    return store.add(bytes(size), size, key)


def test_a_recording_is_found_by_its_id_and_ids_differ() -> None:
    store, value = store_of(), bytes(10)
    first, second = store.add(value, 10), add(store, 10)
    assert first != second
    assert len(first) >= 20
    assert store.get(first) is value


def test_the_recording_that_was_not_used_for_longest_makes_room() -> None:
    store = store_of(max_count=2)
    first, second = add(store, 10), add(store, 10)
    store.get(first)
    third = add(store, 10)
    assert len(store) == 2
    assert len(store.get(first)) == len(store.get(third)) == 10
    with pytest.raises(HTTPException, match="give it again"):
        store.get(second)


@given(st.lists(st.integers(1, 100), max_size=40))
def test_the_bytes_of_all_recordings_stay_within_the_bound(lengths: list[int]) -> None:
    store = store_of(max_bytes=400, max_count=5)
    ids = [add(store, length) for length in lengths]
    alive = [one for one in ids if one in store]
    assert sum(len(store.get(one)) for one in alive) <= 400
    assert len(alive) <= 5
    assert alive[-1:] == ids[-1:]


def test_a_recording_that_alone_is_too_large_is_refused_and_costs_no_other() -> None:
    store = store_of(max_bytes=400)
    first = add(store, 50)
    with pytest.raises(UsageError, match="give a shorter one"):
        add(store, 401)
    assert len(store.get(first)) == 50


def test_a_recording_expires_after_its_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    store = store_of(expiry_s=60)
    used, unused = add(store, 10), add(store, 10)
    now = 50.0
    store.get(used)
    now = 70.0
    store.get(used)
    assert len(store) == 1
    with pytest.raises(HTTPException):
        store.get(unused)


def test_a_value_that_is_added_again_under_its_key_is_one_and_the_newest() -> None:
    store = store_of(max_count=2)
    add(store, 10, "a")
    add(store, 10, "b")
    add(store, 20, "a")
    add(store, 10, "c")
    assert "b" not in store
    assert len(store.get("a")) == 20
    assert len(store) == 2
