"""The engine of one machine: the bits of one window at a time, in order, within its bounds."""

import threading
import time

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from driftscore import Audio, Classifier, Head, load_backbone
from driftscore.backbones import Staged, embed_recording, embed_windows
from driftscore.engines import find_engine, local
from driftscore.engines.local import hear
from driftscore.errors import AudioError, UsageError

from .conftest import LABELS, noise_clip


class Watched:
    """A staged stand-in for tests that notes what is going on at once."""

    name, dim, rate, seconds, encoders = "watched", 4, 1000, 1.0, 2
    fingerprint = "watched"

    def __init__(self, encode_seconds=0.0):
        self.encode_seconds = encode_seconds
        self.lock = threading.Lock()
        self.inside = self.most = self.encoded = 0

    def features(self, samples):
        return samples

    def encode(self, features):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(self.encode_seconds)
        with self.lock:
            self.inside -= 1
            self.encoded += 1
        row = features[:4].astype(np.float32) + 1
        return row / np.linalg.norm(row)

    def embed_audio(self, clips):
        return np.stack([self.encode(clip.samples) for clip in clips])

    def embed_text(self, texts):
        return np.eye(4, dtype=np.float32)[[len(text) % 4 for text in texts]]


@pytest.fixture(scope="module")
def mini():
    return load_backbone("mini")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return files of several rates and lengths, some of them several windows long."""
    home = tmp_path_factory.mktemp("sounds")
    paths = []
    for seed, (seconds, rate) in enumerate(
        [(0.3, 16_000), (12.0, 44_100), (3.0, 8_000), (31.0, 16_000), (10.0, 32_000), (1.0, 48_000)]
    ):
        paths.append(str(home / f"{seed}.flac"))
        clip = noise_clip(seconds, rate=rate, seed=seed)
        soundfile.write(paths[-1], clip.samples, clip.rate)
    return paths


@pytest.mark.parametrize("model", ["mini", "fake"])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_rows_have_the_bits_of_one_window_after_another(model, threads, files, mini, fake):
    backbone = {"mini": mini, "fake": fake}[model]
    for order in (files, files[::-1]):
        for path, heard in zip(order, hear(order, backbone, threads=threads), strict=True):
            expected = list(embed_windows(path, backbone))
            assert heard.source == path
            np.testing.assert_array_equal(heard.rows, [row for _, row in expected])
            np.testing.assert_array_equal(heard.spans, [(w.start_s, w.end_s) for w, _ in expected])
            np.testing.assert_array_equal(heard.embedding, embed_recording(path, backbone))
            assert heard.seconds == expected[-1][0].end_s


def test_mini_is_staged_and_its_parts_make_the_whole(mini):
    samples = noise_clip(10.0, rate=mini.rate).samples
    assert isinstance(mini, Staged)
    np.testing.assert_array_equal(
        mini.encode(mini.features(samples)), mini.embed_audio([(samples, mini.rate)])[0]
    )


def clips(count, seconds=3.0):
    return [Audio(np.full(round(1000 * seconds), 0.1 + i, np.float32), 1000) for i in range(count)]


def test_results_come_in_the_order_of_the_sources():
    lengths = np.random.default_rng(0).uniform(0.5, 6, 60)
    sources = [Audio(np.full(round(1000 * s), i + 1.0), 1000) for i, s in enumerate(lengths)]
    found = list(hear(sources, Watched(0.001), threads=4))
    np.testing.assert_allclose([h.seconds for h in found], np.round(lengths, 3), atol=1e-9)


@pytest.mark.parametrize(("threads", "expected"), [(1, 1), (2, 2), (8, 2)])
def test_as_many_windows_are_encoded_at_once_as_the_model_allows(threads, expected):
    model = Watched(0.004)
    list(hear(clips(12), model, threads=threads))
    assert model.most == expected


def test_a_model_without_stages_is_asked_one_window_at_a_time():
    model = Watched(0.001)

    class Plain:
        embed_audio = staticmethod(model.embed_audio)
        name, dim, rate, seconds, fingerprint = "plain", 4, 1000, 1.0, "plain"
        embed_text = staticmethod(model.embed_text)

    assert len(list(hear(clips(12), Plain(), threads=4))) == 12
    assert model.most == 1


def test_windows_and_recordings_in_flight_are_bounded(monkeypatch):
    """Decoded windows that are not yet embedded stay few, whatever the number of files."""
    model, cut = Watched(0.001), 0
    behind = []

    def counted(source, **options):
        nonlocal cut
        for window in real(source, **options):
            with model.lock:
                cut += 1
                behind.append(cut - model.encoded)
            yield window

    real = local.sounding_windows
    monkeypatch.setattr(local, "sounding_windows", counted)
    asked = 0

    def sources():
        nonlocal asked
        for clip in clips(100, seconds=20.0):
            asked += 1
            yield clip

    for number, _ in enumerate(hear(sources(), model, threads=2), start=1):
        assert asked - number <= 2 * (2 + 3)
    assert max(behind) <= (2 * 2 + 1) + (2 + 3) + 2  # slots, one a reader, those in hand


def test_of_a_long_recording_only_the_embeddings_are_kept(tmp_path):
    import tracemalloc

    class Wide(Watched):
        rate = 8000  # a window's samples are 32 kB

    def peak(seconds):
        path = tmp_path / f"{seconds}.wav"
        soundfile.write(path, np.ones(8000 * seconds, np.float32) / 2, 8000)
        tracemalloc.start()
        [heard] = hear([path], Wide(), threads=2)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found, len(heard.rows)

    (little, few), (much, many) = peak(100), peak(1000)
    assert many == 1999
    assert (much - little) / (many - few) < 3000


def test_when_the_consumer_stops_the_threads_end_soon():
    model = Watched(0.01)
    before = threading.active_count()
    stream = hear(clips(1000, seconds=10.0), model, threads=2)
    next(stream)
    started = time.monotonic()
    stream.close()
    assert time.monotonic() - started < 1
    assert threading.active_count() == before
    assert model.encoded < 1000


def test_one_clip_starts_two_threads(monkeypatch):
    most = []
    model = Watched()
    real = model.encode
    monkeypatch.setattr(model, "encode", lambda f: most.append(threading.active_count()) or real(f))
    before = threading.active_count()
    list(hear(clips(1, seconds=1.0), model))
    assert most == [before + 2]


def test_a_bad_recording_among_many_is_its_own_error(wav, tmp_path, fake):
    bad = tmp_path / "bad.wav"
    bad.write_text("no sound")
    sources = [wav(f"{i}.wav", seed=i) for i in range(20)]
    sources[7] = str(bad)
    found = list(hear(sources, fake, threads=2))
    assert [bool(h.error) for h in found] == [i == 7 for i in range(20)]
    assert str(bad) in found[7].error
    assert found[7].rows.shape == (0, fake.dim)
    with pytest.raises(AudioError, match=r"bad\.wav"):
        _ = found[7].embedding


def test_what_is_wrong_with_the_model_is_raised_with_its_traceback():
    class Broken(Watched):
        def encode(self, features):
            raise ZeroDivisionError("in the network")

    before = threading.active_count()
    with pytest.raises(ZeroDivisionError, match="in the network") as caught:
        list(hear(clips(200), Broken(), threads=2))
    assert any(entry.name == "encode" for entry in caught.traceback)
    assert threading.active_count() == before


def test_what_is_no_sound_at_all_is_raised():
    with pytest.raises(UsageError, match="Cannot read sound from a int"):
        list(hear([3], Watched()))


def test_an_unknown_engine_and_a_wrong_number_of_threads_are_refused():
    assert find_engine("local") is local
    with pytest.raises(UsageError, match="No engine called 'locl'; did you mean 'local'"):
        Classifier(LABELS, backbone="fake", engine="locl").fit()
    for threads in (0, -1, 2.5, True):
        with pytest.raises(UsageError, match="threads is a whole number"):
            Classifier(LABELS, backbone="fake", threads=threads).fit()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(1, 299), max_size=6))
def test_scores_do_not_depend_on_the_block_that_they_are_computed_in(seed, cuts):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((300, 96)).astype(np.float32)
    head = Head(tuple(map(str, range(17))), rng.standard_normal((17, 96)), rng.standard_normal(17))
    whole = head.scores(rows)
    parts = np.split(rows, sorted(set(cuts)))
    np.testing.assert_array_equal(np.concatenate([head.scores(part) for part in parts]), whole)
    np.testing.assert_array_equal(head.scores(rows[7]), whole[7:8])


def test_a_result_is_given_before_the_next_recording_is_done():
    """A slow recording must not hold back the one before it."""
    release = threading.Event()

    class Slow(Watched):
        def encode(self, features):
            if features[0] > 1:
                release.wait(10)
            return super().encode(features)

    ears = Classifier(["a", "bb"], backbone=Slow(), cache=False)
    stream = ears.classify(clips(2, seconds=1.0))
    assert next(stream).label in ("a", "bb")
    assert not release.is_set()
    release.set()
    assert len(list(stream)) == 1
