from itertools import pairwise

import numpy as np
import pytest
from driftscore.timeline import Stretch, merge, stretches
from hypothesis import given
from hypothesis import strategies as st

from driftscore import Classifier

from .conftest import LABELS, noise_clip

AB = ("a", "b")


def row(*scores):
    return np.array(scores, dtype=np.float64)


def test_each_window_answers_for_its_middle():
    line = stretches([(0, 10, row(1, 0)), (5, 15, row(0, 1)), (8, 18, row(1, 0))])
    assert [(s.start_s, s.end_s) for s in line] == [(0, 7.5), (7.5, 11.5), (11.5, 18)]


def test_neighbours_with_one_label_make_one_event_with_the_best_score():
    line = stretches([(0, 2, row(1, 0)), (1, 3, row(3, 0)), (2, 4, row(0, 2))])
    events = merge(line, AB)
    assert [(e.label, e.start_s, e.end_s, e.score) for e in events] == [
        ("a", 0, 2.5, 3), ("b", 2.5, 4, 2),
    ]  # fmt: skip


def test_silence_ends_an_event():
    line = stretches([(0, 2, row(1, 0)), (6, 8, row(1, 0))])
    assert [(e.start_s, e.end_s) for e in merge(line, AB)] == [(0, 2), (6, 8)]


def test_with_a_threshold_events_of_several_labels_may_overlap():
    line = stretches([(0, 2, row(1, 1)), (1, 3, row(1, 0)), (2, 4, row(0, 0))])
    events = merge(line, AB, threshold=0.5)
    assert [(e.label, e.start_s, e.end_s) for e in events] == [("b", 0, 1.5), ("a", 0, 2.5)]
    assert merge(line, AB, threshold=2) == []


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=40))
def test_events_cover_a_recording_once_and_in_order(scores):
    line = stretches([(5.0 * i, 5.0 * i + 10, row(*s)) for i, s in enumerate(scores)])
    events = merge(line, AB)
    assert events[0].start_s == 0
    assert events[-1].end_s == 5.0 * (len(scores) - 1) + 10
    for before, after in pairwise(events):
        assert before.end_s == after.start_s
        assert before.label != after.label


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=40),
    st.floats(-1, 1),
)
def test_the_time_of_a_label_is_the_time_of_its_windows(scores, threshold):
    line = [Stretch(i, i + 1.0, row(*s)) for i, s in enumerate(scores)]
    events = merge(line, AB, threshold=threshold)
    for c, label in enumerate(AB):
        heard = sum(s.scores[c] >= threshold for s in line)
        assert sum(e.end_s - e.start_s for e in events if e.label == label) == pytest.approx(heard)


def test_the_timeline_of_a_recording_follows_its_sounds(fake):
    low = noise_clip(6.0, seed=6).samples
    high = np.diff(noise_clip(6.0, seed=0).samples, prepend=0).astype(np.float32)
    ears = Classifier(LABELS, backbone=fake)
    one, two = ears.predict([(low, 16_000), (high, 16_000)])
    assert one != two, "the fake model must tell the two apart for this test to mean anything"
    events = ears.timeline((np.concatenate([low, high]), 16_000))
    assert [e.label for e in (events[0], events[-1])] == [one, two]
    assert events[0].start_s == 0
    assert events[-1].end_s == pytest.approx(12.0)
