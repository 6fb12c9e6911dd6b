"""`POST /hf`: every shape that Hugging Face clients send, and the real Python client."""

import base64
import json

import huggingface_hub
import pytest
from fastapi.testclient import TestClient

from driftscore import Backbone, load_backbone, pipeline
from driftscore.embedder import Embedder
from driftscore.service.app import create_app
from driftscore.service.settings import ServiceSettings

from .conftest import clip_bytes, threaded

WORDS = ["dog bark", "siren", "rain"]
CLIP = clip_bytes(2.0)
TEXT = base64.b64encode(CLIP).decode()


def expected(
    backbone: Backbone, template: str | None = None, top_k: int | None = None
) -> list[dict[str, object]]:
    made = pipeline(model=Embedder(backbone, text_cache=False))
    answer = made([CLIP], WORDS, hypothesis_template=template, top_k=top_k)[0]
    return [{"label": one["label"], "score": one["score"]} for one in answer]


@pytest.mark.parametrize("kind", ["audio/wav", "audio/mpeg", "application/octet-stream", None])
def test_raw_bytes_with_labels_in_the_query_give_the_answer_of_the_pipeline(
    mini_client: TestClient, mini: Backbone, kind: str | None
) -> None:
    headers = {} if kind is None else {"content-type": kind}
    answer = mini_client.post(
        "/hf?candidate_labels=dog%20bark,siren,rain", content=CLIP, headers=headers
    )
    assert answer.json() == expected(mini)


@pytest.mark.parametrize(
    "inputs", [TEXT, {"image": TEXT}, {"audio": TEXT}, f"data:audio/wav;base64,{TEXT}"]
)
def test_json_gives_the_answer_of_the_pipeline(
    mini_client: TestClient, mini: Backbone, inputs: object
) -> None:
    template = "the sound of {}"
    parameters = {"candidate_labels": WORDS, "hypothesis_template": template, "top_k": 2}
    answer = mini_client.post("/hf", json={"inputs": inputs, "parameters": parameters})
    assert answer.status_code == 200, answer.text
    assert answer.json() == expected(mini, template, top_k=2)


def test_the_answer_is_sorted_and_adds_up_to_one(fake_client: TestClient) -> None:
    answer = fake_client.post("/hf", params={"candidate_labels": ",".join(WORDS)}, content=CLIP)
    scores = [one["score"] for one in answer.json()]
    assert scores == sorted(scores, reverse=True)
    assert sum(scores) == pytest.approx(1.0)
    assert {one["label"] for one in answer.json()} == set(WORDS)


@pytest.mark.parametrize(
    ("status", "words", "body"),
    [
        (400, "No labels", {"inputs": TEXT}),
        (422, "inputs: Field required", {"parameters": {"candidate_labels": WORDS}}),
        (422, "is empty", {"inputs": {}, "parameters": {"candidate_labels": WORDS}}),
        (400, "not base64", {"inputs": "???", "parameters": {"candidate_labels": WORDS}}),
        (400, "not opened", {"inputs": "http://x/a.wav", "parameters": {"candidate_labels": "a"}}),
        (400, "not opened", {"inputs": "file:///a.wav", "parameters": {"candidate_labels": "a"}}),
        (400, "data URL", {"inputs": "data:audio/wav,x", "parameters": {"candidate_labels": "a"}}),
        (422, "parameters", {"inputs": TEXT, "parameters": [1]}),
        (422, "candidate_labels", {"inputs": TEXT, "parameters": {"candidate_labels": 3}}),
        (422, "top_k", {"inputs": TEXT, "parameters": {"candidate_labels": WORDS, "top_k": -1}}),
        (415, "not a sound", {"inputs": "aGVsbG8=", "parameters": {"candidate_labels": WORDS}}),
        (400, "{c}", {"inputs": TEXT,
                      "parameters": {"candidate_labels": WORDS, "hypothesis_template": "{x}"}}),
    ],
)  # fmt: skip
def test_a_wrong_request_is_an_error_in_words(
    fake_client: TestClient, status: int, words: str, body: object
) -> None:
    answer = fake_client.post("/hf", content=json.dumps(body))
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    assert words in answer.json()["error"]


def test_the_client_of_hugging_face_works_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    # The suite is offline; this client talks to our own service at a loopback address only.
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: False)
    app = create_app(ServiceSettings(backbone=Embedder(load_backbone("mini"), text_cache=False)))
    with threaded(app) as url:
        client = huggingface_hub.InferenceClient(model=f"{url}/hf")
        found = client.zero_shot_image_classification(CLIP, candidate_labels=WORDS)
        assert [(one.label, one.score) for one in found] == [
            (one["label"], one["score"]) for one in expected(load_backbone("mini"))
        ]
        address = f"{url}/hf?candidate_labels=dog%20bark,siren,rain"
        again = huggingface_hub.InferenceClient().audio_classification(CLIP, model=address)
        assert [(one.label, one.score) for one in again] == [(o.label, o.score) for o in found]
