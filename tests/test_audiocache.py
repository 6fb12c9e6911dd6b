"""The audio cache: by content, never stale, and never in the way."""

import errno
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftscore import Audio, Backbone, Classifier, Embedded, Embedder, Head, load_backbone
from driftscore.audio.recordings import Recording, Window
from driftscore.backbones.vectors import Scores
from driftscore.engines import local
from driftscore.engines.audio_cache import AudioCache

from .conftest import LABELS, Counting, WriteWav, noise_clip


def settle(*paths: str) -> None:
    """Make files look as if they had not changed for an hour."""
    hour_ago = time.time() - 3600
    for path in paths:
        os.utime(path, (hour_ago, hour_ago))


def embed(
    recordings: Iterable[Recording], model: Backbone, *, threads: int | None = None
) -> list[Embedded]:
    """Embed without the cache."""
    with Embedder(model, threads=threads) as embedder:
        return list(embedder.embed(recordings))


def embed_cached(
    recordings: Iterable[Recording], model: Counting, *, threads: int | None = None
) -> tuple[list[Embedded], int]:
    """Embed with the cache; return the results and how many windows were encoded."""
    model.windows = 0
    with Embedder(model, audio_cache=True, threads=threads) as embedder:
        return list(embedder.embed(recordings)), model.windows


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "driftscore.engines.local.sounding_windows",
        "driftscore.engines.audio_cache.audio_digest",
    ):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("the audio was read"))


def test_the_second_time_nothing_is_read_and_every_bit_is_the_same(
    counting: Counting, wav: WriteWav, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [wav(f"{i}.wav", seconds=1.5 + i, seed=i) for i in range(5)]
    settle(*files)
    plain = embed(files, counting)
    first, encoded = embed_cached(files, counting)
    assert encoded == sum(len(one.rows) for one in plain)
    forbid_reading(monkeypatch)
    second, encoded = embed_cached(files, counting, threads=4)
    assert encoded == 0
    for one, two, three in zip(plain, first, second, strict=True):
        for other in (two, three):
            assert (one.source, one.seconds) == (other.source, other.seconds)
            np.testing.assert_array_equal(one.rows, other.rows)
            np.testing.assert_array_equal(one.spans, other.spans)
            np.testing.assert_array_equal(one.embedding, other.embedding)


def test_new_labels_are_scored_from_the_cache_as_well(
    counting: Counting, wav: WriteWav, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = wav(seconds=7.0)
    settle(file)
    expected = Classifier(LABELS, backbone=counting).predict([file])
    with Embedder(counting, audio_cache=True) as embedder:
        classifier = Classifier(LABELS, backbone=embedder)
        assert classifier.predict([file]) == expected
        forbid_reading(monkeypatch)
        assert classifier.predict([file]) == expected
        assert classifier.set_params(labels=["rain", "dog"]).predict([file])[0] in ("rain", "dog")


def test_the_same_content_under_another_name_is_found(
    counting: Counting, wav: WriteWav, tmp_path: Path
) -> None:
    file = wav()
    embed_cached([file], counting)
    copy = tmp_path / "copy.wav"
    copy.write_bytes(Path(file).read_bytes())
    [found], encoded = embed_cached([copy], counting)
    assert encoded == 0
    assert found.source == str(copy)


def test_a_changed_file_is_embedded_again(counting: Counting, wav: WriteWav) -> None:
    file = wav(seed=0)
    settle(file)
    embed_cached([file], counting)
    assert wav(seed=3) == file  # the same size, another time
    [found], encoded = embed_cached([file], counting)
    assert encoded > 0
    np.testing.assert_array_equal(found.rows, embed([file], counting)[0].rows)


def test_a_file_changed_a_moment_ago_is_not_known_by_its_stamp(
    counting: Counting, wav: WriteWav
) -> None:
    """Its size and its time may stay the same when it is written to again."""
    file = wav(seed=0)
    stamp = Path(file).stat()
    embed_cached([file], counting)
    wav(seed=3)
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    _, encoded = embed_cached([file], counting)
    assert encoded > 0


def test_a_file_that_is_written_to_while_it_is_read_is_not_stored(
    counting: Counting, wav: WriteWav, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether what was embedded is the content that was hashed."""
    file = wav()
    settle(file)
    real = local.sounding_windows  # type: ignore[attr-defined]

    def disturbed(recording: str, *, rate: int, seconds: float) -> Iterator[Window]:
        yield from real(recording, rate=rate, seconds=seconds)
        os.utime(recording)

    monkeypatch.setattr(local, "sounding_windows", disturbed)
    assert embed_cached([file], counting)[1] > 0
    settle(file)
    assert embed_cached([file], counting)[1] > 0


def test_models_and_runtimes_do_not_share_rows(fake: Backbone, wav: WriteWav) -> None:
    file = wav()
    embed_cached([file], Counting(fake))
    other = Counting(load_backbone("fake", seed=1))
    assert embed_cached([file], other)[1] > 0
    runtime = Counting(fake)
    runtime.key = "fake/another-runtime"
    assert embed_cached([file], runtime)[1] > 0
    assert embed_cached([file], Counting(fake))[1] == 0


def test_errors_pairs_and_open_files_are_not_stored(
    counting: Counting, wav: WriteWav, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_text("no sound")
    pair = (noise_clip(1.0).samples, 16_000)
    with open(wav(), "rb") as handle:
        recordings: list[Recording] = [bad, pair, handle, tmp_path / "gone.wav"]
        found, _ = embed_cached(recordings, counting)
    assert [bool(one.error) for one in found] == [True, False, False, True]
    with sqlite3.connect(AudioCache("").path) as db:
        assert db.execute("SELECT count(*) FROM audio_2").fetchone() == (0,)


def test_samples_are_stored_by_their_content_and_rate(counting: Counting) -> None:
    clip = noise_clip(3.0)
    expected = embed([clip], counting)[0]
    assert embed_cached([clip], counting)[1] == 2
    [found], encoded = embed_cached([Audio(clip.samples.copy(), clip.rate)], counting)
    assert encoded == 0
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_array_equal(found.spans, expected.spans)
    assert embed_cached([Audio(clip.samples, 8_000)], counting)[1] > 0
    assert embed_cached([Audio(-clip.samples, clip.rate)], counting)[1] > 0
    with sqlite3.connect(AudioCache("").path) as db:
        assert db.execute("SELECT count(*) FROM files_2").fetchone() == (0,)


@pytest.mark.parametrize("harm", ["damaged", "unwritable"])
def test_a_cache_that_cannot_be_used_is_reported_once_and_not_used(
    counting: Counting, wav: WriteWav, tmp_path: Path, harm: str
) -> None:
    if harm == "damaged":
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / "audio.sqlite").write_bytes(b"not a database" * 100)
    else:
        (tmp_path / "cache").write_text("a file where a folder should be")
    files = [wav(f"{i}.wav", seed=i) for i in range(3)]
    with pytest.warns(UserWarning, match=r"The audio cache .* cannot be used") as warned:
        found, _ = embed_cached(files, counting)
    assert len(warned) == 1
    for one, path in zip(found, files, strict=True):
        np.testing.assert_array_equal(one.rows, embed([path], counting)[0].rows)


def test_a_filled_cache_on_a_read_only_disk_is_read(
    counting: Counting, wav: WriteWav, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = wav("old.wav", seed=1), wav("new.wav", seed=2)
    first, windows = embed_cached([old], counting)
    content = (tmp_path / "cache" / "audio.sqlite").read_bytes()

    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("driftscore.storage.sqlite.os.open", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again, encoded = embed_cached([old, new], counting)
    assert encoded == windows  # of the new one
    np.testing.assert_array_equal(again[0].rows, first[0].rows)
    assert (tmp_path / "cache" / "audio.sqlite").read_bytes() == content


def test_several_users_share_it(counting: Counting, wav: WriteWav) -> None:
    files = [wav(f"{i}.wav", seconds=1.0, seed=i) for i in range(30)]
    failures: list[Exception] = []

    def run(order: list[str]) -> None:
        try:
            with Embedder(counting, audio_cache=True, threads=2) as embedder:
                list(embedder.embed(order))
        except Exception as error:
            failures.append(error)

    users = [threading.Thread(target=run, args=(files[i:] + files[:i],)) for i in range(0, 30, 10)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert not failures
    assert embed_cached(files, counting)[1] == 0


def test_what_was_embedded_before_a_stop_is_stored(counting: Counting, wav: WriteWav) -> None:
    files = [wav(f"{i}.wav", seconds=1.0, seed=i) for i in range(20)]
    with Embedder(counting, audio_cache=True, threads=1) as embedder:
        stream: Any = embedder.embed(files)
        for _ in range(5):
            next(stream)
        stream.close()
    assert embed_cached(files[:5], counting)[1] == 0


def test_long_recordings_are_not_all_fetched_at_once(
    counting: Counting, wav: WriteWav, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [wav(f"{i}.wav", seconds=4.0, seed=i) for i in range(12)]
    settle(*files)
    expected, _ = embed_cached(files, counting)
    monkeypatch.setattr("driftscore.engines.audio_cache._MAX_BYTES", 5 * 3 * 64 * 4)  # five of them
    cache = AudioCache(counting.cache_key)
    assert sum(one.windows is not None for one in cache.look_up(files)) == 5
    forbid_reading(monkeypatch)
    for one, two in zip(expected, embed_cached(files, counting)[0], strict=True):
        np.testing.assert_array_equal(one.rows, two.rows)


def test_known_recordings_do_not_pile_up_behind_a_slow_one(
    counting: Counting, wav: WriteWav, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "BLOCK", 4)
    known = wav("known.wav", seconds=1.0)
    settle(known)
    embed_cached([known], counting)
    taken = 0

    def recordings() -> Iterator[Recording]:
        nonlocal taken
        yield (noise_clip(60.0).samples, 16_000)  # slow: 59 windows, and not stored
        for _ in range(1000):
            taken += 1
            yield known

    with Embedder(counting, audio_cache=True, threads=1) as embedder:
        stream = embedder.embed(recordings())
        next(stream)
        assert taken <= 3 * 4
        assert len(list(stream)) == 1000


def test_known_recordings_are_scored_in_one_product(
    counting: Counting, wav: WriteWav, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [wav(f"{i}.wav", seconds=1.0, seed=i) for i in range(9)]
    settle(*files)
    with Embedder(counting, audio_cache=True) as embedder:
        classifier = Classifier(LABELS, backbone=embedder).fit()
        expected = [result.ranking for result in classifier.classify(files)]
        shapes: list[tuple[int, ...]] = []
        real = Head.scores

        def counted(self: Head, z: Any) -> Scores:
            shapes.append(np.shape(z))
            return real(self, z)

        monkeypatch.setattr(Head, "scores", counted)
        found = [result.ranking for result in classifier.classify(files)]
    assert shapes == [(9, 64)]
    assert found == expected


def test_known_recordings_come_in_blocks(
    counting: Counting, wav: WriteWav, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "BLOCK", 4)
    lengths = [1.0] * 4 + [1.0, 3.0, 1.0, 1.0] + [1.0] * 2  # the second block has longer ones
    files = [wav(f"{i}.wav", seconds=s, seed=i) for i, s in enumerate(lengths)]
    settle(*files)
    expected, _ = embed_cached(files, counting)
    with Embedder(counting, audio_cache=True) as embedder:
        blocks = list(embedder.start().embed(files))
        classifier = Classifier(LABELS, backbone=embedder).fit()
        results = list(classifier.classify(files))
    assert [len(block) for block in blocks] == [4, 4, 2]
    for block, first in zip(blocks, (0, 4, 8), strict=True):
        same = expected[first : first + len(block)]
        np.testing.assert_array_equal(block.embeddings(), [one.embedding for one in same])
        assert block.seconds == [one.seconds for one in same]
    for one, two in zip(expected, (one for block in blocks for one in block), strict=True):
        np.testing.assert_array_equal(one.rows, two.rows)
        np.testing.assert_array_equal(one.spans, two.spans)
    plain = Classifier(LABELS, backbone=counting).scores(files)
    np.testing.assert_array_equal([result.scores for result in results], plain)
    assert [(r.source, r.seconds) for r in results] == [(e.source, e.seconds) for e in expected]


def test_a_new_recording_among_known_ones_keeps_its_place(
    counting: Counting, wav: WriteWav, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "BLOCK", 4)
    files = [wav(f"{i}.wav", seconds=1.0, seed=i) for i in range(10)]
    settle(*files)
    embed_cached([file for i, file in enumerate(files) if i not in (2, 9)], counting)
    files.insert(6, "missing.wav")
    expected = embed(files, counting)
    found, _ = embed_cached(files, counting)
    assert [one.source for one in found] == files
    assert [bool(one.error) for one in found] == [file == "missing.wav" for file in files]
    for one, two in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one.rows, two.rows)
