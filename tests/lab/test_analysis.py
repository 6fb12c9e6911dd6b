import numpy as np
import pytest

from driftscore.lab.metrics import Interval
from driftscore.lab.report.findings import advise
from driftscore.lab.report.results import Alignment
from driftscore.lab.runs.scoring import drift_cosines


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


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        (
            {0.25: Interval(3.0, 1.0, 5.0)},
            "Use DAS for my site: with beta 0.25 it gains +3.0 points",
        ),
        ({0.1: Interval(1.0, 0.5, 2), 0.25: Interval(2.0, 1, 3)}, "with beta 0.25"),
        ({0.25: Interval(0.3, 0.1, 0.5)}, "DAS helps my site by little"),
        ({0.25: Interval(0.4, -1.0, 2.0)}, "there is no clear gain"),
        ({0.25: Interval(-2.0, -3.0, -1.0)}, "Stay with cosine for my site"),
    ],
)
def test_advice_follows_the_interval(gains: dict[float, Interval], expected: str) -> None:
    assert expected in advise(gains, None, what="my site")
    assert "75%" in advise(gains, Alignment(0.1, 0.75, 4), what="x")
