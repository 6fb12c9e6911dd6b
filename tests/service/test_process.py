"""The server process: live events, a clean end, and nothing lost by a sudden one."""

import json
import signal
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import httpx2 as httpx
import pytest

from driftscore import Backbone
from driftscore.decisions.records import LevelReport, Present, StoredEvent, Words, iso
from driftscore.decisions.store import DecisionStore
from driftscore.embedder import Embedder
from driftscore.errors import StoreError
from driftscore.events.watchlist import WatchList
from driftscore.service import streams
from driftscore.service.app import create_app
from driftscore.service.settings import Limits, ServiceSettings
from tests.conftest import Run

from .conftest import TOKEN, Service, clip_bytes, started, threaded, wait_until

ASKED = {"labels": "siren,rain"}


def event(number: int, source: str = "yard") -> StoredEvent:
    """Return an event of a live source."""
    start_s = datetime.fromisoformat("2026-11-16T02:10:03.250+01:00").timestamp()
    return StoredEvent(number, source, "Käuzchen", 4.1, None, start_s, start_s + 4.5, 3600)


@pytest.fixture
def store(tmp_path: Path) -> DecisionStore:
    return DecisionStore(tmp_path / "events.db")


def messages(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """Yield server-sent events as their fields, without comments."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line and fields:
            yield fields
            fields = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


def test_live_events_arrive_as_they_are_published(
    fake: Backbone, store: DecisionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.send(event(1))
    position, looked = store.newest(), threading.Event()

    def newest() -> int:
        looked.set()
        return position

    monkeypatch.setattr(store, "newest", newest)
    settings = ServiceSettings(backbone=Embedder(fake, text_cache=False), event_store=store)
    with (
        threaded(create_app(settings)) as url,
        httpx.stream("GET", f"{url}/v1/events/stream?source=yard", timeout=60) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        found = messages(answer.iter_lines())
        assert next(found) == {"retry": "3000"}
        assert looked.wait(60)  # the stream is at the end of the store: what was before is past
        store.send(event(2, source="attic"))
        store.send(event(3))
        got = next(found)
        assert (got["id"], got["event"]) == ("3", "sound")
        assert json.loads(got["data"])["label"] == "Käuzchen"
        assert json.loads(got["data"])["start"].endswith("+01:00")


def test_what_sources_do_is_sent_at_the_start_and_when_it_changes(
    fake: Backbone, store: DecisionStore
) -> None:
    for name in ("attic", "yard"):
        store.send(Words(name, WatchList.of(["siren"])))
    settings = ServiceSettings(backbone=Embedder(fake, text_cache=False), event_store=store)
    with (
        threaded(create_app(settings)) as url,
        httpx.stream("GET", f"{url}/v1/events/stream?source=yard", timeout=60) as answer,
    ):
        found = messages(answer.iter_lines())
        next(found)
        first = next(found)
        assert first["event"] == "source"
        assert "id" not in first  # Last-Event-ID stays that of an event
        state = json.loads(first["data"])
        assert (state["name"], state["online"], state["level"]) == ("yard", False, None)
        store.send(Present("attic", {"siren"}))
        store.send(Present("yard", {"siren"}))
        assert json.loads(next(found)["data"])["present"] == ["siren"]
        now = iso(datetime.now().astimezone())
        store.send(LevelReport("yard", 41.0, 44.0, 37.0, "dBA", 60.0, now))
        level = json.loads(next(found)["data"])["level"]
        assert (level["laeq"], level["unit"]) == (41.0, "dBA")


def test_a_client_that_was_away_continues_where_it_was(
    fake: Backbone, store: DecisionStore
) -> None:
    for number in range(1, 500):
        store.send(event(number))
    settings = ServiceSettings(backbone=Embedder(fake, text_cache=False), event_store=store)
    headers = {"Last-Event-ID": "7"}
    with (
        threaded(create_app(settings)) as url,
        httpx.stream("GET", f"{url}/v1/events/stream", headers=headers, timeout=60) as answer,
    ):
        found = messages(answer.iter_lines())
        next(found)
        assert [int(next(found)["id"]) for _ in range(492)] == list(range(8, 500))


def test_streams_are_bounded_and_free_their_place(
    fake: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_ALIVE_S", 0.2)
    settings = ServiceSettings(
        backbone=Embedder(fake, text_cache=False), limits=Limits(subscribers=1)
    )
    app = create_app(settings)
    state = app.state.service
    with threaded(app) as url:
        address = f"{url}/v1/events/stream"
        with httpx.stream("GET", address, timeout=60) as first:
            lines = first.iter_lines()
            assert next(lines) == "retry: 3000"
            assert ": alive" in (next(lines), next(lines))
            second = httpx.get(address)
            assert second.status_code == 503
            assert second.headers["retry-after"] == "10"
        wait_until(lambda: state.subscribers == 0)


def test_a_store_that_fails_ends_the_stream_with_its_reason(fake: Backbone, tmp_path: Path) -> None:
    class Broken(DecisionStore):
        def after(self, id: int, limit: int) -> list[StoredEvent]:
            raise StoreError("the disk is gone")

    store = Broken(tmp_path / "events.db")
    settings = ServiceSettings(backbone=Embedder(fake, text_cache=False), event_store=store)
    with threaded(create_app(settings)) as url:
        found = list(messages(iter(httpx.get(f"{url}/v1/events/stream").text.splitlines())))
    assert found[1]["event"] == "problem"
    assert "the disk is gone" in found[1]["data"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment with a cache folder of its own, and no token."""
    folder = tmp_path_factory.mktemp("cache")
    return {"DRIFTSCORE_CACHE": str(folder), "DRIFTSCORE_TOKEN": ""}


def wait_until_ready(service: Service, client: httpx.Client) -> None:
    wait_until(lambda: client.get("/readyz").status_code == 200)
    assert service.process.poll() is None


def test_sigterm_ends_streams_answers_what_is_in_work_and_exits_with_0(
    cache: dict[str, str],
) -> None:
    long = clip_bytes(240.0)
    with (
        started("--threads", "1", env=cache) as service,
        httpx.Client(base_url=service.url, timeout=60) as client,
    ):
        wait_until_ready(service, client)
        answers: list[httpx.Response] = []

        def classify() -> None:
            answers.append(httpx.post(f"{service.url}/v1/classify", params=ASKED, content=long,
                                      timeout=60))  # fmt: skip

        thread = threading.Thread(target=classify)
        with client.stream("GET", "/v1/events/stream") as stream:
            lines = stream.iter_lines()
            next(lines)
            thread.start()
            wait_until(lambda: "driftscore_running 1.0" in httpx.get(f"{service.url}/metrics").text)
            service.process.send_signal(signal.SIGTERM)
            assert not [line for line in lines if line]  # the stream ends by itself
        thread.join()
        assert service.process.wait(30) == 0
        assert answers[0].status_code == 200
        assert service.process.stderr is not None
        assert service.process.stderr.read().splitlines() == ["stopped"]


def test_kill_9_loses_nothing_but_the_request_in_hand_and_the_cache_stays_empty(
    cache: dict[str, str],
) -> None:
    clip, folder = clip_bytes(), Path(cache["DRIFTSCORE_CACHE"])
    before, answers = sorted(folder.rglob("*")), []
    body = {"labels": ["siren", "rain"], "rule": "das", "settings": {"beta": 0.3}}
    head_id = ""
    for _ in range(2):
        with (
            started("--backbone", "fake", env=cache) as service,
            httpx.Client(base_url=service.url, timeout=60) as client,
        ):
            wait_until_ready(service, client)
            head_id = head_id or client.post("/v1/heads", json=body).json()["id"]
            answer = client.post("/v1/classify", params={"head": head_id}, content=clip)
            assert answer.status_code == 200
            answers.append(answer.json())
            assert client.get(f"/v1/heads/{head_id}").json()["rule"] == "das"
            service.process.send_signal(signal.SIGKILL)
            service.process.wait()
    assert answers[0] == answers[1]
    assert sorted(folder.rglob("*")) == before


def test_a_token_from_a_file_or_the_environment_guards_the_process(
    cache: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    options = ("--backbone", "fake", "--host", "0.0.0.0", "--token-file", str(file))
    with started(*options, env=cache) as service:
        url = f"http://127.0.0.1:{service.port}/v1/rules"
        assert httpx.get(url).status_code == 401
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx.get(url, headers=right).status_code == 200
    monkeypatch.setenv("DRIFTSCORE_TOKEN", "short")
    status, _, err = run("serve", "--backbone", "fake", "--host", "0.0.0.0")
    assert (status, "at least 16" in err) == (2, True)  # it is read, and is too short
