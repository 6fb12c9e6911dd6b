"""False alarms per hour to thresholds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftscore import UsageError
from driftscore.events.thresholds import (
    LOW_RATE,
    MAX_REACH_SHIFT,
    MAX_RESTLESS,
    PROMISES,
    RATES,
    REACH_WEIGHT,
    TOP_SHARE,
    TYPICAL_REACH,
    multiple_for,
    own_multiples,
    promise,
    quiet_multiples,
    rate_of,
    reach,
    reach_shift,
    restlessness,
    spread_of,
)


def test_the_spread_of_normal_scores_is_their_standard_deviation() -> None:
    scores = np.random.default_rng(0).normal([3.0, -1.0], [0.5, 2.0], size=(200_000, 2))
    np.testing.assert_allclose(spread_of(scores), [0.5, 2.0], rtol=0.02)


def test_the_highest_scores_do_not_change_the_spread() -> None:
    scores = np.random.default_rng(0).normal(size=(1_000, 1))
    plain = spread_of(scores)
    scores[np.argsort(scores[:, 0])[-50:]] += 100
    np.testing.assert_array_equal(spread_of(scores), plain)


def test_own_sounds_among_the_others_hardly_widen_the_spread() -> None:
    scores = np.random.default_rng(0).normal(size=(10_000, 1))
    scores[::7] += 6  # every seventh sound is the label's own
    assert 1.0 < spread_of(scores)[0] < 2.0
    low, median, high = np.quantile(scores, (0.1, 0.5, 0.9))
    assert high - median > 3 * (median - low)


def test_the_reach_is_the_mean_of_the_highest_scores_in_spreads() -> None:
    scores = np.random.default_rng(0).normal([3.0, -1.0], [0.5, 2.0], size=(3_200, 2))
    highest = np.sort(scores, axis=0)[-round(3_200 * TOP_SHARE) :].mean(axis=0)
    expected = (highest - np.median(scores, axis=0)) / spread_of(scores)
    np.testing.assert_allclose(reach(scores), expected)
    assert reach(scores[:20]).shape == (2,)


def test_a_short_reach_lowers_a_threshold_up_to_a_limit_and_a_far_one_leaves_it() -> None:
    far = np.array([TYPICAL_REACH, TYPICAL_REACH + 1, TYPICAL_REACH - 1, 99.0, -99.0])
    expected = [0, 0, -REACH_WEIGHT, 0, -MAX_REACH_SHIFT]
    np.testing.assert_allclose(reach_shift(far), expected, atol=1e-12)


def test_a_restless_label_gets_a_higher_threshold_and_a_calm_one_none_that_is_lower() -> None:
    hours = 1.0
    usual = LOW_RATE * hours
    raised = restlessness(np.array([0.0, 0.5 * usual, 4 * usual, 8 * usual, 1e9]), hours)
    assert raised[0] == raised[1] == 0.0
    assert 0 < raised[2] < raised[3] < MAX_RESTLESS
    assert raised[4] == MAX_RESTLESS
    assert restlessness(np.array([1.0]), 0.0) > 0


def test_promises_get_worse_with_the_reach() -> None:
    levels = [promise(far) for far in np.linspace(12, 0, 50)]
    assert list(dict.fromkeys(levels)) == [word for _, word in PROMISES]


@pytest.mark.parametrize(("multiple", "rate"), RATES)
def test_the_measured_points_are_met(multiple: float, rate: float) -> None:
    assert multiple_for(rate) == pytest.approx(multiple)
    assert rate_of(multiple) == pytest.approx(rate)


@given(st.floats(1e-4, 100))
def test_a_rate_and_its_multiple_belong_together(rate: float) -> None:
    assert rate_of(multiple_for(rate)) == pytest.approx(rate, rel=1e-6)


@given(st.floats(1e-4, 100), st.floats(1e-4, 100))
def test_fewer_false_alarms_need_a_higher_threshold(one: float, other: float) -> None:
    few, many = sorted((one, other))
    assert multiple_for(few) >= multiple_for(many)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_false_alarms_are_a_positive_number(wrong: float) -> None:
    with pytest.raises(UsageError, match="must be a positive number"):
        multiple_for(wrong)


def test_with_many_quiet_hours_the_threshold_is_the_peak_that_is_reached_as_often_as_allowed() -> (
    None
):
    peaks = [[7.0, 6.5, 6.0, 5.5, 5.0, 4.5]]
    [found] = quiet_multiples(peaks, hours=8.0, false_alarms=[0.5])
    assert found == 5.5  # four peaks in eight hours


def test_with_few_quiet_hours_the_highest_peak_is_extended() -> None:
    [found] = quiet_multiples([[6.0]], hours=1.0, false_alarms=[0.5])
    assert found == pytest.approx(multiple_for(rate_of(6.0) * 0.5))
    assert found > 6.0


def test_a_quiet_recording_lowers_a_threshold_only_so_far() -> None:
    [found] = quiet_multiples([[]], hours=10.0, false_alarms=[0.1])
    assert found == pytest.approx(multiple_for(0.1) - 1.5)


def test_a_label_with_many_low_peaks_in_the_recording_gets_a_higher_threshold() -> None:
    usual = round(LOW_RATE * 2)
    calm, restless = [2.1] * usual, [2.1] * 4 * usual
    found = own_multiples([calm, restless], hours=2.0, false_alarms=[0.5, 0.5])
    assert found[0] == pytest.approx(multiple_for(0.5), abs=0.05)
    assert found[1] > found[0] + 0.5
