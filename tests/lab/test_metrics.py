from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import accuracy_score, average_precision_score

from driftscore.errors import UndefinedMetricError, UsageError
from driftscore.lab import metrics

Ranking = tuple[NDArray[np.bool_], NDArray[np.float64]]
"""Truth and scores, clips x classes."""


@st.composite
def rankings(draw: st.DrawFn) -> Ranking:
    """Truth and scores of up to 60 clips and 5 classes; few levels make many ties."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    clips, classes = draw(st.integers(1, 60)), draw(st.integers(1, 5))
    truth = rng.random((clips, classes)) < draw(st.floats(0.05, 0.95))
    truth[rng.integers(clips), rng.integers(classes)] = True
    scores = rng.normal(size=(clips, classes))
    if draw(st.booleans()):
        scores *= 10.0 ** draw(st.integers(-300, 300))  # beyond float32, and all ties within it
    elif draw(st.booleans()):
        scores = np.round(scores * draw(st.integers(1, 4))) / 4
    return truth, scores


def slow_average_precision(truth: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    """The definition, literally: precision at each distinct score, weighted by recall gained."""
    total, recall, area = truth.sum(), 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        chosen = scores >= threshold
        area += (truth[chosen].sum() / total - recall) * truth[chosen].mean()
        recall = truth[chosen].sum() / total
    return area


@settings(max_examples=80, deadline=None)
@given(rankings())
def test_average_precision_is_scikit_learns_with_and_without_ties(case: Ranking) -> None:
    truth, scores = case
    ours = metrics.average_precisions(truth, scores)
    for column, value in enumerate(ours):
        if truth[:, column].any():
            theirs = average_precision_score(truth[:, column], scores[:, column])
            assert abs(value - theirs) < 1e-12
            assert abs(value - slow_average_precision(truth[:, column], scores[:, column])) < 1e-12
        else:
            assert np.isnan(value)


@settings(max_examples=50, deadline=None)
@given(rankings(), st.randoms(use_true_random=False))
def test_average_precision_depends_neither_on_the_order_of_clips_nor_on_a_class_constant(
    case: Ranking, random: Random
) -> None:
    truth, scores = case
    order = random.sample(range(len(truth)), len(truth))
    expected = metrics.average_precisions(truth, scores)
    np.testing.assert_array_equal(metrics.average_precisions(truth[order], scores[order]), expected)
    # A head's scores are float32 values, its offsets are added in float64: no two clips of
    # different score can meet, so subtracting a bias leaves mAP exactly as it was.
    scores = np.clip(scores, -1, 1).astype(np.float32).round(7).astype(np.float64)
    lowered = scores - 0.5 * np.float32(0.3) * np.arange(scores.shape[1])
    np.testing.assert_array_equal(
        metrics.average_precisions(truth, lowered), metrics.average_precisions(truth, scores)
    )


def test_classes_without_a_positive_are_left_out_and_counted() -> None:
    truth = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0]])
    scores = np.array([[0.9, 0.1, 0.2], [0.5, 0.9, 0.1], [0.1, 0.2, 0.3]])
    found = metrics.mean_average_precision(truth, scores)
    assert found == metrics.MeanPrecision(value=(1 + 1 / 3) / 2, classes=2, left_out=1)


def test_mean_average_precision_without_any_positive_is_an_error() -> None:
    with pytest.raises(UndefinedMetricError, match="no class has a positive"):
        metrics.mean_average_precision(np.zeros((3, 2), bool), np.ones((3, 2)))


def test_precision_of_ten_thousand_clips_of_200_classes_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random((10_231, 200)) < 0.02
    scores = (rng.normal(size=truth.shape) + truth).astype(np.float32).astype(np.float64)

    expected = average_precision_score(truth, scores, average=None)
    np.testing.assert_allclose(
        metrics.average_precisions(truth, scores), expected, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("shape", ["outliers", "infinite", "one value", "float64", "overflow"])
def test_precision_does_not_depend_on_how_scores_are_spread(shape: str) -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(3000, 3)).astype(np.float32).astype(np.float64)
    if shape == "outliers":
        scores[:5] *= 1e30
    elif shape == "infinite":
        scores[:5], scores[5:9] = np.inf, -np.inf
    elif shape == "one value":
        scores[:] = 0.1
    elif shape == "float64":
        scores = 1 + 1e-12 * rng.integers(0, 50, scores.shape).astype(np.float64)
    else:
        scores *= 1.7e308 / np.abs(scores).max()
    truth = rng.random(scores.shape) < 0.1
    for column, value in enumerate(metrics.average_precisions(truth, scores)):
        expected = slow_average_precision(truth[:, column], scores[:, column])
        assert value == pytest.approx(expected, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 50), st.integers(1, 6))
def test_accuracy_is_scikit_learns(seed: int, clips: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    truth, scores = rng.integers(classes, size=clips), rng.normal(size=(clips, classes))
    assert metrics.accuracy(truth, scores) == pytest.approx(
        accuracy_score(truth, scores.argmax(axis=1)), abs=1e-12
    )


def test_fold_accuracies_are_averaged_without_weights() -> None:
    truth = np.array([0, 0, 0, 1])
    scores = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    folds = ["b", "b", "b", "a"]
    assert metrics.accuracy(truth, scores) == 0.75

    assert metrics.fold_mean_accuracy(truth, scores, folds) == pytest.approx(5 / 6)


def test_accuracy_interval_is_that_of_resampling_clips_one_by_one() -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(4, size=120)
    scores, other = rng.normal(size=(2, 120, 4))
    scores[np.arange(120), truth] += 1
    found = metrics.accuracy_difference(
        truth, scores, other, resamples=20_000, rng=np.random.default_rng(1)
    )
    gains = metrics.hits(truth, scores).astype(float) - metrics.hits(truth, other)
    drawn = gains[rng.integers(120, size=(20_000, 120))].mean(axis=1)
    assert found.difference == pytest.approx(gains.mean(), abs=1e-12)
    assert [found.low, found.high] == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.01)
    assert found.clear


def test_rows_of_one_group_are_resampled_together() -> None:
    rng = np.random.default_rng(5)
    truth, scores = rng.integers(3, size=40), rng.normal(size=(40, 3))
    other = rng.normal(size=(40, 3))
    alone = metrics.accuracy_difference(truth, scores, other, rng=np.random.default_rng(0))
    thrice = metrics.accuracy_difference(
        np.tile(truth, 3),
        np.tile(scores, (3, 1)),
        np.tile(other, (3, 1)),
        groups=[*range(40)] * 3,
        rng=np.random.default_rng(0),
    )
    # Three copies of a clip say no more than one.
    assert (thrice.difference, thrice.low, thrice.high) == pytest.approx(
        (alone.difference, alone.low, alone.high), abs=1e-12
    )
    labels = np.eye(3, dtype=bool)[truth]
    single = metrics.precision_interval(
        labels, scores, other, resamples=50, rng=np.random.default_rng(0)
    )
    copies = metrics.precision_interval(
        np.tile(labels, (3, 1)),
        np.tile(scores, (3, 1)),
        np.tile(other, (3, 1)),
        groups=[*range(40)] * 3,
        resamples=50,
        rng=np.random.default_rng(0),
    )
    assert single is not None
    assert copies is not None
    assert (copies.low, copies.high) == pytest.approx((single.low, single.high), abs=1e-12)


@settings(max_examples=8, deadline=None)
@given(rankings(), st.integers(0, 2**32 - 1))
def test_precision_interval_is_that_of_scikit_learn_on_resampled_clips(
    case: Ranking, seed: int
) -> None:
    truth, scores = case
    other = np.round(scores + np.random.default_rng(seed).normal(size=scores.shape), 1)
    rows = np.random.default_rng(seed).integers(len(truth), size=(20, len(truth)))
    gains = [mean_gain(truth[drawn], scores[drawn], other[drawn]) for drawn in rows]
    rng = np.random.default_rng(seed)
    known = [gain for gain in gains if gain is not None]
    if len(known) < len(gains):
        assert metrics.precision_interval(truth, scores, other, resamples=20, rng=rng) is None
        return
    found = metrics.precision_interval(truth, scores, other, resamples=20, rng=rng)
    assert found is not None
    assert [found.low, found.high] == pytest.approx(np.quantile(known, [0.025, 0.975]), abs=1e-12)


def mean_gain(
    truth: NDArray[np.bool_], scores: NDArray[np.float64], other: NDArray[np.float64]
) -> float | None:
    """The difference of two mAPs by scikit-learn, None where no class has a positive."""
    classes = np.flatnonzero(truth.any(axis=0))
    gains = [
        average_precision_score(truth[:, c], scores[:, c])
        - average_precision_score(truth[:, c], other[:, c])
        for c in classes
    ]
    return float(np.mean(gains)) if gains else None


def test_precision_interval_does_not_depend_on_how_much_is_held_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    truth = rng.random((30, 3)) < 0.4
    scores, other = rng.normal(size=(2, 30, 3))
    whole = metrics.precision_interval(truth, scores, other, rng=np.random.default_rng(7))
    monkeypatch.setattr(metrics, "_COUNTS_AT_ONCE", 7 * 30)
    parts = metrics.precision_interval(truth, scores, other, rng=np.random.default_rng(7))
    assert whole == parts


def test_the_same_scores_differ_by_nothing() -> None:
    rng = np.random.default_rng(0)
    truth, scores = rng.random((30, 3)) < 0.4, rng.normal(size=(30, 3))
    found = metrics.precision_interval(truth, scores, scores - [0, 1, 2], rng=rng)
    assert found == metrics.Interval(0.0, 0.0, 0.0)
    assert found is not None
    assert not found.clear


@pytest.mark.parametrize(
    ("truth", "scores", "message"),
    [
        ([0, 1], [[0.1, np.nan], [1, 2]], "NaN in row 0"),
        ([0, 2], [[0.1, 0.2], [1, 2]], "classes 0 to 2, the scores have classes 0 to 1"),
        ([0], [[0.1, 0.2], [1, 2]], r"one class index per clip, \(2,\)"),
        ([0.0, 1.0], [[0.1, 0.2], [1, 2]], "float64"),
        ([0, 1], [1, 2], "clips x classes"),
    ],
)
def test_single_label_input_that_makes_no_sense_is_refused_with_a_reason(
    truth: ArrayLike, scores: ArrayLike, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        metrics.accuracy(truth, scores)


def test_multi_label_truth_of_another_shape_or_kind_is_refused_with_a_reason() -> None:
    with pytest.raises(UsageError, match=r"\(2, 2\), got \(2,\)"):
        metrics.average_precisions([0, 1], [[0.1, 0.2], [1.0, 2.0]])
    with pytest.raises(UsageError, match="boolean, or 0 and 1"):
        metrics.average_precisions([[0, 3], [1, 1]], [[0.1, 0.2], [1.0, 2.0]])
