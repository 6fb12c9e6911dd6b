"""Embedder: one model, one engine, many users."""

import copy
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftscore import Backbone, Classifier, Embedded, Embedder, UsageError, load_backbone
from driftscore.audio.recordings import Recording
from driftscore.backbones import Features
from driftscore.backbones.vectors import Vector

from .conftest import LABELS, Counting, WriteWav, noise_clip
from .test_engines import Watched, clips


def same(one: list[Embedded], two: list[Embedded]) -> bool:
    """Return whether results are the same, bit for bit."""
    return len(one) == len(two) and all(
        (a.source, a.error) == (b.source, b.error)
        and np.array_equal(a.rows, b.rows)
        and np.array_equal(a.spans, b.spans)
        for a, b in zip(one, two, strict=True)
    )


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the models that are loaded from now on, each of them slowly."""
    found: list[str] = []

    def slow(spec: str, *, runtime: str | None = None) -> Backbone:
        found.append(spec)
        time.sleep(0.05)
        return load_backbone(spec, runtime=runtime)

    monkeypatch.setattr("driftscore.engines.protocol.load_backbone", slow)
    return found


def test_a_model_is_loaded_once_although_several_threads_start_it(loads: list[str]) -> None:
    embedder = Embedder("fake")
    assert loads == []  # only when it is needed
    together = threading.Barrier(8)

    def use(number: int) -> Any:
        together.wait()
        actions: list[Callable[[], object]] = [
            embedder.start,
            lambda: embedder.backbone,
            lambda: list(embedder.embed([noise_clip(1.0)])),
        ]
        actions[number % 3]()
        return embedder.backbone

    with embedder, ThreadPoolExecutor(8) as pool:
        models = list(pool.map(use, range(8)))
    assert loads == ["fake"]
    assert all(model is models[0] for model in models)


def test_several_threads_share_one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from driftscore.engines import local

    opened: list[local.LocalEngine] = []
    real = local.open_engine

    def counted(settings: Any) -> local.LocalEngine:
        opened.append(real(settings))
        return opened[-1]

    monkeypatch.setattr(local, "open_engine", counted)
    with Embedder("fake") as embedder, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: embedder.start(), range(20)))
    assert len(opened) == 1


def test_nothing_is_loaded_or_started_before_it_is_used(loads: list[str]) -> None:
    before = set(threading.enumerate())  # some may end meanwhile
    with Embedder("fake") as embedder:
        assert repr(embedder) == "Embedder('fake', engine='local')"
    assert loads == []
    assert set(threading.enumerate()) <= before


def test_with_closes_the_engine_and_ends_its_threads(fake: Backbone) -> None:
    before = set(threading.enumerate())  # some may end meanwhile
    with Embedder(fake) as embedder:
        found = list(embedder.embed([noise_clip(3.0)]))
        assert set(threading.enumerate()) - before
    assert set(threading.enumerate()) <= before
    assert len(found) == 1


def test_a_closed_embedder_can_be_used_again(loads: list[str]) -> None:
    embedder = Embedder("fake")
    first = list(embedder.embed([noise_clip(3.0)]))
    embedder.close()
    embedder.close()  # twice is allowed
    with embedder:
        assert same(list(embedder.embed([noise_clip(3.0)])), first)
    assert loads == ["fake"]  # the model stays loaded


def test_several_threads_embed_at_once_with_the_bits_of_one_alone(
    wav: WriteWav, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_text("no sound")
    files: list[Recording] = [wav(f"{i}.wav", seconds=1 + i, seed=i) for i in range(6)]
    files.append(str(bad))
    orders = [files[i:] + files[:i] for i in range(len(files))]
    with Embedder("fake", threads=1) as alone:
        expected = [list(alone.embed(order)) for order in orders]
    with Embedder("fake", threads=3) as embedder, ThreadPoolExecutor(len(orders)) as pool:
        found = list(pool.map(lambda order: list(embedder.embed(order)), orders))
    assert all(same(one, two) for one, two in zip(found, expected, strict=True))


def test_streams_of_one_embedder_do_not_wait_for_each_other(fake: Backbone) -> None:
    """A stream that nobody reads on holds up no other."""
    with Embedder(fake, threads=1) as embedder:
        idle = [embedder.embed([noise_clip(3.0)] * 50) for _ in range(3)]
        for stream in idle:
            next(stream)
        assert len(list(embedder.embed([noise_clip(1.0)] * 5))) == 5
        assert all(len(list(stream)) == 49 for stream in idle)


def test_closing_a_half_read_stream_stops_its_readers_soon() -> None:
    model = Watched(0.01)
    with Embedder(model, threads=2) as embedder:
        stream = embedder.embed(clips(1000, seconds=10.0))
        next(stream)
        started = time.monotonic()
        stream.close()  # type: ignore[attr-defined]
        assert time.monotonic() - started < 30  # all of it takes 95 s
        wait_until(lambda: model.inside == 0)
        encoded = model.encoded
        time.sleep(0.1)
        assert model.encoded <= encoded + 2 * 2 + 1  # the windows that were in work
        assert len(list(embedder.embed(clips(3)))) == 3  # the engine goes on


def test_closing_the_embedder_in_the_middle_of_a_stream_is_an_error_in_words() -> None:
    """It must neither wait for the rest of a long recording nor return a part of it."""
    others = set(threading.enumerate())  # of embedders that other tests left open
    embedder = Embedder(Watched(0.005), threads=2)
    stream = embedder.embed([*clips(1), *clips(20, seconds=200.0)])
    next(stream)
    before = time.monotonic()
    embedder.close()
    assert time.monotonic() - before < 10  # all of it takes 20 s
    found: list[Embedded] = []
    with pytest.raises(UsageError, match="closed"):
        found.extend(stream)
    assert all(len(embedded.rows) == 399 for embedded in found)
    own = set(threading.enumerate()) - others
    assert not any(thread.name.startswith("driftscore") for thread in own)


def test_a_stream_may_outlive_its_embedder() -> None:
    """As it does when a loop is left: the stream is closed after the embedder."""
    with Embedder(Watched(0.001), threads=2) as embedder:
        stream: Any = embedder.embed(clips(100))
        for _ in stream:
            break
    stream.close()
    assert list(stream) == []


def test_an_embedder_can_be_pickled_and_copied(fake: Backbone) -> None:
    for backbone in ("fake", fake):
        with Embedder(backbone, threads=2) as embedder:
            expected = list(embedder.embed([noise_clip(5.0)]))
            for twin in (pickle.loads(pickle.dumps(embedder)), copy.deepcopy(embedder)):
                assert (twin.threads, twin.engine) == (2, "local")
                with twin:
                    assert same(list(twin.embed([noise_clip(5.0)])), expected)


def test_a_model_that_can_be_loaded_again_is_not_pickled() -> None:
    embedder = Embedder("mini")
    empty = len(pickle.dumps(embedder))
    _ = embedder.backbone
    assert len(pickle.dumps(embedder)) == empty < 1000


def test_errors_are_those_of_one_recording_each(
    wav: WriteWav, tmp_path: Path, fake: Backbone
) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_text("no sound")
    silent = (np.zeros(16_000, np.float32), 16_000)
    recordings: list[Recording] = [wav("a.wav"), bad, silent, tmp_path / "none.wav", wav("b.wav")]
    with Embedder(fake) as embedder:
        found = list(embedder.embed(recordings))
    assert [bool(e.error) for e in found] == [False, True, True, True, False]
    assert "is silent" in found[2].error
    assert [len(e.rows) for e in found] == [2, 0, 0, 0, 2]


def test_the_audio_cache_is_used_when_asked_for(counting: Counting, wav: WriteWav) -> None:
    with Embedder(counting, audio_cache=True) as embedder:
        first = list(embedder.embed([wav()]))
        assert counting.windows == 2
        second = list(embedder.embed([wav()]))
    assert counting.windows == 2
    assert same(first, second)


def test_the_ray_engine_refuses_a_loaded_model(fake: Backbone) -> None:
    with pytest.raises(UsageError, match="not as a loaded model"):
        Embedder(fake, engine="ray").start()


def test_a_loaded_model_has_its_runtime_already(fake: Backbone) -> None:
    with pytest.raises(UsageError, match="this one is loaded"):
        Embedder(fake, runtime="onnx")
    assert Embedder(fake, runtime="auto").runtime is None


def test_what_is_no_backbone_is_refused_with_what_it_lacks() -> None:
    class Half:
        name, fingerprint, dim, rate = "half", "half/1", 4, 8000

    half: Any = Half()
    with pytest.raises(UsageError, match=r"Half is not a backbone: it lacks .*embed_text"):
        Embedder(half)


def test_classifiers_share_an_embedder(loads: list[str], wav: WriteWav) -> None:
    with Embedder("fake") as embedder:
        das, cosine = Classifier(LABELS, backbone=embedder).compared_with("cosine")
        assert das.embedder_ is cosine.embedder_ is embedder
        assert das.predict([wav()]).shape == cosine.predict([wav()]).shape == (1,)
    assert loads == ["fake"]


def test_a_slow_model_does_not_lose_the_order_of_two_streams() -> None:
    class Slow(Watched):
        def encode(self, features: Features) -> Vector:
            time.sleep(0.002 * float(features[0] % 2))
            return super().encode(features)

    with Embedder(Slow(), threads=3) as embedder:
        one, two = embedder.embed(clips(20)), embedder.embed(clips(20)[::-1])
        pairs = list(zip(islice(one, 20), islice(two, 20), strict=True))
    ordered = [float(a.rows[0, 0]) for a, _ in pairs]
    assert same([a for a, _ in pairs], [b for _, b in pairs][::-1])
    assert len(ordered) == 20


class Prepared(Counting):
    """A model that notes which thread prepares it, and cannot be prepared."""

    def __init__(self, inner: Backbone) -> None:
        super().__init__(inner)
        self.threads: list[str] = []

    def prepare(self) -> None:
        self.threads.append(threading.current_thread().name)
        raise RuntimeError("a damaged file")


def test_a_model_is_prepared_in_a_thread_unless_all_may_be_cached(fake: Backbone) -> None:
    model = Prepared(fake)
    with Embedder(model, audio_cache=True) as cached:
        cached.prepare()
    assert model.threads == []
    with Embedder(model) as embedder:
        embedder.prepare()  # its error is left to whoever embeds
        [found] = embedder.embed([noise_clip(1.0)])
        assert not found.error
        wait_until(lambda: model.threads == ["driftscore-prepare"])
