"""Scores over time to events: hysteresis, gaps, negative words, thresholds, streams and files."""

import gc
import weakref
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftscore import Audio, AudioError, Backbone, Classifier, Detection, Event, UsageError
from driftscore.audio.levels import LevelTrack
from driftscore.backbones.vectors import Scores
from driftscore.events.background import LONG_S, SHORT_S, Background
from driftscore.events.tracking import BELOW, REACH_S, SHORT, LabelRules, Tracker
from driftscore.events.watchlist import WatchedLabel, WatchList

from .conftest import LABELS, noise_clip

HOP_S, RATE = 0.5, 16_000


def row(*scores: float) -> Scores:
    return np.array(scores, dtype=np.float64)


def criteria(count: int = 1, threshold: float = 4.0, shortest: float = 0.0) -> LabelRules:
    labels = tuple("abcdef"[:count])
    return LabelRules(labels, np.full(count, threshold), np.full(count, shortest))


def track(
    scores: list[Scores], made: LabelRules | None = None, *, window_s: float = 2.0
) -> list[Event]:
    """Return the events of windows at a hop of half a second."""
    tracker = Tracker(made or criteria(len(scores[0])), Detection(), hop_s=HOP_S)
    found: list[Event] = []
    for number, values in enumerate(scores):
        found += tracker.feed(HOP_S * number, HOP_S * number + window_s, values)
    return found + tracker.finish(HOP_S * (len(scores) - 1) + window_s)


def one_label(*scores: float) -> list[Scores]:
    return [row(score) for score in scores]


def test_an_event_begins_at_a_share_of_the_threshold_and_must_reach_it() -> None:
    [event] = track(one_label(0, 1, 1.5, 5, 4, 4, 4, 3, 1, 0, *[0] * 9))
    # Windows 2 (from 1.0 to 3.0 s) is above 0.35 x 4, window 7 (from 3.5 s) the last one.
    assert event.label == "a"
    assert event.start_s == pytest.approx(3.0 - REACH_S)
    assert event.end_s == pytest.approx(3.5 + REACH_S)
    assert (event.score, event.threshold, event.rejected) == (5.0, 4.0, "")


def test_a_label_that_often_comes_near_its_threshold_must_reach_more() -> None:
    near = one_label(*[0, 3, 0, 0, 0, 0, 0, 0, 0, 0] * 60)  # a low peak every five seconds
    once = one_label(0, 4.5, *[0] * 10)
    assert [event.threshold for event in track(near + once) if not event.rejected] == [4.0]
    moving = replace(criteria(), low=np.array([2.0]))
    assert all(event.rejected for event in track(near + once, moving))
    [event] = track(one_label(*[0] * 600) + once, moving)  # nothing near it: as asked for
    assert (event.threshold, event.rejected) == (4.0, "")


def test_a_restless_label_is_forgiven_in_time() -> None:
    tracker = Tracker(replace(criteria(), low=np.array([2.0])), Detection(), hop_s=HOP_S)
    for number in range(600):
        value = 3.0 if number % 10 == 0 else 0.0
        tracker.feed(HOP_S * number, HOP_S * number + 2.0, row(value))
    later = [float(tracker.thresholds(300.0 + 3600.0 * hours)[0]) for hours in (0, 3, 6, 30)]
    assert later == sorted(later, reverse=True)
    assert later[0] > 5.0
    assert later[-1] == 4.0


def test_a_sound_is_placed_where_it_is_whatever_the_window() -> None:
    """Score 5 in each window of which the sound from 10.0 to 12.0 s fills `REACH_S`."""
    for window_s in (2.0, 3.0, 4.0):
        shared = [min(12.0, s + window_s) - max(10.0, s) for s in HOP_S * np.arange(60)]
        scores = [5.0 if part >= REACH_S else 0.0 for part in shared]
        [event] = track(one_label(*scores), window_s=window_s)
        assert event.start_s == pytest.approx(10.0, abs=HOP_S)
        assert event.end_s == pytest.approx(12.0, abs=HOP_S)


def test_a_sound_in_one_window_is_in_its_middle() -> None:
    [event] = track(one_label(0, 0, 5, *[0] * 9))
    assert (event.start_s, event.end_s) == (2.0 - HOP_S / 2, 2.0 + HOP_S / 2)


def test_below_the_threshold_nothing_is_reported_and_a_near_miss_says_so() -> None:
    assert track(one_label(0, 2.5, 2.9, 0, 0)) == []
    [near] = track(one_label(0, 3.5, 0, 0))
    assert near.rejected == BELOW


def test_events_that_are_three_seconds_apart_are_one() -> None:
    near = [0.0, 5, *[0] * 6, 6, *[0] * 8]
    far = [0.0, 5, *[0] * 7, 6, *[0] * 8]
    [joined] = track(one_label(*near))
    assert joined.score == 6
    assert len(track(one_label(*far))) == 2


def test_a_weak_stretch_near_an_event_does_not_move_its_onset() -> None:
    [event] = track(one_label(0, 0, 2.2, 0, 5, *[0] * 9))
    assert event.start_s == 3.0 - HOP_S / 2


def test_an_event_at_the_ends_of_a_recording_lasts_to_its_ends() -> None:
    [event] = track(one_label(5, 5, 5))
    assert (event.start_s, event.end_s) == (0.0, 3.0)


def test_several_labels_may_be_present_at_once() -> None:
    found = track([row(0, 0), row(5, 0), row(5, 6), row(0, 6), row(0, 0)] + [row(0, 0)] * 8)
    assert {event.label for event in found} == {"a", "b"}


def test_a_shorter_event_than_asked_for_is_rejected() -> None:
    [event] = track(one_label(0, 5, 0, 0, 0, 0, 0, 0, 0), criteria(shortest=2.0))
    assert event.rejected == SHORT


def test_a_negative_word_with_a_higher_peak_rejects_an_event() -> None:
    made = LabelRules(("a",), row(4.0), row(0.0), ("wind",))
    [event] = track([row(0, 0), row(5, 6), *[row(0, 0)] * 8], made)
    assert event.rejected == "more like 'wind'"
    [kept] = track([row(0, 0), row(5, 4), *[row(0, 0)] * 8], made)
    assert not kept.rejected


def test_a_negative_word_counts_only_against_the_labels_that_it_opposes() -> None:
    opposed = np.array([[True], [False]])
    made = LabelRules(("a", "b"), row(4.0, 4.0), row(0.0, 0.0), ("wind",), opposed)
    found = track([row(0, 0, 0), row(5, 5, 9), *[row(0, 0, 0)] * 8], made)
    assert {event.label: bool(event.rejected) for event in found} == {"a": True, "b": False}


def test_silence_between_windows_ends_an_event() -> None:
    tracker = Tracker(criteria(), Detection(), hop_s=HOP_S)
    found = tracker.feed(0.0, 2.0, row(5))
    found += tracker.feed(60.0, 62.0, row(5))
    found += tracker.finish(62.0)
    assert [(event.start_s, event.end_s) for event in found] == [(0.0, 1.25), (60.75, 62.0)]


@given(st.lists(st.tuples(*[st.floats(-2, 10)] * 3), min_size=1, max_size=80), st.floats(0.5, 8.0))
@settings(deadline=None)
def test_events_of_a_label_do_not_overlap_and_lie_inside_the_recording(
    scores: list[tuple[float, float, float]], threshold: float
) -> None:
    found = track([row(*values) for values in scores], criteria(3, threshold))
    end_s = HOP_S * (len(scores) - 1) + 2.0
    for label in "abc":
        own = sorted((e for e in found if e.label == label), key=lambda e: e.start_s)
        assert all(0 <= e.start_s < e.end_s <= end_s for e in own)
        reported = [e for e in own if not e.rejected]
        assert all(before.end_s <= after.start_s for before, after in pairwise(reported))
        assert all(e.score >= threshold for e in reported)
        # A label is reported if and only if it reaches its threshold somewhere.
        column = [values["abc".index(label)] for values in scores]
        assert bool(reported) == (max(column) >= threshold)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=400))
@settings(deadline=None)
def test_the_level_is_the_higher_of_two_running_medians(values: list[float]) -> None:
    background = Background(1.0, prior=row(0.0))
    past = [0.0] * int(LONG_S)
    for value in values:
        expected = max(np.median(past[-int(SHORT_S) :]), np.median(past[-int(LONG_S) :]))
        assert background.level(row(value))[0] == pytest.approx(expected)
        background.update(row(value), np.array([False]))
        past.append(value)


def test_a_label_that_is_held_does_not_become_its_own_background() -> None:
    background = Background(1.0, prior=row(0.0, 0.0))
    for _ in range(60):
        background.update(row(5.0, 5.0), np.array([True, False]))
    assert background.level(row(5.0, 5.0)).tolist() == [0.0, 5.0]


def test_without_a_calibration_the_first_half_minute_is_learnt_from() -> None:
    background = Background(1.0)
    rng = np.random.default_rng(0)
    for _ in range(29):
        background.update(rng.normal(size=1), np.array([False]))
    assert background.spread() is None
    background.update(rng.normal(size=1), np.array([False]))
    spread = background.spread()
    assert spread is not None
    assert 0.3 < spread[0] < 3.0


def test_levels_are_those_of_the_samples() -> None:
    track_ = LevelTrack(RATE)
    quiet, loud = 0.01 * np.ones(RATE * 10), 0.1 * np.ones(RATE * 2)
    for block in np.array_split(np.concatenate([quiet, loud, quiet]).astype(np.float32), 7):
        track_.feed(block)
    assert track_.level_db(10.0, 12.0) == pytest.approx(-20.0, abs=0.01)
    assert track_.snr_db(10.0, 12.0) == pytest.approx(10 * np.log10(99), abs=0.01)
    assert track_.snr_db(0.0, 1.0) is None


def test_levels_of_the_last_quarter_of_an_hour_are_kept() -> None:
    track_, rate = LevelTrack(100), 100
    minutes = np.repeat(0.1 * 1.5 ** -np.arange(20), 60 * rate).astype(np.float32)
    for block in np.array_split(minutes, 333):
        track_.feed(block)
    assert track_.level_db(0.0, 60.0) is None
    assert track_.level_db(300.0, 360.0) == pytest.approx(-20 - 5 * 3.522, abs=0.1)
    assert track_.level_db(1140.0, 1200.0) == pytest.approx(-20 - 19 * 3.522, abs=0.1)
    assert track_.snr_db(1140.0, 1200.0) is None
    at_once = LevelTrack(100)
    at_once.feed(minutes)
    assert at_once.level_db(300.0, 360.0) == track_.level_db(300.0, 360.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"false_alarms": 0}, "false_alarms must be a number that is positive"),
        ({"threshold": float("nan")}, "threshold must be"),
        ({"window_s": "2"}, "window_s must be"),
        ({"min_duration_s": -1}, "at least 0"),
        ({"leave": 2}, "share of the threshold"),
        ({"thresholds_from": "nowhere"}, "calibration, quiet, recording"),
    ],
)
def test_wrong_settings_are_refused_in_words(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Detection(**wrong)  # type: ignore[arg-type]


def place(seconds: float = 40.0) -> Audio:
    """A quiet noise with one tone from 20 to 23 seconds."""
    samples = noise_clip(seconds, rate=RATE).samples * 0.05
    time_s = np.arange(3 * RATE) / RATE
    samples[20 * RATE : 23 * RATE] += np.sin(2 * np.pi * 440 * time_s).astype(np.float32)
    return Audio(samples, RATE)


def events_of(audio: Audio, backbone: Backbone, **values: float) -> list[Event]:
    found = Detection(threshold=0.05, window_s=1.0, hop_s=0.5).changed(**values)
    classifier = Classifier(LABELS, backbone=backbone)
    return list(classifier.events(audio, WatchList.of(LABELS, ("none",)), found))


def test_a_stream_gives_the_events_of_the_file_however_it_is_cut(fake: Backbone) -> None:
    audio = place()
    classifier = Classifier(LABELS, backbone=fake)
    found = Detection(threshold=0.02, window_s=1.0, hop_s=0.5)
    detector = classifier.detector(WatchList.of(LABELS, ("none",)), found)
    expected = list(detector.events(audio, rejected=True))
    assert expected
    for sizes in (1_000, 16_000, 77_777):
        stream = detector.stream(RATE)
        got: list[Event] = []
        for first in range(0, len(audio.samples), sizes):
            got += stream.feed(audio.samples[first : first + sizes])
        got += stream.finish()
        assert sorted(got, key=lambda e: (e.start_s, e.end_s, e.label)) == expected
        assert stream.seconds == 40.0


def test_a_recording_without_samples_is_an_error(fake: Backbone) -> None:
    with pytest.raises(AudioError, match="too short"):
        events_of(Audio(np.zeros(0, np.float32), RATE), fake)


def test_a_silent_recording_has_no_events(fake: Backbone) -> None:
    assert events_of(Audio(np.zeros(RATE * 5, np.float32), RATE), fake) == []


def test_a_stream_that_nobody_holds_is_freed_at_once(fake: Backbone) -> None:
    """A listener begins a new one after each gap; cyclic garbage would pile up for hours."""
    settings = Detection(threshold=0.02, window_s=1.0, hop_s=0.5)
    stream = Classifier(LABELS, backbone=fake).detector(settings=settings).stream(RATE, early=True)
    stream.feed(place().samples)
    gone = weakref.ref(stream)
    gc.disable()
    try:
        del stream
        assert gone() is None
    finally:
        gc.enable()


def test_a_stream_needs_thresholds_that_are_known_before_it(fake: Backbone) -> None:
    detector = Classifier(LABELS, backbone=fake).detector(
        settings=Detection(thresholds_from="recording")
    )
    with pytest.raises(UsageError, match="need all of it"):
        detector.stream(RATE)


def test_other_wordings_of_a_label_are_averaged(fake: Backbone) -> None:
    plain = Classifier(LABELS, backbone=fake).fit().head_
    both = WatchList((WatchedLabel("a name", wordings=LABELS[:2]),), background=False)
    head = Classifier([LABELS[0]], backbone=fake).detector(both).head
    np.testing.assert_allclose(head.weights[0], plain.weights[:2].mean(axis=0), atol=1e-6)
    assert head.labels == ("a name",)


def test_the_threshold_of_labels_is_not_that_of_events(fake: Backbone) -> None:
    clip = noise_clip(3.0)
    plain, other = (
        list(Classifier(LABELS, backbone=fake, threshold=cut).events(clip)) for cut in (None, 1e-6)
    )
    assert plain == other
