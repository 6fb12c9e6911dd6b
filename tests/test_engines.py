"""The engine of one machine: the bits of one window at a time, in order, within its bounds."""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from driftscore import (
    Audio,
    AudioError,
    Backbone,
    Classifier,
    Embedded,
    Embedder,
    Head,
    UsageError,
)
from driftscore.audio.recordings import Recording, Window
from driftscore.backbones import Features
from driftscore.backbones.vectors import Matrix, Vector
from driftscore.engines import KIND, engine_names, local
from driftscore.system.plugins import find

from .conftest import WriteWav, embed_recording, embed_windows, noise_clip


class Watched(Backbone):
    """A model for tests that notes how many windows it encodes at the same time."""

    name, dim, rate, seconds, parallel = "watched", 4, 1000, 1.0, 2
    fingerprint = "watched"

    def __init__(self, encode_seconds: float = 0.0) -> None:
        self.encode_seconds = encode_seconds
        self.lock = threading.Lock()
        self.inside = self.most = self.encoded = 0

    def encode(self, features: Features) -> Vector:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(self.encode_seconds)
        with self.lock:
            self.inside -= 1
            self.encoded += 1
        row = features[:4].astype(np.float32) + 1
        unit: Vector = row / np.linalg.norm(row)
        return unit

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        return np.eye(4, dtype=np.float32)[[len(text) % 4 for text in texts]]


def embed(
    recordings: Iterable[Recording], backbone: Backbone, threads: int | None = None
) -> Iterator[Embedded]:
    """Embed in an engine that is closed at the end."""
    with Embedder(backbone, threads=threads) as embedder:
        yield from embedder.embed(recordings)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
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
def test_rows_have_the_bits_of_one_window_after_another(
    model: str, threads: int, files: list[str], mini: Backbone, fake: Backbone
) -> None:
    backbone = {"mini": mini, "fake": fake}[model]
    for order in (files, files[::-1]):
        for path, embedded in zip(order, embed(order, backbone, threads), strict=True):
            expected = list(embed_windows(path, backbone))
            spans = [(w.start_s, w.end_s) for w, _ in expected]
            assert embedded.source == path
            np.testing.assert_array_equal(embedded.rows, [row for _, row in expected])
            np.testing.assert_array_equal(embedded.spans, spans)
            np.testing.assert_array_equal(embedded.embedding, embed_recording(path, backbone))
            assert embedded.seconds == expected[-1][0].end_s


@pytest.mark.parametrize("model", ["mini", "fake"])
def test_features_and_encode_have_the_bits_of_embed_audio(
    model: str, mini: Backbone, fake: Backbone
) -> None:
    backbone = {"mini": mini, "fake": fake}[model]
    clip = noise_clip(backbone.seconds, rate=backbone.rate)
    np.testing.assert_array_equal(
        backbone.encode(backbone.features(clip.samples)), backbone.embed_audio([clip])[0]
    )


def clips(count: int, seconds: float = 3.0) -> list[Audio]:
    levels = [0.1 + number % 200 for number in range(count)]
    return [Audio(np.full(round(1000 * seconds), s, np.float32), 1000) for s in levels]


def test_results_come_in_the_order_of_the_recordings() -> None:
    lengths = np.random.default_rng(0).uniform(0.5, 6, 60)
    recordings = [Audio(np.full(round(1000 * s), i + 1.0), 1000) for i, s in enumerate(lengths)]
    found = list(embed(recordings, Watched(0.001), threads=4))
    np.testing.assert_allclose([e.seconds for e in found], np.round(lengths, 3), atol=1e-9)


@pytest.mark.parametrize(("threads", "expected"), [(1, 1), (2, 2), (8, 2)])
def test_as_many_windows_are_encoded_at_once_as_the_model_allows(
    threads: int, expected: int
) -> None:
    model = Watched(0.004)
    list(embed(clips(12), model, threads=threads))
    assert model.most == expected


def test_a_model_is_asked_for_one_window_at_a_time_unless_it_allows_more() -> None:
    class Plain(Watched):
        parallel = Backbone.parallel

    model = Plain(0.001)
    assert len(list(embed(clips(12), model, threads=4))) == 12
    assert model.most == 1


def test_windows_and_recordings_in_work_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoded windows that are not yet embedded stay few, whatever the number of files."""
    model, cut = Watched(0.001), 0
    behind: list[int] = []

    def counted(recording: Recording, *, rate: int, seconds: float) -> Iterator[Window]:
        nonlocal cut
        for window in real(recording, rate=rate, seconds=seconds):
            with model.lock:
                cut += 1
                behind.append(cut - model.encoded)
            yield window

    real = local.sounding_windows  # type: ignore[attr-defined]
    monkeypatch.setattr(local, "sounding_windows", counted)
    taken = 0

    def recordings() -> Iterator[Recording]:
        nonlocal taken
        for clip in clips(100, seconds=20.0):
            taken += 1
            yield clip

    for number, _ in enumerate(embed(recordings(), model, threads=2), start=1):
        assert taken - number <= 2 * (2 + 3)
    # slots, one window per reader, and those that are being encoded
    assert max(behind) <= (2 * 2 + 1) + (2 + 3) + 2


def test_of_a_long_recording_only_the_embeddings_are_kept(tmp_path: Path) -> None:
    import tracemalloc

    class Wide(Watched):
        rate = 8000  # the samples of a window are 32 kB

    def peak(seconds: int) -> tuple[int, int]:
        path = tmp_path / f"{seconds}.wav"
        soundfile.write(path, np.ones(8000 * seconds, np.float32) / 2, 8000)
        tracemalloc.start()
        [embedded] = embed([path], Wide(), threads=2)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found, len(embedded.rows)

    (little, few), (much, many) = peak(100), peak(1000)
    assert many == 1999
    assert (much - little) / (many - few) < 3000


def test_one_clip_starts_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    most: list[int] = []
    model = Watched()
    real = model.encode

    def counted(features: Features) -> Vector:
        most.append(len(set(threading.enumerate()) - before))
        return real(features)

    monkeypatch.setattr(model, "encode", counted)
    before = set(threading.enumerate())
    list(embed(clips(1, seconds=1.0), model))
    assert most == [2]


def test_a_bad_recording_among_many_is_its_own_error(
    wav: WriteWav, tmp_path: Path, fake: Backbone
) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_text("no sound")
    recordings = [wav(f"{i}.wav", seed=i) for i in range(20)]
    recordings[7] = str(bad)
    found = list(embed(recordings, fake, threads=2))
    assert [bool(e.error) for e in found] == [i == 7 for i in range(20)]
    assert str(bad) in found[7].error
    assert found[7].rows.shape == (0, fake.dim)
    assert found[7].seconds == 0
    with pytest.raises(AudioError, match=r"bad\.wav"):
        _ = found[7].embedding


def test_what_is_wrong_with_the_model_is_raised_with_its_traceback() -> None:
    class Broken(Watched):
        def encode(self, features: Features) -> Vector:
            raise ZeroDivisionError("in the network")

    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError, match="in the network") as caught:
        list(embed(clips(200), Broken(), threads=2))
    assert any(entry.name == "encode" for entry in caught.traceback)
    assert set(threading.enumerate()) <= before


def test_what_is_no_sound_at_all_is_an_error_of_its_own() -> None:
    number: Any = 3
    [embedded] = embed([number], Watched())
    assert "Cannot read sound from a int" in embedded.error


def test_an_unknown_engine_and_a_wrong_number_of_threads_are_refused() -> None:
    assert engine_names() == ("local", "ray")
    assert find(KIND, "local") is local
    with pytest.raises(UsageError, match="No engine called 'locl'; did you mean 'local'"):
        Embedder("fake", engine="locl")
    wrong: list[Any] = [0, -1, 2.5, True]
    for threads in wrong:
        with pytest.raises(UsageError, match="threads must be a positive integer"):
            Embedder("fake", threads=threads)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(1, 299), max_size=6))
def test_scores_do_not_depend_on_the_block_that_they_are_computed_in(
    seed: int, cuts: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((300, 96)).astype(np.float32)
    weights = rng.standard_normal((17, 96)).astype(np.float32)
    offsets = rng.standard_normal(17).astype(np.float32)
    head = Head(tuple(map(str, range(17))), weights, offsets)
    together = head.scores(rows)
    parts = np.split(rows, sorted(set(cuts)))
    np.testing.assert_array_equal(np.concatenate([head.scores(part) for part in parts]), together)
    np.testing.assert_array_equal(head.scores(rows[7]), together[7:8])


def test_a_result_is_given_before_the_next_recording_is_done() -> None:
    """A slow recording must not hold back the one before it."""
    release = threading.Event()

    class Slow(Watched):
        def encode(self, features: Features) -> Vector:
            if features[0] > 1:
                release.wait(10)
            return super().encode(features)

    classifier = Classifier(["a", "bb"], backbone=Embedder(Slow(), text_cache=False))
    stream = classifier.classify(clips(2, seconds=1.0))
    assert next(stream).label in ("a", "bb")
    assert not release.is_set()
    release.set()
    assert len(list(stream)) == 1


def test_an_iterator_that_is_abandoned_leaves_no_threads(wav: WriteWav) -> None:
    embedder = Embedder(Watched(0.001))
    path = wav()
    before = threading.active_count()
    results = embedder.embed([path] * 50)
    next(results)
    assert threading.active_count() > before
    del results
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
    assert len(list(embedder.embed([path] * 2))) == 2  # and the next one works
