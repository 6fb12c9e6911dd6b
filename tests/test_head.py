"""Heads: files, scores and refusals."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from driftscore import ClassBank, FormatError, Head, MismatchError, UsageError, compile_head
from driftscore.backbones.vectors import Matrix, unit


@pytest.fixture
def head(bank: ClassBank) -> Head:
    return compile_head(bank, "das")


@pytest.mark.parametrize("ending", ["safetensors", "npz", "json"])
def test_a_head_comes_back_from_its_file_as_it_was(head: Head, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"head.{ending}"
    head.save(path)
    found = Head.load(path)
    assert found.labels == head.labels
    assert found.made_by == json.loads(json.dumps(head.made_by))
    np.testing.assert_array_equal(found.weights, head.weights)
    np.testing.assert_array_equal(found.offsets, head.offsets)


@pytest.mark.parametrize("ending", ["safetensors", "npz", "json"])
def test_what_is_not_a_head_is_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"head.{ending}"
    with pytest.raises(FormatError):
        Head.load(path)
    path.write_bytes(b"rubbish")
    with pytest.raises(FormatError, match=r"head\."):
        Head.load(path)


def test_an_npz_with_a_pickle_inside_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "head.npz"
    np.savez(path, labels=np.array([{"a": 1}], dtype=object), weights=[[1.0]], offsets=[0.0])
    with pytest.raises(FormatError, match="pickle"):
        Head.load(path)


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 70), labels=st.integers(1, 60), seed=st.integers(0, 99))
def test_scores_do_not_depend_on_the_batch_or_the_order(count: int, labels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((labels, 96)).astype(np.float32)
    offsets = rng.standard_normal(labels).astype(np.float32)
    head = Head(tuple(map(str, range(labels))), weights, offsets)
    z = unit(rng.standard_normal((count, 96)).astype(np.float32))
    together = head.scores(z)
    alone = np.concatenate([head.scores(row) for row in z])
    order = rng.permutation(count)
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(head.scores(z[order]), together[order])


@given(z=hnp.arrays(np.float32, (5, 4), elements=st.floats(-1, 1, width=32)))
def test_scores_are_the_affine_map(z: Matrix) -> None:
    weights = np.array([[1, 2, 3, 4], [0, -1, 0, 1]], np.float32)
    head = Head(("a", "b"), weights, np.array([0.5, -2], np.float32))
    np.testing.assert_allclose(head.scores(z), z @ weights.T + [0.5, -2], atol=1e-5)


def test_a_constant_per_class_never_merges_two_scores() -> None:
    z = np.nextafter(np.float32(0.1), np.float32(1), dtype=np.float32)
    rows = np.array([[0.1], [z]], np.float32)
    head = Head(("a",), np.ones((1, 1), np.float32), np.array([-1000.1], np.float32))
    assert len(np.unique(head.scores(rows))) == 2


def test_bad_embeddings_are_refused_in_words(head: Head) -> None:
    with pytest.raises(MismatchError, match="32 dimensions, the head 64"):
        head.scores(np.ones((2, 32)))
    with pytest.raises(UsageError, match="NaN or infinite value in row 1"):
        head.scores(np.array([[1.0] * 64, [np.nan] * 64]))
    with pytest.raises(UsageError, match="must be numbers"):
        head.scores([["a"] * 64])


def test_a_head_that_does_not_fit_together_is_refused() -> None:
    with pytest.raises(UsageError, match="one weight row and one offset per label"):
        Head(("a", "b"), np.ones((3, 4), np.float32), np.zeros(3, np.float32))


def test_a_head_takes_the_place_of_text_embeddings(head: Head, rng: np.random.Generator) -> None:
    """The recipe of the README: append the offset as one more dimension."""
    z = unit(rng.standard_normal((10, 64)).astype(np.float32))
    weights = np.hstack([head.weights, head.offsets[:, None]])
    queries = np.hstack([z, np.ones((10, 1), np.float32)])
    np.testing.assert_allclose(queries @ weights.T, head.scores(z), atol=1e-6)
