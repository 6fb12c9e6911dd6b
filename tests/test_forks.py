"""A classifier that was used before a fork works in the child, and in the parent afterwards."""

import multiprocessing
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from driftscore import Audio, Classifier, UsageError
from driftscore.backbones.onnx.sessions import OnnxSession
from driftscore.detector import event_batches
from driftscore.live.speech import SpeechGuard
from driftscore.system.lazy import lazy_property

from .conftest import PROJECT

SOUNDS = sorted(map(str, (PROJECT / "demo" / "sounds").glob("*.flac")))[:3]
LABELS = ["siren", "church bell", "speech"]
NOISE = Audio(np.random.default_rng(0).uniform(-0.1, 0.1, 32_000).astype(np.float32), 32_000)


def answer(classifier: Classifier, queue: Any) -> None:
    queue.put(classifier.scores(SOUNDS).tolist())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize("backbone", ["fake", "mini"])
def test_a_forked_process_gives_the_same_scores(backbone: str) -> None:
    classifier = Classifier(LABELS, backbone=backbone)
    expected = classifier.scores(SOUNDS).tolist()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=answer, args=(classifier, queue))
    child.start()
    assert queue.get(timeout=60) == expected
    child.join(60)
    assert child.exitcode == 0
    assert classifier.scores(SOUNDS).tolist() == expected


def go_on(iterators: list[Iterator[object]], queue: Any) -> None:
    for iterator in iterators:
        try:
            queue.put(len(list(iterator)))
        except UsageError as error:
            queue.put(str(error))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_an_iterator_of_the_parent_says_at_once_that_it_ends_in_the_child() -> None:
    classifier = Classifier(LABELS, backbone="mini")
    embedder, rules = classifier.fit().embedder_, classifier.detector().rules
    noise = np.random.default_rng(0).standard_normal(3_200_000, dtype=np.float32)
    iterators: list[Iterator[object]] = [
        iter(classifier.classify(SOUNDS * 10)),
        iter(embedder.windows(SOUNDS * 10, window_s=3.0, hop_s=0.5)),
        event_batches(Audio(noise, 32_000), rules, embedder.backbone),
    ]
    for iterator in iterators:
        next(iterator)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=go_on, args=(iterators, queue))
    child.start()
    for _ in iterators:
        assert "begun before the process was forked" in queue.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0
    assert len(list(iterators[0])) == 29


class _Slow:
    """Stands in for a session; opening it takes long."""

    def __call__(self) -> "_Slow":
        time.sleep(0.5)
        return self


def reopen(session: OnnxSession, queue: Any) -> None:
    queue.put(session.open() is not None)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_fork_while_another_thread_opens_a_session_does_not_hang() -> None:
    session = OnnxSession(_Slow())
    opening = threading.Thread(target=session.open)
    opening.start()
    time.sleep(0.1)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=reopen, args=(session, queue))
    child.start()
    assert queue.get(timeout=20)
    child.join(20)
    opening.join(20)
    assert session.open() is session.open()


class _SlowOnce:
    @lazy_property
    def value(self) -> int:
        time.sleep(0.5)
        return 7


def read_value(holder: _SlowOnce, queue: Any) -> None:
    queue.put(holder.value)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_fork_while_another_thread_computes_a_value_does_not_hang() -> None:
    holder = _SlowOnce()
    computing = threading.Thread(target=lambda: holder.value)
    computing.start()
    time.sleep(0.1)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=read_value, args=(holder, queue))
    child.start()
    try:
        assert queue.get(timeout=20) == 7
    finally:
        child.kill()
    child.join(20)
    computing.join(20)


def test_a_value_is_computed_once_and_no_property_of_ours_holds_a_lock() -> None:
    assert _SlowOnce().value == 7
    holder = _SlowOnce()
    holder.__dict__["value"] = 8
    assert holder.value == 8
    for path in (PROJECT / "src").rglob("*.py"):
        assert "import cached_property" not in path.read_text(encoding="utf-8"), path


def voice(guard: SpeechGuard, queue: Any) -> None:
    queue.put(guard.score(NOISE))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_speech_guard_that_was_used_before_a_fork_works_in_the_child() -> None:
    guard = SpeechGuard(notify=lambda _: None)
    score = guard.score(NOISE)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=voice, args=(guard, queue))
    child.start()
    assert queue.get(timeout=60) == score
    child.join(60)
