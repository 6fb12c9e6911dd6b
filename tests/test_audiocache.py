"""The audio cache: by content, never stale, and never in the way."""

import os
import sqlite3
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from driftscore import Classifier, load_backbone
from driftscore.audiocache import AudioCache
from driftscore.backbones import cache_key
from driftscore.engines import local
from driftscore.engines.local import hear

from .conftest import LABELS, noise_clip


class Counting:
    """A backbone that counts the windows it hears."""

    def __init__(self, inner):
        self.inner, self.windows = inner, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def embed_audio(self, clips):
        self.windows += len(clips)
        return self.inner.embed_audio(clips)


@pytest.fixture
def model(fake):
    return Counting(fake)


def settle(*paths):
    """Make files look as if they had lain there for an hour."""
    hour_ago = time.time() - 3600
    for path in paths:
        os.utime(path, (hour_ago, hour_ago))


def listen(sources, model, **options):
    model.windows = 0
    found = list(hear(sources, model, cache=True, **options))
    return found, model.windows


def forbid_reading(monkeypatch):
    for name in ("driftscore.engines.local.sounding_windows", "driftscore.audiocache._digest"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("the audio was read"))


def test_the_second_time_nothing_is_read_and_every_bit_is_the_same(model, wav, monkeypatch):
    files = [wav(f"{i}.wav", seconds=1.5 + i, seed=i) for i in range(5)]
    settle(*files)
    plain = list(hear(files, model))
    first, heard = listen(files, model)
    assert heard == sum(len(one.rows) for one in plain)
    forbid_reading(monkeypatch)
    second, heard = listen(files, model, threads=4)
    assert heard == 0
    for one, two, three in zip(plain, first, second, strict=True):
        for other in (two, three):
            assert (one.source, one.seconds) == (other.source, other.seconds)
            np.testing.assert_array_equal(one.rows, other.rows)
            np.testing.assert_array_equal(one.spans, other.spans)
            np.testing.assert_array_equal(one.embedding, other.embedding)


def test_a_timeline_comes_from_the_cache_as_well(model, wav, monkeypatch):
    file = wav(seconds=7.0)
    settle(file)
    expected = Classifier(LABELS, backbone=model).timeline(file)
    ears = Classifier(LABELS, backbone=model, audio_cache=True)
    assert ears.timeline(file) == expected
    forbid_reading(monkeypatch)
    assert ears.timeline(file) == expected
    assert ears.set_params(labels=["rain", "dog"]).predict([file])[0] in ("rain", "dog")


def test_the_same_content_under_another_name_is_found(model, wav, tmp_path):
    file = wav()
    listen([file], model)
    copy = tmp_path / "copy.wav"
    copy.write_bytes(Path(file).read_bytes())
    [found], heard = listen([copy], model)
    assert heard == 0
    assert found.source == str(copy)


def test_a_changed_file_is_heard_anew(model, wav):
    file = wav(seed=0)
    settle(file)
    listen([file], model)
    assert wav(seed=3) == file  # the same size, another time
    [found], heard = listen([file], model)
    assert heard > 0
    np.testing.assert_array_equal(found.rows, next(hear([file], model)).rows)


def test_a_file_changed_a_moment_ago_is_not_known_by_its_stamp(model, wav):
    """Its size and its time may stay the same when it is written to again."""
    file = wav(seed=0)
    stamp = Path(file).stat()
    listen([file], model)
    wav(seed=3)
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    _, heard = listen([file], model)
    assert heard > 0


def test_a_file_that_is_written_to_while_it_is_heard_is_not_kept(model, wav, monkeypatch):
    """Nobody knows whether what was heard is the content that was hashed."""
    file = wav()
    settle(file)
    real = local.sounding_windows

    def disturbed(source, **options):
        yield from real(source, **options)
        os.utime(source)

    monkeypatch.setattr(local, "sounding_windows", disturbed)
    assert listen([file], model)[1] > 0
    settle(file)
    assert listen([file], model)[1] > 0


def test_models_and_runtimes_do_not_share_rows(fake, wav):
    file = wav()
    listen([file], Counting(fake))
    other = Counting(load_backbone("fake", seed=1))
    assert listen([file], other)[1] > 0
    runtime = Counting(fake)
    runtime.cache_key = "fake/another-runtime"
    assert cache_key(runtime) == "fake/another-runtime"
    assert listen([file], runtime)[1] > 0
    assert listen([file], Counting(fake))[1] == 0


def test_errors_arrays_and_open_files_are_not_kept(model, wav, tmp_path):
    bad = tmp_path / "bad.wav"
    bad.write_text("no sound")
    with open(wav(), "rb") as handle:
        found, _ = listen([bad, noise_clip(1.0), handle, tmp_path / "gone.wav"], model)
    assert [bool(one.error) for one in found] == [True, False, False, True]
    with sqlite3.connect(AudioCache("").path) as db:
        assert db.execute("SELECT count(*) FROM audio").fetchone() == (0,)


@pytest.mark.parametrize("harm", ["damaged", "unwritable"])
def test_a_cache_that_is_of_no_use_is_told_once_and_done_without(
    model, wav, tmp_path, monkeypatch, harm
):
    if harm == "damaged":
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / "audio.sqlite").write_bytes(b"not a database" * 100)
    else:
        (tmp_path / "cache").write_text("a file where a folder should be")
    files = [wav(f"{i}.wav", seed=i) for i in range(3)]
    with pytest.warns(UserWarning, match=r"The audio cache .* cannot be used") as told:
        found, _ = listen(files, model)
    assert len(told) == 1
    for one, path in zip(found, files, strict=True):
        np.testing.assert_array_equal(one.rows, next(hear([path], model)).rows)


def test_several_users_share_it(model, wav):
    files = [wav(f"{i}.wav", seconds=1.0, seed=i) for i in range(30)]
    failures = []

    def run(order):
        try:
            list(hear(order, model, cache=True, threads=2))
        except Exception as error:
            failures.append(error)

    users = [threading.Thread(target=run, args=(files[i:] + files[:i],)) for i in range(0, 30, 10)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert not failures
    assert listen(files, model)[1] == 0


def test_what_was_heard_before_a_stop_is_kept(model, wav):
    files = [wav(f"{i}.wav", seconds=1.0, seed=i) for i in range(20)]
    stream = hear(files, model, cache=True, threads=1)
    for _ in range(5):
        next(stream)
    stream.close()
    listen(files[:5], model)
    assert model.windows == 0


def test_long_recordings_are_not_all_fetched_at_once(model, wav, monkeypatch):
    files = [wav(f"{i}.wav", seconds=4.0, seed=i) for i in range(12)]
    settle(*files)
    expected, _ = listen(files, model)
    monkeypatch.setattr("driftscore.audiocache._MOST_BYTES", 5 * 3 * 64 * 4)  # five of them
    store = AudioCache(cache_key(model))
    assert sum(one.entry is not None for one in store.look_up(files)) == 5
    forbid_reading(monkeypatch)
    for one, two in zip(expected, listen(files, model)[0], strict=True):
        np.testing.assert_array_equal(one.rows, two.rows)


def test_a_slow_recording_does_not_pile_up_known_ones_behind_it(model, wav, monkeypatch):
    monkeypatch.setattr(local, "BLOCK", 4)
    known = wav("known.wav", seconds=1.0)
    settle(known)
    listen([known], model)
    asked = 0

    def sources():
        nonlocal asked
        yield (noise_clip(60.0).samples, 16_000)  # slow: 59 windows, and not kept
        for _ in range(1000):
            asked += 1
            yield known

    stream = hear(sources(), model, cache=True, threads=1)
    next(stream)
    assert asked <= 3 * 4
    assert len(list(stream)) == 1000


def test_known_recordings_are_scored_in_one_product(model, wav, monkeypatch):
    files = [wav(f"{i}.wav", seconds=1.0, seed=i) for i in range(9)]
    settle(*files)
    ears = Classifier(LABELS, backbone=model, audio_cache=True).fit()
    expected = [result.scores for result in ears.classify(files)]
    shapes = []
    real = type(ears.head_).scores
    monkeypatch.setattr(
        type(ears.head_), "scores", lambda self, z: shapes.append(np.shape(z)) or real(self, z)
    )
    found = [result.scores for result in ears.classify(files)]
    assert shapes == [(9, 64)]
    np.testing.assert_array_equal(found, expected)
