"""`POST /v1/classify`: the scores of `driftscore classify`, however a recording is sent."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from fastapi.testclient import TestClient

from driftscore import Audio, Backbone, Classifier
from driftscore.audio.recordings import read
from driftscore.embedder import Embedder
from driftscore.events.tracking import Detection
from driftscore.service.heads import HeadSpec, servable_rules
from driftscore.service.settings import Limits, ServiceSettings
from tests.conftest import PROJECT, noise_clip

from .conftest import clip_bytes, serving, silence, sound

WORDS = ["siren", "rain", "dog bark"]
ASKED = {"labels": "siren, rain, dog bark"}


@pytest.fixture(scope="module")
def classifier(mini: Backbone) -> Classifier:
    """Return the classifier of the library that the service has to agree with."""
    return Classifier(WORDS, backbone=mini).fit()


def post(client: TestClient, content: bytes, **query: str | float) -> dict[str, object]:
    answer = client.post("/v1/classify", params={**ASKED, **query}, content=content)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def error_of(client: TestClient, status: int, content: bytes, **query: str | float) -> str:
    answer = client.post("/v1/classify", params=query, content=content)
    assert answer.status_code == status, answer.text
    return str(answer.json()["error"])


def scores_of(answer: dict[str, object]) -> dict[str, float]:
    listed = answer["scores"]
    assert isinstance(listed, list)
    return {one["label"]: one["score"] for one in listed}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.wav", {"subtype": "PCM_16"}),
        ("a.wav", {"subtype": "FLOAT"}),
        ("a.flac", {}),
        ("a.ogg", {}),
        ("a.opus", {"format": "OGG", "subtype": "OPUS"}),
        ("a.mp3", {}),
        ("a.aiff", {}),
        ("a.au", {}),
        ("a.caf", {}),
        ("a.w64", {}),
    ],
)
def test_the_same_bytes_have_the_scores_of_the_library_to_the_bit(
    mini_client: TestClient,
    classifier: Classifier,
    tmp_path: Path,
    name: str,
    options: dict[str, str],
) -> None:
    rng = np.random.default_rng(7)
    rate = 48_000 if name == "a.opus" else 44_100  # resampled, two windows, two channels
    stereo = 0.1 * rng.standard_normal((13 * rate, 2))
    path = tmp_path / name
    soundfile.write(path, stereo, rate, **options)
    expected = classifier.scores([path])[0]
    answer = post(mini_client, path.read_bytes())
    assert scores_of(answer) == dict(zip(WORDS, expected.tolist(), strict=True))
    assert answer["seconds"] == pytest.approx(13.0, abs=0.1)


def test_a_label_that_is_not_understood_is_said_in_the_answer(mini_client: TestClient) -> None:
    clip = sound(noise_clip(1.0, 8000))
    assert post(mini_client, clip, labels="siren, dog bark")["unclear"] == ""
    answer = post(mini_client, clip, labels="siren, kettingzaag")
    assert str(answer["unclear"]).startswith("mini: 'kettingzaag' is not understood (nearest: ")


@pytest.mark.parametrize("rule", [rule.name for rule in servable_rules()])
def test_every_rule_that_is_listed_gives_the_scores_of_the_library(
    mini_client: TestClient, mini: Backbone, rule: str
) -> None:
    content = clip_bytes(3.0)
    expected = Classifier(WORDS, backbone=mini, rule=rule).scores([content])[0]
    answer = post(mini_client, content, rule=rule)
    assert scores_of(answer) == dict(zip(WORDS, expected.tolist(), strict=True))
    assert answer["rule"] == rule


def test_silence_before_a_sound_is_part_of_the_recording(
    mini_client: TestClient, classifier: Classifier
) -> None:
    quiet, loud = np.zeros(12 * 16_000, np.float32), noise_clip(4.0).samples
    content = sound(Audio(np.concatenate([quiet, loud]), 16_000))
    answer = post(mini_client, content)
    assert answer["seconds"] == pytest.approx(16.0)
    expected = classifier.scores([content])[0]
    assert scores_of(answer) == dict(zip(WORDS, expected.tolist(), strict=True))


def test_settings_preset_and_prompt_reach_the_rule(mini_client: TestClient, mini: Backbone) -> None:
    content = clip_bytes(3.0)
    prompts = Classifier(WORDS, backbone=mini, preset="acevedo2025")
    asked = {"rule": "das", "setting": "beta=0.7", "raw": "true"}
    raw = Classifier(WORDS, backbone=mini, rule="das", settings={"beta": 0.7}, standardised=False)
    expected = raw.scores([content])
    assert list(scores_of(post(mini_client, content, **asked)).values()) == sorted(
        expected[0].tolist(), reverse=True
    )
    preset = scores_of(post(mini_client, content, preset="acevedo2025"))
    assert preset == dict(zip(WORDS, prompts.scores([content])[0].tolist(), strict=True))
    own = post(mini_client, content, prompt="I can make out {c} somewhere")
    assert scores_of(own) != scores_of(post(mini_client, content))


def test_a_form_gives_the_answer_of_a_raw_body(mini_client: TestClient) -> None:
    content = clip_bytes(2.0)
    raw = post(mini_client, content, events="true", threshold="0.5")
    fields = {"labels": ["siren,rain", "dog bark"], "events": "1", "threshold": "0.5"}
    form = mini_client.post("/v1/classify", data=fields, files={"file": ("x.mp3", content)})
    assert form.json() == raw


def test_a_head_by_its_id_gives_the_same_answer(fake_client: TestClient) -> None:
    content = clip_bytes()
    first = post(fake_client, content, rule="das", setting="beta=0.5")
    again = fake_client.post("/v1/classify", params={"head": str(first["head"])}, content=content)
    assert again.json() == first
    assert "only one of both" in error_of(
        fake_client, 400, content, head=str(first["head"]), raw="1"
    )


def test_labels_above_the_threshold_are_present_and_top_k_shortens_the_list(
    mini_client: TestClient,
) -> None:
    content = clip_bytes(2.0)
    scores = scores_of(post(mini_client, content, threshold=0.0, multi_label="true"))
    middle = sorted(scores.values())[1]
    answer = post(mini_client, content, threshold=middle, multi_label="true", top_k=1)
    assert answer["present"] == [name for name, score in scores.items() if score >= middle]
    assert list(scores_of(answer)) == list(scores)[:1]
    assert post(mini_client, content)["present"] is None


def test_without_a_threshold_several_labels_or_none_may_be_present(
    mini_client: TestClient, mini: Backbone, classifier: Classifier
) -> None:
    detector = classifier.detector()
    for name, expected in (("siren", ["siren"]), ("ticking_clock", [])):
        content = (PROJECT / "demo" / "sounds" / f"{name}.flac").read_bytes()
        [embedded] = detector.embedder.embed([content])
        judged = detector.label_or_none("", embedded.embedding)
        answer = post(mini_client, content, multi_label="true")
        assert answer["present"] == expected == ([judged.label] if judged.label else [])
    error = "needs a calibration|is told from a calibration"
    with serving(ServiceSettings(Embedder(mini, text_cache=False), calibration="none")) as client:
        message = error_of(client, 400, content, labels="siren,rain", multi_label="true")
        assert re.search(error, message)


def test_events_are_those_of_the_library(mini_client: TestClient, classifier: Classifier) -> None:
    siren, rain = (read(PROJECT / "demo" / "sounds" / f"{n}.flac") for n in ("siren", "rain"))
    quiet = 0.001 * np.random.default_rng(0).standard_normal(15 * siren.rate)
    assert siren.rate == rain.rate
    parts = (quiet.astype(np.float32), siren.samples, rain.samples)
    samples = np.concatenate([parts[0], parts[1], parts[0], parts[2], parts[0]])
    content = sound(Audio(samples, siren.rate), "FLAC")
    queries: list[dict[str, float]] = [{}, {"false_alarms": 2.0}]
    for query in queries:
        settings = Detection().changed(**query)
        expected = list(classifier.events(content, settings=settings))
        assert "siren" in [event.label for event in expected]
        listed = post(mini_client, content, events="true", **query)["events"]
        assert listed == [
            {
                "label": event.label,
                "start_s": event.start_s,
                "end_s": event.end_s,
                "score": event.score,
                "threshold": event.threshold,
                "snr_db": event.snr_db,
            }
            for event in expected
        ]
    high = post(mini_client, content, events="true", threshold="1000")
    assert high["events"] == []


def test_one_label_is_scored_and_has_no_margin(fake_client: TestClient) -> None:
    answer = fake_client.post("/v1/classify", params={"labels": "siren"}, content=clip_bytes())
    assert answer.json()["margin"] is None
    assert [one["label"] for one in answer.json()["scores"]] == ["siren"]


def test_wrong_options_are_refused_in_words(fake_client: TestClient) -> None:
    content = clip_bytes()
    for status, words, query in (
        (400, "No labels", {}),
        (400, "same words", {"labels": "siren, Siren"}),
        (400, "did you mean 'cosine'", {"labels": "a,b", "rule": "cosin"}),
        (400, "name=value", {"labels": "a,b", "setting": "beta"}),
        (400, "No preset", {"labels": "a,b", "preset": "x"}),
        (400, "No setting", {"labels": "a,b", "rule": "das", "setting": "tau=1"}),
        (422, "threshold", {"labels": "a,b", "threshold": "nan"}),
        (422, "threshold", {"labels": "a,b", "threshold": "many"}),
        (422, "label: Extra", {"label": "a,b"}),
        (422, "top_k", {"labels": "a,b", "top_k": "0"}),
        (404, "No head", {"head": "eNoLST"}),
    ):
        assert words in error_of(fake_client, status, content, **query), query


def test_a_form_without_a_recording_or_with_wrong_fields_is_refused(
    fake_client: TestClient,
) -> None:
    content = clip_bytes()
    for status, words, data, files in (
        (400, "not 'other'", {"labels": "a,b"}, {"other": ""}),
        (400, "part 'file'", {"labels": "a,b"}, {"sound": ("a.wav", content)}),
        (422, "wrong: Extra", {"labels": "a,b", "wrong": "1"}, {"file": ("a.wav", content)}),
        (400, "2 times", {"labels": "a,b", "rule": ["das", "cosine"]}, {"file": ("a", content)}),
    ):
        answer = fake_client.post("/v1/classify", data=data, files=files)
        assert answer.status_code == status, answer.text
        assert words in answer.json()["error"]
    empty = b'--x\r\nContent-Disposition: form-data; name="labels"\r\n\r\na,b\r\n--x--\r\n'
    for kind, content, words in (
        ("multipart/form-data; boundary=x", empty, "no recording"),
        ("multipart/form-data", empty, "Missing boundary"),
        ("multipart/form-data; boundary=y", empty, "cannot be read"),
    ):
        headers = {"content-type": kind}
        answer = fake_client.post("/v1/classify", content=content, headers=headers)
        assert answer.status_code == 400
        assert words in answer.json()["error"]
    both = fake_client.post(
        "/v1/classify", params={"labels": "a,b"}, data={"labels": "c,d"}, files={"file": content}
    )
    assert "in the query and in the form" in both.json()["error"]


def test_a_request_can_import_nothing_and_open_nothing(
    fake_client: TestClient, tmp_path: Path
) -> None:
    pack = tmp_path / "pack.toml"
    pack.write_text("not a pack")
    before = set(sys.modules)
    content = clip_bytes()
    for query in (
        {"rule": "antigravity:open"},
        {"rule": "zs_audio"},
        {"rule": "zs_audio", "setting": f"noise={pack}"},
        {"rule": "tgap", "setting": f"pool={pack}"},
        {"rule": "debias", "setting": f"phrases={pack}"},
        {"rule": "prompt_ensemble", "setting": "sentences=../../etc/passwd"},
        {"preset": str(pack)},
        {"preset": f"file://{pack}"},
    ):
        assert error_of(fake_client, 400, content, labels="a,b", **query)
    assert "antigravity" not in {name for name in sys.modules if name not in before}


def test_rules_that_need_more_recordings_are_not_offered() -> None:
    names = [rule.name for rule in servable_rules()]
    assert "das" in names
    assert not {"zs_audio", "zs_audio_oracle", "tgap", "tgap_audio"} & set(names)
    for name in names:
        assert HeadSpec(labels=("a", "b"), rule=name).checked(Limits()).rule == name


def test_sound_that_cannot_be_used_is_refused_with_its_reason(fake_client: TestClient) -> None:
    good = clip_bytes()
    nan = sound(Audio(np.zeros(800, np.float32), 8000), subtype="FLOAT")
    nan = nan[:-4] + np.float32("nan").tobytes()
    for status, words, content in (
        (422, "empty", b""),
        (415, "not a sound file", b"PK\x03\x04" + bytes(100)),
        (415, "not a sound file", b"#EXTM3U\nfile:///etc/passwd\n"),
        (422, "truncated", good[:-100]),
        (422, "silent", sound(silence(1.0))),
        (422, "NaN", nan),
        (422, "cannot be read|not a sound file", good[:20]),
        (413, "longer than 600 s", sound(silence(601.0, 500))),
    ):
        message = error_of(fake_client, status, content, labels="a,b")
        assert any(part in message for part in words.split("|")), message


def test_limits_are_those_of_the_settings(fake: Backbone) -> None:
    limits = Limits(seconds=2.0, decoded_bytes=50_000, labels=3, label_chars=10)
    embedder = Embedder(fake, text_cache=False)
    with serving(ServiceSettings(backbone=embedder, limits=limits)) as client:
        short = sound(noise_clip(1.0, 8000))
        assert post(client, short)["seconds"] == 1.0
        assert "2 s" in error_of(client, 413, sound(noise_clip(2.5, 500)), labels="a,b")
        assert "0.05 MB" in error_of(client, 413, sound(noise_clip(1.6, 8000)), labels="a,b")
        assert "3 labels" in error_of(client, 400, short, labels="a,b,c,d")
        assert "10 characters" in error_of(client, 400, short, labels="a,bbbbbbbbbbb")
        assert "10 characters" in error_of(client, 400, short, labels="a", prompt="{c}" + "x" * 9)


def test_a_recording_of_unknown_length_is_refused_while_it_is_decoded(
    fake: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soundfile.SoundFile, "frames", 2**63 - 1)  # as libsndfile reports it
    settings = ServiceSettings(
        backbone=Embedder(fake, text_cache=False), limits=Limits(seconds=1.0)
    )
    with serving(settings) as client:
        content = sound(noise_clip(3.0, 8000))
        assert "longer than 1 s" in error_of(client, 413, content, labels="a,b")
        assert post(client, sound(noise_clip(0.9, 8000)))["seconds"] == 0.9
