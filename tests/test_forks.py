"""A classifier that was used before a fork works in the child, and in the parent afterwards."""

import multiprocessing
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from driftscore import Audio, Classifier, UsageError
from driftscore.detector import event_batches

from .conftest import PROJECT

SOUNDS = sorted(map(str, (PROJECT / "demo" / "sounds").glob("*.flac")))[:3]
LABELS = ["siren", "church bell", "speech"]


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
