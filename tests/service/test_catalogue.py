"""Heads by id, rules and backbones."""

import base64
import json
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from driftscore import Backbone, Classifier, Head
from driftscore.embedder import Embedder
from driftscore.errors import UsageError
from driftscore.service.heads import HeadCache, HeadSpec
from driftscore.service.settings import Limits, ServiceSettings
from tests.conftest import Counting

from .conftest import clip_bytes, serving

ASKED = {"labels": ["siren", "rain"], "rule": "das", "settings": {"beta": 0.4}}


def test_a_head_of_the_service_is_a_head_of_the_library(
    mini_client: TestClient, mini: Backbone, tmp_path: Path
) -> None:
    made = mini_client.post("/v1/heads", json=ASKED)
    assert made.status_code == 201, made.text
    about = made.json()
    assert (about["rule"], about["unit"], about["dim"]) == ("das", "raw", mini.dim)
    got = mini_client.get(f"/v1/heads/{about['id']}")
    file = tmp_path / "head.json"
    file.write_bytes(got.content)
    head = Head.load(file)
    own = Classifier(["siren", "rain"], backbone=mini, rule="das", settings={"beta": 0.4}).fit()
    assert np.array_equal(head.weights, own.head_.weights)
    assert np.array_equal(head.offsets, own.head_.offsets)
    assert head.labels == own.head_.labels
    assert {k: v for k, v in got.json().items() if k in about} == about


def test_the_id_of_a_head_is_valid_in_another_service(fake: Backbone) -> None:
    settings = ServiceSettings(backbone=Embedder(fake, text_cache=False))
    with serving(settings) as client:
        made = client.post("/v1/heads", json=ASKED).json()
        first = client.get(f"/v1/heads/{made['id']}").json()
    with serving(ServiceSettings(backbone=Embedder(fake, text_cache=False))) as client:
        assert client.get(f"/v1/heads/{made['id']}").json() == first
        query = {"head": made["id"]}
        answer = client.post("/v1/classify", params=query, content=clip_bytes())
        assert {one["label"] for one in answer.json()["scores"]} == {"siren", "rain"}


@pytest.mark.parametrize(
    ("status", "words", "body"),
    [
        (400, "No labels given", {}),
        (400, "No labels given", {"labels": []}),
        (422, "more: Extra", {"labels": ["a"], "more": 1}),
        (400, "one or more words", {"labels": ["a", " "]}),
        (400, "did you mean", {"labels": ["a", "b"], "rule": "dass"}),
        (400, "No setting", {"labels": ["a"], "rule": "das", "settings": {"x": 1}}),
        (400, "value of the setting", {"labels": ["a"], "rule": "das", "settings": {"beta": "x"}}),
        (400, "At most 100 labels", {"labels": [f"label {n}" for n in range(101)]}),
    ],
)
def test_a_wrong_head_is_an_error_in_words(
    fake_client: TestClient, status: int, words: str, body: object
) -> None:
    answer = fake_client.post("/v1/heads", json=body)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]


@pytest.mark.parametrize("body", [b"", b"{", b"[1, 2", b'{"labels": NaN}', b"\xff", b"[" * 9000])
def test_a_body_that_is_not_json_is_refused(fake_client: TestClient, body: bytes) -> None:
    answer = fake_client.post("/v1/heads", content=body)
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]


def test_json_that_would_fill_the_memory_is_refused(fake_client: TestClient) -> None:
    body = b'{"labels": [' + b"[]," * 2_000_000 + b"[]]}"
    answer = fake_client.post("/v1/heads", content=body)
    assert "more than 10000 values" in answer.json()["error"]


def test_rules_are_listed_with_their_settings(fake_client: TestClient) -> None:
    rules = {one["name"]: one for one in fake_client.get("/v1/rules").json()}
    assert rules["das"]["settings"]["beta"] == 0.25
    assert "paper" in rules["das"]["what"]
    assert "zs_audio" not in rules


def test_the_served_backbone_is_described(fake_client: TestClient, fake: Backbone) -> None:
    [served] = fake_client.get("/v1/backbones").json()
    assert (served["name"], served["dim"], served["rate"]) == ("fake", fake.dim, fake.rate)
    assert (served["seconds"], served["fingerprint"]) == (fake.seconds, fake.fingerprint)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)


@given(
    labels=st.lists(TEXTS, min_size=1, max_size=8).map(tuple),
    settings=st.lists(
        st.tuples(TEXTS, st.booleans() | st.integers() | TEXTS | st.floats(allow_nan=False)),
        max_size=3,
    ).map(tuple),
    rule=TEXTS,
    raw=st.booleans(),
)
def test_an_id_gives_back_its_spec(
    labels: tuple[str, ...],
    settings: tuple[tuple[str, float | str], ...],
    rule: str,
    raw: bool,
) -> None:
    spec = HeadSpec(labels=labels, rule=rule, settings=settings, raw=raw)
    assert HeadSpec.of_id(spec.id) == spec


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.hex()))
def test_any_other_id_is_unknown_and_nothing_else(text: str) -> None:
    with suppress(HTTPException):
        HeadSpec.of_id(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda values: (
        st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=9), values, max_size=3)
    ),
    max_leaves=9,
)


@given(
    st.dictionaries(
        st.sampled_from(["labels", "rule", "settings", "preset", "prompt", "raw"]), JSON
    )
    | st.fixed_dictionaries({"labels": st.just(["a", "b"]), "settings": JSON})
    | st.fixed_dictionaries({"labels": st.lists(st.text(max_size=9), max_size=3), "rule": JSON})
)
def test_an_id_made_by_hand_is_unknown_refused_or_a_spec(values: object) -> None:
    packed = zlib.compress(json.dumps(values).encode())
    with suppress(HTTPException, UsageError):
        spec = HeadSpec.of_id(base64.urlsafe_b64encode(packed).decode().rstrip("="))
        hash(spec.checked(Limits()))


def test_half_a_pair_is_no_label(fake_client: TestClient) -> None:
    assert fake_client.get(f"/v1/heads/{packed_id(['a', chr(0xD800)])}").status_code == 404


def packed_id(labels: list[str]) -> str:
    packed = zlib.compress(json.dumps({"labels": labels}).encode())
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def test_an_id_that_unpacks_to_far_more_than_it_says_is_unknown() -> None:
    bomb = HeadSpec(labels=("a" * 50_000_000,)).id
    with pytest.raises(HTTPException, match="404: No head"):
        HeadSpec.of_id(bomb)


def test_an_id_with_wrong_values_is_refused(fake_client: TestClient) -> None:
    wrong = HeadSpec(labels=("a", "b"), rule="antigravity:x").id
    assert fake_client.get(f"/v1/heads/{wrong}").status_code == 400
    assert fake_client.get("/v1/heads/AAAA").status_code == 404
    assert fake_client.get("/v1/heads/a%20b").status_code == 422


def test_the_last_used_heads_are_kept(fake: Backbone) -> None:
    counting = Counting(fake)
    heads = HeadCache(Embedder(counting, text_cache=False), ServiceSettings(heads=2))
    one, two, three = (HeadSpec(labels=(name, "other"), rule="cosine") for name in "abc")
    assert heads.get(one) is heads.get(one)
    heads.get(two)
    heads.get(one)
    heads.get(three)  # drops two, which was not used for the longest time
    encoded = len(counting.texts)
    heads.get(one)
    heads.get(three)
    assert len(counting.texts) == encoded
    heads.get(two)
    assert len(counting.texts) > encoded
    assert len(heads) == 2


def test_a_head_that_cannot_be_made_is_not_kept(fake: Backbone) -> None:
    heads = HeadCache(Embedder(fake, text_cache=False), ServiceSettings(heads=2))
    wrong = HeadSpec(labels=("a", "b"), rule="das", settings=(("tau", 1),))
    for _ in range(2):
        with pytest.raises(UsageError, match="No setting"):
            heads.get(wrong)
    assert len(heads) == 0


def test_a_head_of_too_many_texts_is_refused_before_they_are_encoded(fake: Backbone) -> None:
    counting = Counting(fake)
    settings = ServiceSettings(limits=Limits(texts=1000))
    heads = HeadCache(Embedder(counting, text_cache=False), settings)
    few, many = (tuple(f"label {n}" for n in range(count)) for count in (4, 5))
    assert len(heads.get(HeadSpec(labels=few, rule="das")).head.labels) == 4  # 4 x 209 texts
    encoded = len(counting.texts)
    with pytest.raises(UsageError, match="1045 texts"):
        heads.get(HeadSpec(labels=many, rule="das"))
    assert len(counting.texts) == encoded
    assert len(heads.get(HeadSpec(labels=many, rule="cosine")).head.labels) == 5
    with pytest.raises(UsageError, match="1045 texts"):  # auto is DAS here: no calibration
        heads.get(HeadSpec(labels=many))


def test_a_spec_outside_the_limits_is_refused() -> None:
    limits = Limits(labels=2, label_chars=5)
    assert HeadSpec(labels=(" a ", "b")).checked(limits).labels == ("a", "b")
    for spec in (
        HeadSpec(labels=("a", "b", "c")),
        HeadSpec(labels=("aaaaaa",)),
        HeadSpec(labels=("a",), prompt="aaaaaa"),
        HeadSpec(labels=("a",), preset="/etc/passwd"),
        HeadSpec(labels=("a",), settings=tuple((str(n), n) for n in range(17))),
        HeadSpec(labels=("a",), settings=(("noise", "x.npz"),)),
    ):
        with pytest.raises(UsageError):
            spec.checked(limits)
