"""Tag space against its formula computed slowly; rows that do not depend on other rows."""

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from driftscore.backbones.mn04.tagspace import (
    KIND,
    TAGS,
    load_space,
    logits_to_tags,
    sentences_to_tags,
)
from driftscore.backbones.protocol import TAG_SPACE
from driftscore.backbones.vectors import Matrix, Vector
from driftscore.errors import FormatError, MismatchError
from driftscore.storage.tensors import write_tensors


def _unit_rows(count: int, width: int, seed: int) -> Matrix:
    rows = np.random.default_rng(seed).normal(size=(count, width))
    unit: Matrix = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def test_text_rows_equal_the_formula_computed_slowly() -> None:
    sentences, anchors = _unit_rows(3, 8, 1), _unit_rows(5, 8, 2)
    rows = sentences_to_tags(sentences, anchors, tau=20.0)
    for sentence, row in zip(sentences.tolist(), rows, strict=True):
        dots = [
            math.fsum(a * b for a, b in zip(k, sentence, strict=True)) for k in anchors.tolist()
        ]
        powers = [math.exp(20 * dot) for dot in dots]
        length = math.sqrt(math.fsum(p * p for p in powers))
        assert row == pytest.approx([p / length for p in powers], abs=1e-6)


def test_clip_rows_are_unit_z_scores() -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(4, 6)).astype(np.float32)
    mu, sigma = rng.normal(size=6).astype(np.float32), rng.uniform(0.5, 2, 6).astype(np.float32)
    rows = logits_to_tags(logits, mu, sigma)
    scores = (logits - mu) / sigma
    assert rows == pytest.approx(scores / np.linalg.norm(scores, axis=1, keepdims=True), abs=1e-6)


def test_a_row_has_the_same_bits_alone_and_in_any_batch() -> None:
    sentences, anchors = _unit_rows(40, 384, 4), _unit_rows(TAGS, 384, 5)
    together = sentences_to_tags(sentences, anchors, tau=50.0)
    for index in (0, 7, 39):
        alone = sentences_to_tags(sentences[index : index + 1], anchors, tau=50.0)
        assert np.array_equal(alone[0], together[index])
    logits = np.random.default_rng(6).normal(size=(9, TAGS)).astype(np.float32)
    mu, sigma = np.zeros(TAGS, np.float32), np.ones(TAGS, np.float32)
    rows = logits_to_tags(logits, mu, sigma)
    assert np.array_equal(logits_to_tags(logits[4:5], mu, sigma)[0], rows[4])


def test_a_high_temperature_overflows_nowhere() -> None:
    anchors = _unit_rows(5, 8, 2)
    rows = sentences_to_tags(anchors, anchors, tau=10_000.0)
    assert rows == pytest.approx(np.eye(5), abs=1e-6)


def test_vectors_of_another_encoder_are_refused() -> None:
    with pytest.raises(MismatchError, match="another sentence encoder"):
        sentences_to_tags(_unit_rows(1, 7, 1), _unit_rows(5, 8, 2), tau=1.0)
    with pytest.raises(MismatchError, match="statistics of 5 tags"):
        logits_to_tags(_unit_rows(1, 7, 1), np.zeros(5, np.float32), np.ones(5, np.float32))


def _write(path: Path, anchors: NDArray[np.floating], sigma: Vector) -> None:
    about = {"names": [f"tag {n}" for n in range(len(anchors))], "tau": 50.0}
    tensors = {"anchors": anchors, "mu": np.zeros_like(sigma), "sigma": sigma}
    write_tensors(path, tensors, kind=KIND, about=about)


def test_a_space_comes_back_from_its_file_with_unit_anchors(tmp_path: Path) -> None:
    anchors = _unit_rows(TAGS, 16, 8).astype(np.float16)
    _write(tmp_path / "space.safetensors", anchors, np.ones(TAGS, np.float32))
    space = load_space(tmp_path / "space.safetensors")
    assert space.names[3] == "tag 3"
    assert space.tau == 50.0
    assert np.linalg.norm(space.anchors, axis=1) == pytest.approx(np.ones(TAGS), abs=1e-6)
    assert space.embed_sentences(space.anchors[:2]).argmax(1).tolist() == [0, 1]
    assert space.embed_logits(np.eye(TAGS, dtype=np.float32)[:2]).argmax(1).tolist() == [0, 1]


@pytest.mark.parametrize(("tags", "sigma"), [(TAGS, 0.0), (TAGS - 1, 1.0)])
def test_an_incomplete_space_is_refused(tmp_path: Path, tags: int, sigma: float) -> None:
    _write(tmp_path / "bad", _unit_rows(tags, 16, 8), np.full(tags, sigma, np.float32))
    with pytest.raises(FormatError, match="not a complete tag space"):
        load_space(tmp_path / "bad")


def test_a_truncated_space_is_refused_by_name(tmp_path: Path) -> None:
    content = TAG_SPACE.read_bytes()
    (tmp_path / "cut").write_bytes(content[: len(content) // 2])
    with pytest.raises(FormatError, match=r"cut is not .* tag space"):
        load_space(tmp_path / "cut")


def test_the_shipped_space_has_527_named_tags() -> None:
    space = load_space()
    assert len(set(space.names)) == TAGS
    assert space.anchors.shape == (TAGS, 384)
    assert space.names[0] == "Speech"
