"""Caches with damaged or foreign rows, locked caches, and who may read them."""

import os
import sqlite3
import stat
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from driftscore import Backbone, build_bank
from driftscore.engines.audio_cache import AudioCache, packed
from driftscore.storage import sqlite
from driftscore.text.cache import TEXTS, TextCache, TextEncoder

from .conftest import LABELS, Counting, WriteWav
from .test_audiocache import embed, embed_cached, settle

ROWS = 64 * 4  # bytes of a vector of the fake backbone
VALUES: dict[str, object] = {
    "null": None,
    "text": "words",
    "number": 3,
    "empty": b"",
    "short": b"\1" * (ROWS - 4),
    "odd": b"\1" * 7,
    "long": b"\1" * (ROWS * 2),
    "zeros": bytes(ROWS),
    "nan": np.full(64, np.nan, "<f4").tobytes(),
    "infinite": np.full(64, np.inf, "<f4").tobytes(),
    "foreign": np.full(64, 0.125, "<f4").tobytes(),
}
COLUMNS = [
    *(("audio_2", name) for name in ("model", "sha256", "spans", "rows", "checksum")),
    *(("files_2", name) for name in ("stamp", "sha256", "checksum")),
]


def overwrite(path: Path, table: str, column: str, value: object) -> None:
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))
    db.close()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", sorted(VALUES))
def test_a_foreign_value_in_the_audio_cache_is_computed_again(
    value: str, counting: Counting, wav: WriteWav
) -> None:
    files = [wav(f"{i}.wav", seconds=1.0, seed=i) for i in range(2)]
    settle(*files)
    plain = embed(files, counting)
    path = AudioCache("").path
    for table, column in COLUMNS:
        embed_cached(files, counting)
        overwrite(path, table, column, VALUES[value])
        for _ in range(2):  # found damaged, stored again, found good
            found, encoded = embed_cached(files, counting)
            for one, two in zip(plain, found, strict=True):
                np.testing.assert_array_equal(one.rows, two.rows)
                np.testing.assert_array_equal(one.spans, two.spans)
        assert encoded == 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", sorted(VALUES))
@pytest.mark.parametrize("column", ["vector", "checksum", "key"])
def test_a_foreign_value_in_the_text_cache_is_computed_again(
    value: str, column: str, counting: Counting, tmp_path: Path
) -> None:
    cache = TextCache(tmp_path / "texts.sqlite")
    expected_rows = TextEncoder(counting)(["dog", "siren"])
    expected = build_bank(LABELS, counting)
    TextEncoder(counting, cache=cache)(["dog", "siren"])
    build_bank(LABELS, counting, cache=cache)
    for table in ("texts_2", "classes_2"):
        overwrite(cache.path, table, column, VALUES[value])
    for _ in range(2):
        counting.texts.clear()
        np.testing.assert_array_equal(
            TextEncoder(counting, cache=cache)(["dog", "siren"]), expected_rows
        )
        found = build_bank(LABELS, counting, cache=cache)
        np.testing.assert_array_equal(found.prototypes, expected.prototypes)
        np.testing.assert_array_equal(found.drifts, expected.drifts)
    assert counting.texts == []


@pytest.mark.filterwarnings("error")
def test_texts_that_are_not_utf_8_in_the_database_are_computed_again(
    counting: Counting, wav: WriteWav
) -> None:
    file = wav()
    settle(file)
    embed_cached([file], counting)
    with sqlite3.connect(AudioCache("").path) as db:
        db.execute("UPDATE files_2 SET stamp = CAST(x'ff00fe' AS TEXT)")
        db.execute("UPDATE audio_2 SET rows = CAST(x'ff00fe' AS TEXT)")
    db.close()
    [found], encoded = embed_cached([file], counting)
    assert encoded > 0
    np.testing.assert_array_equal(found.rows, embed([file], counting)[0].rows)


def test_a_flipped_bit_of_a_stored_embedding_is_noticed(counting: Counting, wav: WriteWav) -> None:
    file = wav()
    settle(file)
    plain = embed([file], counting)[0]
    embed_cached([file], counting)
    path = AudioCache("").path
    for bit in (0, 77, 8 * ROWS - 1):
        with sqlite3.connect(path) as db:
            [(blob,)] = db.execute("SELECT rows FROM audio_2").fetchall()
            changed = bytearray(blob)
            changed[bit // 8] ^= 1 << bit % 8
            db.execute("UPDATE audio_2 SET rows = ?", (bytes(changed),))
        db.close()
        [found], encoded = embed_cached([file], counting)
        assert encoded > 0
        np.testing.assert_array_equal(found.rows, plain.rows)


def test_the_mtime_of_a_file_can_be_restored_and_its_change_is_still_seen(
    counting: Counting, wav: WriteWav
) -> None:
    """As `cp -p`, `rsync -t` and `touch -r` do."""
    file = wav(seed=0)
    settle(file)
    before = Path(file).stat()
    embed_cached([file], counting)
    time.sleep(0.02)
    wav(seed=3)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = Path(file).stat()
    assert (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    [found], encoded = embed_cached([file], counting)
    assert encoded > 0
    np.testing.assert_array_equal(found.rows, embed([file], counting)[0].rows)


def test_a_name_that_is_not_utf_8_is_cached(wav: WriteWav) -> None:
    file = os.fsencode(wav())
    odd = os.fsdecode(file.replace(b".wav", b"\xff.wav"))
    Path(os.fsdecode(file)).rename(odd)
    settle(odd)
    cache = AudioCache("m")
    [found] = cache.look_up([odd])
    windows = packed(np.array([[0.0, 1.0]]), np.ones((1, 4), np.float32))
    cache.put([cache.read(odd, found)._replace(windows=windows)])
    [again] = cache.look_up([odd])
    assert again.windows == windows


def locked(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    return db


def test_a_locked_cache_is_waited_for_a_moment_and_then_not_used(
    counting: Counting, wav: WriteWav, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "WAIT_S", 0.2)
    files = [wav(f"{i}.wav", seconds=1.0, seed=i) for i in range(3)]
    embed_cached(files[:1], counting)
    cache = TextCache(tmp_path / "texts.sqlite")
    cache.put(TEXTS, counting.cache_key, {"a": counting.inner.embed_text(["a"])[0]})
    holders = [locked(AudioCache("").path), locked(cache.path)]
    try:
        with pytest.warns(UserWarning, match=r"The audio cache .*locked.*continuing without it"):
            found, _ = embed_cached(files, counting)
        assert not any(one.error for one in found)
        with pytest.warns(UserWarning, match=r"The text cache .*locked.*continuing") as warned:
            build_bank(LABELS, counting, cache=cache)
        TextEncoder(counting, cache=cache)(["b"])
        assert len(warned) == 1
    finally:
        for holder in holders:
            holder.close()


def test_a_cache_that_is_locked_for_a_moment_is_used(
    fake: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "WAIT_S", 60.0)  # a busy machine may let go late
    cache = TextCache(tmp_path / "texts.sqlite")
    cache.put(TEXTS, "m", {"a": fake.embed_text(["a"])[0]})
    db = sqlite3.connect(cache.path, isolation_level=None, check_same_thread=False)
    db.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.5, db.close)
    release.start()
    assert set(cache.get(TEXTS, "m", ["a"])) == {"a"}
    release.join()


def test_caches_can_be_read_by_their_owner_only(
    counting: Counting, wav: WriteWav, tmp_path: Path
) -> None:
    old = os.umask(0o022)
    try:
        embed_cached([wav()], counting)
        TextEncoder(counting, cache=TextCache())(["dog"])
    finally:
        os.umask(old)
    home = AudioCache("").path.parent
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    for name in ("audio.sqlite", "texts.sqlite"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600


def test_a_cache_that_is_no_file_is_not_waited_for(fake: Backbone, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "texts.sqlite")
    with pytest.warns(UserWarning, match="not a regular file"):
        TextEncoder(fake, cache=TextCache(tmp_path / "texts.sqlite"))(["dog"])


def test_embeddings_that_are_not_finite_are_never_stored(tmp_path: Path) -> None:
    cache = TextCache(tmp_path / "texts.sqlite")
    rows = np.array([[np.nan, 1], [0, 0], [3, 4]], np.float32)
    cache.put(TEXTS, "m", dict(zip("abc", rows, strict=True)))
    assert set(cache.get(TEXTS, "m", ["a", "b", "c"])) == {"c"}


def test_a_cache_is_usable_after_a_fork_and_after_the_caches_were_cleared(tmp_path: Path) -> None:
    cache = TextCache(tmp_path / "texts.sqlite")
    row = np.array([0.6, 0.8], np.float32)
    cache.put(TEXTS, "m", {"parent": row})
    with cache._file._lock:  # as if another thread used it at the moment of the fork
        child = os.fork()
        if child == 0:
            cache.put(TEXTS, "m", {"child": row})
            os._exit(
                0 if set(cache.get(TEXTS, "m", ["parent", "child"])) == {"parent", "child"} else 1
            )
    assert os.waitpid(child, 0)[1] == 0
    assert set(cache.get(TEXTS, "m", ["parent", "child"])) == {"parent", "child"}
    cache.path.unlink()
    cache.put(TEXTS, "m", {"again": row})
    assert set(cache.get(TEXTS, "m", ["parent", "again"])) == {"again"}
