"""Embeddings of any model, through a file: texts out, embeddings in, a head back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from driftscore import (
    Backbone,
    ClassBank,
    Classifier,
    Head,
    build_bank,
    compile_head,
    load_backbone,
)
from driftscore.audio.recordings import Audio
from driftscore.backbones.stored import EmbeddingFile, load_vectors
from driftscore.backbones.vectors import Matrix, Scores, unit
from driftscore.errors import FormatError, UsageError

from .conftest import LABELS


@pytest.fixture
def store(fake: Backbone, tmp_path: Path) -> Path:
    """Encode the texts elsewhere, as a user would, and save them unscaled."""
    texts = Classifier(LABELS).texts()
    path = tmp_path / "vectors.npz"
    np.savez(path, texts=texts, text_embeddings=fake.embed_text(texts) * 3, model="my-clap")
    return path


def test_stored_embeddings_give_the_head_of_the_model_that_made_them(
    store: Path, bank: ClassBank
) -> None:
    backbone = load_backbone(store)
    assert backbone.name == "my-clap"
    found = compile_head(build_bank(LABELS, backbone), "das")
    np.testing.assert_allclose(found.weights, compile_head(bank, "das").weights, atol=1e-6)


def test_a_missing_text_is_named(store: Path) -> None:
    with pytest.raises(UsageError, match="lacks texts that are needed, such as 'rain with"):
        build_bank([*LABELS, "rain"], load_backbone(store))


def test_stored_embeddings_cannot_embed_audio(store: Path) -> None:
    backbone = load_backbone(store)
    clip = Audio(np.ones(480_000, np.float32), 48_000)
    for clips in ([], [clip]):
        with pytest.raises(UsageError, match="cannot embed audio"):
            backbone.embed_audio(clips)
    with pytest.raises(UsageError, match="cannot embed audio"):
        backbone.encode(backbone.features(clip.samples))


def test_stored_embeddings_are_not_cached_again(store: Path) -> None:
    assert not load_backbone(store).caches_text


def test_embeddings_without_texts_are_in_the_order_of_the_prompts(
    fake: Backbone, tmp_path: Path
) -> None:
    texts = tuple(Classifier(LABELS).texts())
    np.save(tmp_path / "rows.npy", fake.embed_text(texts))
    content = load_vectors(tmp_path / "rows.npy", texts)
    np.testing.assert_allclose(content.text_rows, fake.embed_text(texts), atol=1e-6)
    np.save(tmp_path / "few.npy", np.ones((5, 4)))
    with pytest.raises(FormatError, match="627 rows"):
        load_vectors(tmp_path / "few.npy", texts)


def test_clip_embeddings_come_back_from_their_file(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    rows = rng.standard_normal((4, 8)).astype(np.float32)
    np.savez(tmp_path / "clips.npz", files=list("abcd"), audio_embeddings=rows)
    found = EmbeddingFile.load(tmp_path / "clips.npz")
    assert found.files == ("a", "b", "c", "d")
    np.testing.assert_allclose(np.linalg.norm(found.audio_rows, axis=1), 1, atol=1e-6)
    found.save(tmp_path / "again.npz")
    np.testing.assert_array_equal(
        EmbeddingFile.load(tmp_path / "again.npz").audio_rows, found.audio_rows
    )


def test_a_row_is_scaled_the_same_alone_and_among_a_thousand(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((1100, 527)).astype(np.float32)
    together = unit(rows)
    for number in (0, 511, 512, 1099):
        np.testing.assert_array_equal(unit(rows[number : number + 1])[0], together[number])
    rows[700] = 0
    with pytest.raises(UsageError, match="row 700 is all zeros"):
        unit(rows)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones(3)}, r"has the arrays \['x'\]"),
        ({"texts": ["a"]}, "only one of texts and text_embeddings"),
        ({"texts": ["a"], "text_embeddings": np.ones((2, 3))}, "1 texts and 2 rows"),
        (
            {"files": np.array([None]), "audio_embeddings": np.ones((1, 3))},
            "needs pickle, which",
        ),
    ],
)
def test_a_bad_embedding_file_is_refused_with_the_reason(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(FormatError, match=message):
        EmbeddingFile.load(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    ("rows", "message"),
    [(np.zeros((1, 3)), "row 0 is all zeros"), (np.full((1, 3), np.inf), "NaN or infinite")],
)
def test_rows_without_a_direction_are_refused(
    tmp_path: Path, rows: NDArray[np.float64], message: str
) -> None:
    np.savez(tmp_path / "bad.npz", texts=["a"], text_embeddings=rows)
    with pytest.raises(FormatError, match=message):
        EmbeddingFile.load(tmp_path / "bad.npz")


def test_ten_thousand_clips_and_two_hundred_labels_are_one_product(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    calls: list[tuple[int, ...]] = []

    def products(left: Matrix, right: Matrix) -> Scores:
        calls.append(left.shape)
        return np.zeros((len(left), len(right)))

    monkeypatch.setattr("driftscore.scoring.head.products", products)
    head = Head(
        tuple(map(str, range(200))),
        rng.standard_normal((200, 32), np.float32),
        np.zeros(200, np.float32),
    )
    assert head.scores(rng.standard_normal((10_000, 32), np.float32)).shape == (10_000, 200)
    assert calls == [(10_000, 32)]
