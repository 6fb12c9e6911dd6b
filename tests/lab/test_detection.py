"""Detection metrics against sed_eval and psds_eval: golden values, and the packages themselves.

`make sed-env` makes their environment; `.venv-sed/bin/python tests/lab/sed_oracle.py` writes
golden/detection.json.
"""

import itertools
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftscore.errors import UndefinedMetricError, UsageError
from driftscore.events.tracking import Event
from driftscore.lab.detection import (
    ONSET,
    OVERLAP,
    Matching,
    block_counts,
    count,
    count_within,
    detection_curve,
    f1_values,
    joined,
    match,
    onset_errors,
    resampled,
)
from driftscore.lab.psds import PsdsSettings, by_threshold, psds

GOLDEN = Path(__file__).with_name("golden") / "detection.json"
Case = dict[str, Any]


def event(label: str, start_s: float, end_s: float, score: float = 0.0) -> Event:
    return Event(label, start_s, end_s, score)


def events_of(case: Case) -> tuple[list[Event], list[Event]]:
    return [event(**e) for e in case["truth"]], [event(**e) for e in case["found"]]


def check_case(case: Case) -> None:
    """Compare every number that the oracles give for a case with ours."""
    truth, found = events_of(case)
    for expected in case["sed_eval"]:
        kept = [event for event in found if event.score >= expected["threshold"]]
        matching = Matching(expected["onset_s"], expected["offset"])
        ours = count(truth, kept, matching)
        assert (ours.hits, ours.hits + ours.missed, ours.hits + ours.false_alarms) == (
            expected["hits"], expected["true"], expected["found"],
        )  # fmt: skip
        assert np.nan_to_num(expected["f1"]) == pytest.approx(ours.f1, abs=1e-12)
        curve = detection_curve(truth, found, matching, seconds=case["seconds"])
        at = np.flatnonzero(curve.thresholds >= expected["threshold"])
        reached = curve.recall[at[-1]] if len(at) else 0.0
        assert reached * len(truth) == pytest.approx(expected["hits"])
    for expected in case["psds_eval"]:
        values = {name: value for name, value in expected.items() if name != "psds"}
        score = psds(truth, by_threshold(found), PsdsSettings(**values), seconds=case["seconds"])
        assert score == pytest.approx(expected["psds"], abs=1e-12)


@pytest.mark.parametrize("case", json.loads(GOLDEN.read_text(encoding="utf-8")))
def test_numbers_are_those_of_sed_eval_and_psds_eval(case: Case) -> None:
    check_case(case)


def test_golden_values_are_not_trivial() -> None:
    cases = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert len(cases) == 12
    values = [e["psds"] for case in cases for e in case["psds_eval"]]
    assert sum(value > 0.02 for value in values) > 10
    assert len({e["hits"] for case in cases for e in case["sed_eval"]}) > 6


def test_numbers_of_new_cases_are_those_of_sed_eval_and_psds_eval() -> None:
    python = os.environ.get("DRIFTSCORE_SED_PYTHON")
    if not python:
        pytest.skip("NOT RUN: set DRIFTSCORE_SED_PYTHON (make sed-env) to compare to sed_eval")
    script = str(Path(__file__).with_name("sed_oracle.py"))
    done = subprocess.run([python, script, "7", "8"], capture_output=True, text=True, check=True)
    for case in json.loads(done.stdout):
        check_case(case)


# Properties.

# Eighths of a second are exact, also after recordings are joined.
TIMES = st.integers(0, 320).map(lambda eighths: eighths / 8)
LABELS = st.sampled_from(["dog", "siren"])
FOUND = st.builds(
    lambda label, start, length, score: event(label, start, start + length, score),
    LABELS,
    TIMES,
    st.integers(1, 48).map(lambda eighths: eighths / 8),
    st.integers(0, 4).map(float),
)
MATCHINGS = st.sampled_from([OVERLAP, ONSET, Matching(0.5, offset=True)])


def most_matches(truth: Sequence[Event], found: Sequence[Event], matching: Matching) -> int:
    """Return the largest number of one-to-one matches by trying all of them."""
    allowed = matching.allowed(truth, found)

    def best(true: int, free: frozenset[int]) -> int:
        if true == len(truth):
            return 0
        options = [1 + best(true + 1, free - {f}) for f in free if allowed[true, f]]
        return max([best(true + 1, free), *options])

    return best(0, frozenset(range(len(found))))


@settings(deadline=None)
@given(st.lists(FOUND, max_size=5), st.lists(FOUND, max_size=5), MATCHINGS)
def test_as_many_events_as_possible_are_matched_one_to_one(
    truth: list[Event], found: list[Event], matching: Matching
) -> None:
    pairs = match(truth, found, matching)
    assert len(pairs) == most_matches(truth, found, matching)
    assert len({p.truth for p in pairs}) == len({p.detected for p in pairs}) == len(pairs)
    assert all(matching.allowed(truth, found)[p.truth, p.detected] for p in pairs)


@settings(deadline=None)
@given(st.lists(FOUND, min_size=1, max_size=8), st.lists(FOUND, max_size=12), MATCHINGS)
def test_a_curve_is_what_counting_at_each_threshold_gives(
    truth: list[Event], found: list[Event], matching: Matching
) -> None:
    curve = detection_curve(truth, found, matching, seconds=1800)
    assert curve.thresholds.tolist() == sorted({e.score for e in found}, reverse=True)
    for number, threshold in enumerate(curve.thresholds):
        counts = count(truth, [e for e in found if e.score >= threshold], matching)
        assert curve.precision[number] == pytest.approx(counts.precision)
        assert curve.recall[number] == pytest.approx(counts.recall)
        assert curve.false_alarms_per_hour[number] == pytest.approx(2 * counts.false_alarms)
        assert curve.f1[number] == pytest.approx(counts.f1)
    for limit in (0.0, 4.0, 1e9):
        allowed = curve.recall[curve.false_alarms_per_hour <= limit]
        assert curve.recall_at(limit) == max(allowed, default=0.0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.lists(FOUND, max_size=4), st.lists(FOUND, max_size=4)), max_size=4))
def test_joined_recordings_count_as_much_as_each_alone(
    recordings: list[tuple[list[Event], list[Event]]],
) -> None:
    truth, found, seconds = joined((t, f, 60.0) for t, f in recordings)
    assert seconds == 60 * len(recordings)
    for matching in (OVERLAP, ONSET):
        hits = sum(count(t, f, matching).hits for t, f in recordings)
        assert count(truth, found, matching).hits == hits


@settings(deadline=None)
@given(st.lists(FOUND, max_size=8), st.lists(FOUND, max_size=8), MATCHINGS)
def test_the_counts_of_minutes_add_up(
    truth: list[Event], found: list[Event], matching: Matching
) -> None:
    counts = count(truth, found, matching)
    table = block_counts(truth, found, matching, seconds=40, block_s=7)
    assert table.shape == (6, 3)
    assert table.sum(axis=0).tolist() == [counts.hits, counts.missed, counts.false_alarms]


# Examples.


def test_a_second_detection_of_one_event_is_a_false_alarm() -> None:
    truth = [event("dog", 10, 15)]
    found = [event("dog", 10, 12, 1.0), event("dog", 13, 15, 2.0)]
    counts = count(truth, found, OVERLAP)
    assert (counts.hits, counts.missed, counts.false_alarms) == (1, 0, 1)
    assert (counts.precision, counts.recall) == (0.5, 1.0)
    assert counts.f1 == pytest.approx(2 / 3)


def test_the_label_and_the_tolerance_decide_what_is_right() -> None:
    truth = [event("dog", 10, 15)]
    assert count(truth, [event("siren", 10, 15)], OVERLAP).hits == 0
    assert count(truth, [event("dog", 15, 16)], OVERLAP).hits == 0  # it only touches
    assert count(truth, [event("dog", 14, 16)], OVERLAP).hits == 1
    assert count(truth, [event("dog", 14, 16)], ONSET).hits == 0
    assert count(truth, [event("dog", 9, 9.5)], ONSET).hits == 1  # without overlap
    assert count(truth, [event("dog", 10, 12.4)], Matching(1.0, offset=True)).hits == 0
    assert count(truth, [event("dog", 10, 12.5)], Matching(1.0, offset=True)).hits == 1


def test_onset_errors_are_those_of_the_nearest_matches() -> None:
    truth = [event("dog", 10, 30), event("siren", 50, 60)]
    found = [
        event("dog", 25, 29),
        event("dog", 10.5, 20),
        event("siren", 49, 51),
    ]
    for order in itertools.permutations(found):
        assert onset_errors(truth, order, OVERLAP).tolist() == [0.5, -1.0]


def test_events_in_the_quiet_part_are_those_that_reach_into_it() -> None:
    found = [event("dog", *times) for times in ((0, 10), (8, 10.1), (12, 13), (19.9, 30), (20, 21))]
    assert count_within(found, 10, 20) == 3


def test_undefined_numbers_are_nan_or_an_error() -> None:
    nothing = count([], [], OVERLAP)
    assert all(np.isnan(value) for value in (nothing.precision, nothing.recall, nothing.f1))
    assert count([event("dog", 0, 1)], [], OVERLAP).f1 == 0
    with pytest.raises(UndefinedMetricError, match="no true event"):
        detection_curve([], [event("dog", 0, 1)], OVERLAP, seconds=60)
    with pytest.raises(UndefinedMetricError, match="no best threshold"):
        _ = detection_curve([event("dog", 0, 1)], [], OVERLAP, seconds=60).best
    with pytest.raises(UndefinedMetricError, match="no true event"):
        psds([], [[event("dog", 0, 1)]], seconds=60)


def test_the_best_threshold_has_the_highest_f1() -> None:
    truth = [event("dog", 10, 15), event("dog", 30, 35)]
    times = ((10, 15, 5), (20, 22, 4), (31, 33, 3), (50, 51, 2))
    found = [event("dog", *values) for values in times]
    curve = detection_curve(truth, found, OVERLAP, seconds=3600)
    assert curve.thresholds[curve.best] == 3
    assert curve.f1[curve.best] == pytest.approx(0.8)
    assert curve.recall_at(0.5) == 0.5
    assert curve.recall_at(1) == 1


def test_resampled_minutes_give_intervals_that_contain_the_value() -> None:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 3, size=(120, 3))
    first, second = resampled([table, table], rng=rng)
    assert np.array_equal(first, second)  # the same draws: differences are paired
    low, high = np.quantile(f1_values(first), [0.025, 0.975])
    assert low < f1_values(table.sum(axis=0)) < high
    assert 0.05 < high - low < 0.3
    with pytest.raises(UsageError, match="numbers differ"):
        resampled([table, table[1:]], rng=rng)


def test_a_perfect_detector_has_a_psds_of_one() -> None:
    truth = [event(label, start, start + 5) for start, label in itertools.product(
        (10, 50), ("dog", "rain"))]  # fmt: skip
    assert psds(truth, [truth], seconds=3600) == pytest.approx(1.0)
    assert psds(truth, [], seconds=3600) == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Matching(-1.0), "onset_s must be at least 0, got -1.0"),
        (lambda: Matching(float("nan")), "onset_s must be at least 0"),
        (lambda: Matching(offset=True), "needs onset_s"),
        (
            lambda: count([event("dog", 2, 1)], [], OVERLAP),
            "must not end before they start",
        ),
        (lambda: PsdsSettings(dtc=2), "shares from 0 to 1"),
        (lambda: PsdsSettings(most_per_hour=0), "most_per_hour must be positive"),
        (
            lambda: psds([event("dog", 0, 2), event("dog", 1, 3)], [], seconds=9),
            "must not overlap or be empty: 'dog' from 1 to 3 s",
        ),
        (
            lambda: detection_curve([event("dog", 0, 2)], [], OVERLAP, seconds=0),
            "seconds must be positive, got 0",
        ),
    ],
)
def test_values_that_make_no_sense_are_errors_with_the_reason(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()
