"""A classifier that was used before a fork works in the child, and in the parent afterwards."""

import multiprocessing
import sys
from typing import Any

import pytest

from driftscore import Classifier

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
