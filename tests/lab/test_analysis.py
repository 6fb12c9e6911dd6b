import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftscore.lab.report.analysis import Alignment, BetaGain, advise, class_gains, summarise
from driftscore.lab.runs.drifts import common_share, direction_agreement, drift_cosines


def test_the_cosine_of_drifts_is_that_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    clean, noisy = rng.standard_normal((2, 6, 8)).astype(np.float32)
    drifts = rng.standard_normal((3, 8)).astype(np.float32)
    present = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [1, 1, 0], [0, 1, 0]], bool)
    found = drift_cosines(clean, noisy, present, drifts)
    for c in (0, 1):
        audio = noisy[present[:, c]].mean(axis=0) - clean[present[:, c]].mean(axis=0)
        cosine = audio @ drifts[c] / np.linalg.norm(audio) / np.linalg.norm(drifts[c])
        assert found[c] == pytest.approx(cosine, abs=1e-6)
    assert np.isnan(found[2])  # a class without a clip has no drift


def test_a_drift_that_vanishes_has_no_cosine() -> None:
    rows = np.ones((2, 4), np.float32)
    assert np.isnan(drift_cosines(rows, rows, np.ones((2, 1), bool), rows[:1])).all()
    moved = rows + np.eye(2, 4, dtype=np.float32)
    assert np.isnan(drift_cosines(rows, moved, np.ones((2, 1), bool), 0 * rows[:1])).all()


@given(st.integers(1, 6), st.integers(0, 99))
def test_the_common_share_is_one_for_equal_drifts_and_small_for_unrelated_ones(
    classes: int, seed: int
) -> None:
    drift = np.random.default_rng(seed).standard_normal(16)
    same = np.tile(drift / np.linalg.norm(drift), (classes, 1)).astype(np.float32)
    assert common_share(same) == pytest.approx(1, abs=1e-5)
    assert common_share(np.eye(classes, 16, dtype=np.float32)) == pytest.approx(1 / classes)
    assert direction_agreement(same, same) == pytest.approx(np.ones(classes), abs=1e-5)


def test_class_gains_count_each_class_and_leave_failed_clips_out() -> None:
    truth = np.array([0, 0, 1, 1, 2])
    first = np.array([0, 0, 0, 1, -1], np.int16)
    second = np.array([0, 1, 1, 1, 2], np.int16)
    gains = class_gains(truth, first, second, 4)
    assert gains[:2].tolist() == [0.5, -0.5]
    assert np.isnan(gains[2:]).all()


def test_the_summary_leaves_out_what_is_undefined() -> None:
    found = summarise([0.5, None, -0.1, 0.2])
    assert found is not None
    assert (found.mean, found.positive) == pytest.approx((0.2, 2 / 3))
    assert found.classes == 3
    assert summarise([None]) is None


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        (
            [BetaGain(0.25, 3.0, 1.0, 5.0)],
            "Use DAS for my site: with beta 0.25 it gains +3.0 points",
        ),
        ([BetaGain(0.1, 1.0, 0.5, 2), BetaGain(0.25, 2.0, 1, 3)], "with beta 0.25"),
        ([BetaGain(0.25, 0.3, 0.1, 0.5)], "DAS helps my site by little"),
        ([BetaGain(0.25, 0.4, -1.0, 2.0)], "there is no clear gain"),
        ([BetaGain(0.25, -2.0, -3.0, -1.0)], "Stay with cosine for my site"),
        ([], "no measurement"),
    ],
)
def test_advice_follows_the_interval(gains: list[BetaGain], expected: str) -> None:
    assert expected in advise(gains, None, what="my site")
    assert "75%" in advise(gains, Alignment(0.1, 0.75, 4), what="x") or not gains
