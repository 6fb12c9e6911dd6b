"""Examples by upload: the head of the command, for whoever sent them and nobody else."""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from driftscore import Audio, Backbone, Classifier
from driftscore.audio.recordings import Recording, read
from driftscore.embedder import Embedded, Embedder
from driftscore.service.settings import Limits, ServiceSettings
from tests.conftest import PROJECT, noise_clip

from .conftest import clip_bytes, serving, silence, sound, state_of

SOUNDS = PROJECT / "demo" / "sounds"
Part = tuple[str, tuple[str, bytes]]


def parts(*names: str, **examples: tuple[str, ...]) -> list[Part]:
    """Return a form: the recording, and examples by label."""
    files = [("file", name) for name in names]
    files += [(f"examples:{label}", name) for label, listed in examples.items() for name in listed]
    return [(part, (name, (SOUNDS / name).read_bytes())) for part, name in files]


def post(client: TestClient, files: list[Part], status: int = 200, **fields: str) -> dict[str, Any]:
    answer = client.post("/v1/classify", files=files, data=fields)
    assert answer.status_code == status, answer.text
    content: dict[str, Any] = answer.json()
    return content


def scores_of(answer: dict[str, Any]) -> dict[str, float]:
    return {one["label"]: one["score"] for one in answer["scores"]}


BELLS = ("church_bell.flac", "alarm_clock.flac")


def test_words_and_examples_have_the_scores_and_events_of_the_library_to_the_bit(
    mini_client: TestClient, mini: Backbone
) -> None:
    classifier = Classifier(["siren", "rain"], backbone=mini)
    paths = [SOUNDS / name for name in (*BELLS, "engine.flac")]
    classifier.fit(paths, ["our bell", "our bell", "not"])
    expected = classifier.scores([SOUNDS / "siren.flac"])[0]
    files = parts("siren.flac", **{"our bell": BELLS, "not": ("engine.flac",)})
    answer = post(mini_client, files, labels="siren, rain", events="true")
    assert scores_of(answer) == dict(zip(classifier.head_.labels, expected.tolist(), strict=True))
    events = list(classifier.events(SOUNDS / "siren.flac"))
    assert [one["score"] for one in answer["events"]] == [event.score for event in events]
    assert len(events) == 1


def test_a_label_may_be_known_by_its_examples_alone(mini_client: TestClient) -> None:
    found = post(mini_client, parts("siren.flac", thing=("siren.flac",)), labels="rain, speech")
    assert found["label"] == "thing"
    alone = post(mini_client, parts("siren.flac", thing=("siren.flac",)))
    assert list(scores_of(alone)) == ["thing"]


def test_the_id_of_the_head_brings_the_examples_with_it_and_records_their_sums(
    mini_client: TestClient,
) -> None:
    first = post(mini_client, parts("siren.flac", bell=BELLS), labels="siren")
    again = mini_client.post(
        "/v1/classify",
        params={"head": first["head"]},
        content=(SOUNDS / "siren.flac").read_bytes(),
    ).json()
    assert scores_of(again) == scores_of(first)
    made_by = mini_client.get(f"/v1/heads/{first['head']}").json()["made_by"]
    sums = [hashlib.sha256((SOUNDS / name).read_bytes()).hexdigest() for name in BELLS]
    assert made_by["bank"]["examples"] == {"bell": sums}


def test_heads_take_examples_in_base64(mini_client: TestClient) -> None:
    contents = [base64.b64encode((SOUNDS / name).read_bytes()).decode() for name in BELLS]
    body = {"labels": ["siren"], "examples": {"bell": contents}}
    answer = mini_client.post("/v1/heads", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.json()["labels"] == ["siren", "bell"]
    files = parts("siren.flac", bell=BELLS)
    expected = scores_of(post(mini_client, files, labels="siren"))
    content = (SOUNDS / "siren.flac").read_bytes()
    query = {"head": answer.json()["id"]}
    assert scores_of(mini_client.post("/v1/classify", params=query, content=content).json()) == (
        expected
    )


def test_examples_of_one_client_do_not_change_the_labels_of_another(
    mini_client: TestClient,
) -> None:
    before = scores_of(post(mini_client, parts("rain.flac"), labels="siren, rain"))
    taught = post(mini_client, parts("rain.flac", siren=("rain.flac",)), labels="siren, rain")
    assert scores_of(taught)["siren"] > before["siren"] + 0.05
    assert scores_of(post(mini_client, parts("rain.flac"), labels="siren, rain")) == before
    # Another service cannot be asked for them either: its keys differ.
    with serving(ServiceSettings(backbone=state_of(mini_client).embedder)) as other:
        content = (SOUNDS / "rain.flac").read_bytes()
        answer = other.post("/v1/classify", params={"head": taught["head"]}, content=content)
        assert answer.status_code == 404
        assert "no longer has this example" in answer.json()["error"]


def test_an_example_is_embedded_once_however_often_it_is_sent(
    mini: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(ServiceSettings(backbone=Embedder(mini, text_cache=False))) as client:
        cache = state_of(client).heads
        calls = []
        embed = cache.embedder.embed

        def counted(recordings: Iterable[Recording]) -> Iterator[Embedded]:
            calls.append(recordings)
            return embed(recordings)

        monkeypatch.setattr(cache.embedder, "embed", counted)
        post(client, parts("siren.flac", bell=BELLS), labels="siren")
        post(client, parts("siren.flac", bell=BELLS), labels="siren")
        assert len(calls) == 2 + 2  # two examples once, the recording twice
        assert len(cache.examples) == 2


def test_an_example_that_is_unlike_the_others_is_named(mini_client: TestClient) -> None:
    rain = read(SOUNDS / "rain.flac")
    pieces = np.array_split(rain.samples, 4)
    files = [("file", ("a.wav", clip_bytes()))]
    files += [
        ("examples:rain", (f"rain{n}.wav", sound(Audio(piece, rain.rate))))
        for n, piece in enumerate(pieces)
    ]
    files += parts(rain=("siren.flac",))
    assert post(mini_client, files)["unlike"] == [
        "siren.flac is unlike the other 4 of 'rain'; leave it out if it is something else"
    ]


@pytest.mark.parametrize(
    ("example", "status", "message"),
    [
        (b"", 422, "a.wav is empty"),
        (b"hello", 415, "a.wav is not a sound file in a known format"),
        (sound(silence(2.0)), 422, "a.wav is silent"),
        (sound(noise_clip(1.0))[:30], 422, "a.wav"),
        (sound(silence(36_000, 500), "FLAC"), 413, "a.wav"),
    ],
)
def test_an_example_that_is_no_sound_is_refused_by_its_name(
    mini_client: TestClient, example: bytes, status: int, message: str
) -> None:
    files = [("file", ("b.wav", clip_bytes())), ("examples:bell", ("a.wav", example))]
    assert message in post(mini_client, files, status, labels="siren")["error"]


def test_examples_are_bounded_in_number_seconds_and_labels(mini: Backbone) -> None:
    limits = Limits(seconds=3.0, inputs=3, labels=2)
    backbone = Embedder(mini, text_cache=False)
    with serving(ServiceSettings(backbone=backbone, limits=limits)) as client:
        file = ("file", ("b.wav", clip_bytes()))

        def with_(*examples: tuple[str, bytes]) -> list[Part]:
            return [file, *((f"examples:{label}", ("a.wav", one)) for label, one in examples)]

        several = [("bell", clip_bytes(1.6, seed)) for seed in range(4)]
        assert "longer than 3 s together" in post(client, with_(*several[:2]), 413)["error"]
        assert "Too many files" in post(client, with_(*several), 400)["error"]
        labels = [(name, clip_bytes(0.5, 9)) for name in ("a", "b", "c")]
        assert "At most 2 labels" in post(client, with_(*labels), 400)["error"]
        keys = {"labels": ["siren"], "examples": {"a": ["0" * 32] * 4}}
        clip = client.post("/page/clips", content=clip_bytes()).json()["id"]
        answer = client.post(f"/page/clips/{clip}/rank", json=keys)
        assert (answer.status_code, answer.headers["X-Field"]) == (400, "labels")
        assert "At most 3 examples" in answer.json()["error"]


@pytest.mark.parametrize("label", ["", " ", "x" * 300, "a\ud800", "../../bell.wav"])
def test_names_of_examples_that_are_no_labels_are_refused(
    mini_client: TestClient, label: str
) -> None:
    body = {"examples": {label: [base64.b64encode(clip_bytes()).decode()]}}
    answer = mini_client.post("/v1/heads", content=json.dumps(body))
    assert answer.status_code in (400, 422), answer.text


def test_a_label_that_looks_like_a_file_is_refused_whether_there_is_one_or_not(
    mini_client: TestClient, tmp_path: Path
) -> None:
    (tmp_path / "there.wav").write_bytes(b"")
    errors = []
    for name in (f"{tmp_path}/there.wav", f"{tmp_path}/gone.wav", f"{tmp_path}/"):
        query = {"labels": [name[-40:], "rain"]}
        answer = mini_client.post("/v1/classify", params=query, content=clip_bytes())
        assert answer.status_code == 400
        errors.append(answer.json()["error"].replace(repr(name[-40:]), ""))
    assert len(set(errors)) == 1


def test_a_head_and_examples_at_once_are_refused(mini_client: TestClient) -> None:
    head = post(mini_client, parts("siren.flac"), labels="siren, rain")["head"]
    error = post(mini_client, parts("siren.flac", bell=BELLS), 400, head=head)["error"]
    assert "give only one of both" in error
    files = [*parts("siren.flac"), ("bell", ("a.wav", clip_bytes()))]
    assert "'examples:LABEL', not 'bell'" in post(mini_client, files, 400, labels="siren")["error"]
    two = parts("siren.flac", "rain.flac")
    assert "several recordings" in post(mini_client, two, 400, labels="siren")["error"]
