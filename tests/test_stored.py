"""Vectors of any model join by a file: prompts out, vectors in, a head back."""

import numpy as np
import pytest

from driftscore import Classifier, Head, build_bank, compile_head, load_backbone
from driftscore.embeddings import EmbeddingFile, load_vectors
from driftscore.errors import FormatError, UsageError
from driftscore.vectors import unit

from .conftest import LABELS


@pytest.fixture
def store(fake, tmp_path):
    """Encode the texts elsewhere, as a user would, and save them unscaled."""
    texts = Classifier(LABELS).texts()
    path = tmp_path / "vectors.npz"
    np.savez(path, texts=texts, text_embeddings=fake.embed_text(texts) * 3, model="my-clap")
    return path


def test_stored_vectors_give_the_head_of_the_model_that_made_them(store, fake, bank):
    backbone = load_backbone(store)
    assert backbone.name == "my-clap"
    found = compile_head(build_bank(LABELS, backbone), "das")
    np.testing.assert_allclose(found.weights, compile_head(bank, "das").weights, atol=1e-6)


def test_a_missing_text_is_named(store):
    with pytest.raises(UsageError, match="lacks texts that are needed, such as 'rain with"):
        build_bank([*LABELS, "rain"], load_backbone(store))


def test_stored_vectors_cannot_hear(store):
    with pytest.raises(UsageError, match="cannot hear"):
        load_backbone(store).embed_audio([])


def test_vectors_without_texts_are_taken_in_the_order_of_the_prompts(fake, tmp_path):
    texts = tuple(Classifier(LABELS).texts())
    np.save(tmp_path / "rows.npy", fake.embed_text(texts))
    content = load_vectors(tmp_path / "rows.npy", texts)
    np.testing.assert_allclose(content.text_rows, fake.embed_text(texts), atol=1e-6)
    np.save(tmp_path / "few.npy", np.ones((5, 4)))
    with pytest.raises(FormatError, match="627 rows are wanted"):
        load_vectors(tmp_path / "few.npy", texts)


def test_clip_vectors_come_back_from_their_file(tmp_path, rng):
    rows = rng.standard_normal((4, 8)).astype(np.float32)
    np.savez(tmp_path / "clips.npz", files=list("abcd"), audio_embeddings=rows)
    found = EmbeddingFile.load(tmp_path / "clips.npz")
    assert found.files == ("a", "b", "c", "d")
    np.testing.assert_allclose(np.linalg.norm(found.audio_rows, axis=1), 1, atol=1e-6)
    found.save(tmp_path / "again.npz")
    np.testing.assert_array_equal(
        EmbeddingFile.load(tmp_path / "again.npz").audio_rows, found.audio_rows
    )


def test_a_row_is_scaled_the_same_alone_and_among_a_thousand(rng):
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
        ({"files": np.array([None]), "audio_embeddings": np.ones((1, 3))}, "without pickle"),
    ],
)
def test_a_bad_embedding_file_is_refused_in_words(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(FormatError, match=message):
        EmbeddingFile.load(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    ("rows", "message"),
    [(np.zeros((1, 3)), "row 0 is all zeros"), (np.full((1, 3), np.inf), "NaN or infinite")],
)
def test_vectors_without_a_direction_are_refused(tmp_path, rows, message):
    np.savez(tmp_path / "bad.npz", texts=["a"], text_embeddings=rows)
    with pytest.raises(UsageError, match=message):
        EmbeddingFile.load(tmp_path / "bad.npz")


def test_ten_thousand_clips_and_two_hundred_labels_are_one_product(monkeypatch, rng):
    calls = []
    monkeypatch.setattr(
        "driftscore.head.products", lambda z, w: calls.append(z.shape) or np.zeros((len(z), len(w)))
    )
    head = Head(tuple(map(str, range(200))), rng.standard_normal((200, 32)), np.zeros(200))
    assert head.scores(rng.standard_normal((10_000, 32))).shape == (10_000, 200)
    assert calls == [(10_000, 32)]
