"""`POST /v1/embeddings` in the dialect of Infinity."""

import base64

import numpy as np
from fastapi.testclient import TestClient

from driftscore import Backbone
from driftscore.embedder import Embedder
from driftscore.service.settings import Limits, ServiceSettings
from tests.conftest import embed_recording

from .conftest import clip_bytes, serving


def test_texts_have_the_embeddings_of_the_backbone(mini_client: TestClient, mini: Backbone) -> None:
    texts = ["a dog barks", "rain"]
    answer = mini_client.post("/v1/embeddings", json={"model": "mini", "input": texts})
    body = answer.json()
    assert body["object"] == "list"
    assert body["model"] == "mini"
    assert [one["index"] for one in body["data"]] == [0, 1]
    rows = np.array([one["embedding"] for one in body["data"]], np.float32)
    assert np.array_equal(rows, mini.embed_text(texts))


def test_recordings_have_the_embeddings_of_the_embedder(
    mini_client: TestClient, mini: Backbone
) -> None:
    clips = [clip_bytes(2.0, seed) for seed in (1, 2)]
    plain = [base64.b64encode(clip).decode() for clip in clips]
    inputs = [f"data:audio/wav;base64,{plain[0]}", plain[1]]
    asked = {"input": inputs, "modality": "audio", "encoding_format": "base64"}
    answer = mini_client.post("/v1/embeddings", json=asked)
    for one, clip in zip(answer.json()["data"], clips, strict=True):
        row = np.frombuffer(base64.b64decode(one["embedding"]), "<f4")
        assert np.array_equal(row, embed_recording(clip, mini))


def test_recordings_are_bounded_together(fake: Backbone) -> None:
    limits, clip = Limits(seconds=2.5), base64.b64encode(clip_bytes(1.0)).decode()
    embedder = Embedder(fake, text_cache=False)
    with serving(ServiceSettings(backbone=embedder, limits=limits)) as client:
        asked = {"input": [clip] * 2, "modality": "audio"}
        assert client.post("/v1/embeddings", json=asked).status_code == 200
        more = client.post("/v1/embeddings", json={**asked, "input": [clip] * 3})
        assert more.status_code == 413
        assert "together" in more.json()["error"]


def test_a_wrong_request_is_an_error_in_words(fake: Backbone) -> None:
    limits = Limits(inputs=3, label_chars=20)
    embedder = Embedder(fake, text_cache=False)
    with serving(ServiceSettings(backbone=embedder, limits=limits)) as client:
        for status, words, body in (
            (422, "input", {}),
            (422, "modality", {"input": "a", "modality": "image"}),
            (422, "encoding_format", {"input": "a", "encoding_format": "int8"}),
            (400, "'fake'", {"input": "a", "model": "other"}),
            (400, "inputs are allowed, got 0", {"input": []}),
            (400, "inputs are allowed, got 4", {"input": ["a"] * 4}),
            (400, "20 characters", {"input": "a" * 21}),
            (400, "empty", {"input": " "}),
            (400, "not base64", {"input": "a b", "modality": "audio"}),
            (400, "not opened", {"input": "https://x.org/a", "modality": "audio"}),
            (415, "not a sound", {"input": "aGVsbG8=", "modality": "audio"}),
        ):
            answer = client.post("/v1/embeddings", json=body)
            assert answer.status_code == status, answer.text
            assert words in answer.json()["error"]
