import numpy as np
import pytest

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
