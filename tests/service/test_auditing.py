"""`serve --audit`: the decisions of requests are recorded, and decided again in the same way."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from driftscore import Backbone, Embedder
from driftscore.decisions import DecisionStore, Replay, Replayer, open_store
from driftscore.errors import AuditError
from driftscore.service.settings import ServiceSettings
from tests.conftest import Run
from tests.live.scenes import scene

from .conftest import clip_bytes, serving, sound

WORDS = "siren, alarm clock"


@contextmanager
def audited(model: Backbone, path: Path, **options: Any) -> Iterator[TestClient]:
    store = DecisionStore(path, **options)
    settings = ServiceSettings(backbone=Embedder(model, text_cache=False), audit=store)
    with serving(settings) as client:
        yield client


def recorded(path: Path) -> list[dict[str, Any]]:
    with open_store(path) as store:
        return [json.loads(one.line) for one in store.decisions()]


def replayed(path: Path) -> list[Replay]:
    with open_store(path) as store:
        replayer = Replayer(store)
        return [replayer.replay(one) for one in store.decisions()]


@pytest.fixture(scope="module")
def street() -> bytes:
    return sound(scene(22, [(4.0, "siren"), (13.0, "alarm_clock")]), subtype="PCM_16")


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, mini: Backbone, street: bytes
) -> tuple[Path, list[dict[str, Any]]]:
    """Return an audit with audio, and the answers of its requests."""
    home = tmp_path_factory.mktemp("audit") / "log"
    answers = []
    with audited(mini, home, keep_audio=True) as client:
        for more in ({}, {"threshold": 1.0}, {"multi_label": True}, {"events": True}):
            answer = client.post("/v1/classify", params={"labels": WORDS, **more}, content=street)
            assert answer.status_code == 200, answer.text
            answers.append({**answer.json(), "id": answer.headers["X-Request-Id"]})
    return home, answers


def of(entries: list[dict[str, Any]], answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["source"] == f"/v1/classify {answer['id']}"]


def test_the_labels_of_a_request_are_recorded(
    folder: tuple[Path, list[dict[str, Any]]],
) -> None:
    home, (best, above, fitting, _) = folder
    entries = recorded(home)
    for answer, labels in (
        (best, [best["label"]]), (above, above["present"]), (fitting, fitting["present"]),
    ):  # fmt: skip
        (entry,) = of(entries, answer)
        assert entry["kind"] == "label"
        assert entry["outcome"] == {"labels": labels}
        assert labels
    (entry,) = of(entries, best)
    assert entry["evidence"]["scores"] == {one["label"]: one["score"] for one in best["scores"]}
    assert entry["rule"] == best["rule"]


def test_the_events_of_a_request_are_recorded(
    folder: tuple[Path, list[dict[str, Any]]],
) -> None:
    home, (*_, with_events) = folder
    label, *events = of(recorded(home), with_events)
    assert label["kind"] == "label"
    reported = [entry["outcome"]["decided"] for entry in events if entry["outcome"]["reported"]]
    keys = ("label", "start_s", "end_s", "score", "threshold")
    assert [[one[key] for key in keys] for one in reported] == [
        [event[key] for key in keys] for event in with_events["events"]
    ]
    assert len(reported) == 2


def test_every_request_is_decided_again_from_its_audio(
    folder: tuple[Path, list[dict[str, Any]]], street: bytes
) -> None:
    home, _ = folder
    found = replayed(home)
    assert len(found) >= 6
    assert all(one.same for one in found), found
    (copy,) = home.with_name("log.audio").iterdir()  # the same upload is kept once
    assert copy.read_bytes() == street


def test_uploads_are_not_kept_unless_asked_for(tmp_path: Path, fake: Backbone) -> None:
    content = clip_bytes()
    with audited(fake, tmp_path / "log") as client:
        client.post("/v1/classify", params={"labels": WORDS}, content=content)
    (entry,) = recorded(tmp_path / "log")
    assert entry["recording"]["audio"] is None
    assert entry["recording"]["name"] is None
    assert len(entry["recording"]["sha256"]) == 64
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert content[44:144] not in kept
    (found,) = replayed(tmp_path / "log")
    assert found.same is None


def test_requests_of_hugging_face_clients_are_recorded(tmp_path: Path, fake: Backbone) -> None:
    content = clip_bytes()
    body = {"inputs": base64.b64encode(content).decode(),
            "parameters": {"candidate_labels": ["siren", "rain"]}}  # fmt: skip
    with audited(fake, tmp_path / "log", keep_audio=True) as client:
        raw = client.post("/hf", params={"candidate_labels": "siren,rain"}, content=content)
        packed = client.post("/hf", json=body)
    assert raw.json() == packed.json()
    entries = recorded(tmp_path / "log")
    names = [f"/hf {one.headers['X-Request-Id']}" for one in (raw, packed)]
    assert [entry["source"] for entry in entries] == names
    for entry in entries:
        assert entry["outcome"]["labels"] == [raw.json()[0]["label"]]
    assert all(one.same for one in replayed(tmp_path / "log"))


def test_a_request_that_fails_has_no_decision(tmp_path: Path, fake: Backbone) -> None:
    with audited(fake, tmp_path / "log", keep_audio=True) as client:
        for content in (b"", b"RIFF no sound", b"junk"):
            answer = client.post("/v1/classify", params={"labels": WORDS}, content=content)
            assert answer.status_code in (415, 422)
    assert recorded(tmp_path / "log") == []
    assert not (tmp_path / "log.audio").exists()


def test_requests_at_the_same_time_do_not_mix_their_lines(tmp_path: Path, fake: Backbone) -> None:
    contents = [clip_bytes(0.5, seed) for seed in range(4)]
    answers: list[tuple[str, str]] = []
    with audited(fake, tmp_path / "log", keep_audio=True) as client:

        def ask(content: bytes) -> None:
            for _ in range(5):
                got = client.post("/v1/classify", params={"labels": WORDS}, content=content)
                answers.append((f"/v1/classify {got.headers['X-Request-Id']}", got.json()["label"]))

        threads = [threading.Thread(target=ask, args=(content,)) for content in contents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    entries = recorded(tmp_path / "log")
    assert len(entries) == 20
    assert {entry["source"]: entry["outcome"]["labels"][0] for entry in entries} == dict(answers)
    assert len(list((tmp_path / "log.audio").iterdir())) == 4
    assert all(one.same for one in replayed(tmp_path / "log"))


@pytest.mark.parametrize("route", ["/v1/classify?labels=a,b", "/hf?candidate_labels=a,b"])
def test_a_decision_that_cannot_be_recorded_is_not_given(
    tmp_path: Path, fake: Backbone, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], route: str,
) -> None:  # fmt: skip
    def fail(*_: object) -> None:
        raise AuditError(f"Cannot write {tmp_path}: No space left on device")

    with audited(fake, tmp_path / "log") as client:
        monkeypatch.setattr(DecisionStore, "record", fail)
        answer = client.post(route, content=clip_bytes())
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "60"
    assert str(tmp_path) not in answer.text
    assert "No space left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--audit", "{file}"), 1, "is not a store of decisions"),
        (("--audit-audio",), 2, "give --audit FILE"),
        (("--audit", "{new}", "--audit-mb", "0"), 2, "must be positive"),
        (("--audit", "{new}", "--audit-days", "x"), 2, "--audit-days must be a number"),
    ],
)
def test_a_wrong_audit_is_refused_before_the_service_starts(
    tmp_path: Path, run: Run, options: tuple[str, ...], status: int, words: str
) -> None:
    (tmp_path / "file").write_text("mine")
    places = {"file": tmp_path / "file", "new": tmp_path / "new"}
    found, _, err = run("serve", "--port", "0", *(text.format(**places) for text in options))
    assert found == status
    assert words in err
    assert len(err.splitlines()) == 1
