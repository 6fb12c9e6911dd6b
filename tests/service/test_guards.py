"""Who may use the service, how large a request may be, and what is never touched."""

import asyncio
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from driftscore import Backbone
from driftscore.embedder import Embedder
from driftscore.errors import UsageError
from driftscore.service.app import create_app
from driftscore.service.security import CONTENT_POLICY
from driftscore.service.server import serve
from driftscore.service.settings import Limits, ServiceSettings, is_loopback
from driftscore.service.work import BusyError, WorkQueue
from tests.conftest import Run

from .conftest import TOKEN, clip_bytes, serving, state_of, threaded, wait_until

ASKED = {"labels": "siren,rain"}
PATHS = ["/v1/rules", "/v1/backbones", "/metrics", "/openapi.json", "/v1/events/stream", "/nothing"]


@pytest.fixture(scope="module")
def guarded(fake: Backbone) -> Iterator[TestClient]:
    settings = ServiceSettings(backbone=Embedder(fake, text_cache=False), token=TOKEN)
    with serving(settings, base_url="http://sounds.example") as client:
        yield client


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "header",
    ["", TOKEN, f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer é"],
)
def test_every_path_but_the_public_ones_needs_the_token(
    guarded: TestClient, path: str, header: str
) -> None:
    headers = {b"authorization": header.encode()} if header else {}
    answer = guarded.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in answer.text


def test_with_the_token_requests_are_answered_under_any_name(guarded: TestClient) -> None:
    headers = {"authorization": f"bearer {TOKEN}"}
    assert guarded.get("/v1/rules", headers=headers).status_code == 200
    assert guarded.get("/livez").status_code == 200
    assert guarded.get("/readyz").status_code == 200
    posted = guarded.post("/v1/classify", params=ASKED, content=clip_bytes())
    assert posted.status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.x", "[::2]"])
def test_without_a_token_only_loopback_names_are_answered(
    fake_client: TestClient, host: str
) -> None:
    for port in ("", ":8765"):
        answer = fake_client.get("/v1/rules", headers={"host": host + port})
        assert answer.status_code == 400
        assert "--token-file" in answer.json()["error"]
    for good in ("localhost", "LOCALHOST:1", "127.0.0.1:8765", "127.9.9.9", "[::1]:80", "[::1]"):
        assert fake_client.get("/v1/rules", headers={"host": good}).status_code == 200


def test_a_page_of_another_origin_is_refused(fake_client: TestClient) -> None:
    for origin, status in (
        ("http://localhost", 200),
        ("http://evil.example", 403),
        ("http://localhost:81", 403),
        ("null", 403),
    ):
        answer = fake_client.post(
            "/v1/classify", params=ASKED, content=clip_bytes(), headers={"origin": origin}
        )
        assert answer.status_code == status, origin
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("path", ["/livez", "/nothing", "/v1/rules", "/v1/classify"])
def test_every_answer_has_the_security_headers(fake_client: TestClient, path: str) -> None:
    headers = fake_client.get(path).headers
    assert headers["content-security-policy"] == CONTENT_POLICY
    assert "unsafe" not in CONTENT_POLICY
    assert "http" not in CONTENT_POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


def test_an_error_that_no_one_foresaw_is_a_500_with_headers_and_without_details(
    fake: Backbone, capsys: pytest.CaptureFixture[str]
) -> None:
    app: FastAPI = create_app(ServiceSettings(backbone=Embedder(fake, text_cache=False)))

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("a secret detail")

    with TestClient(app, base_url="http://localhost") as client:
        answer = client.get("/broken")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "a secret detail" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", ""])
def test_other_addresses_need_a_token(host: str) -> None:
    with pytest.raises(UsageError, match="--token-file"):
        serve(ServiceSettings(), host=host, port=0, report=print)
    assert not is_loopback(host)


@pytest.mark.parametrize("token", ["", "short", "with a space in the middle", "é" * 20, "x\n" * 20])
def test_a_token_that_is_too_simple_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="token"):
        ServiceSettings(token=token)


def test_the_token_is_not_part_of_a_printed_setting() -> None:
    assert TOKEN not in repr(ServiceSettings(token=TOKEN))


def test_the_command_refuses_what_it_cannot_serve(
    run: Run, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRIFTSCORE_TOKEN", raising=False)
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "short").write_text("abc\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words, options in (
            ("a token is needed", ["--host", "0.0.0.0"]),
            ("cannot be read", ["--token-file", folder / "absent"]),
            ("at least 16", ["--host", "0.0.0.0", "--token-file", folder / "short"]),
            ("0<=x<=65535", ["--port", "70000"]),
            ("whole number", ["--port", "http"]),
            ("must be positive", ["--max-seconds", "0"]),
            ("--max-mb must be a number", ["--max-mb", "many"]),
            ("Cannot listen", ["--port", port]),
        ):
            status, out, err = run("serve", "--backbone", "fake", *options)
            assert (status, out) == (2, ""), err
            assert words in err


def test_a_model_that_cannot_be_loaded_ends_the_command(run: Run) -> None:
    status, _, err = run("serve", "--backbone", "absent-model", "--port", "0")
    assert status == 2
    assert "absent-model" in err


def send(url: str, head: str, body: bytes = b"", wait_s: float = 60.0) -> bytes:
    """Send a request as it is and return its answer, an error in JSON."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=wait_s) as connection:
        connection.sendall(head.encode() + body)
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(4000)
        return answer


HEAD = "POST /v1/classify?labels=a,b HTTP/1.1\r\nHost: localhost\r\n"


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read(fake: Backbone) -> None:
    limits = Limits(body_bytes=1_000_000)
    app = create_app(ServiceSettings(backbone=Embedder(fake, text_cache=False), limits=limits))
    with threaded(app) as url:
        for length in ("1000001", "9" * 18):
            # Not one byte of the body is sent: an answer can only come before it is read.
            answer = send(url, f"{HEAD}Content-Length: {length}\r\n\r\n")
            assert b"413" in answer.split(b"\r\n")[0]
            assert b"1 MB" in answer


def test_a_body_that_does_not_say_its_size_is_cut_off_at_the_limit(fake: Backbone) -> None:
    limits = Limits(body_bytes=100_000)
    app = create_app(ServiceSettings(backbone=Embedder(fake, text_cache=False), limits=limits))
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with threaded(app) as url:
        answer = send(url, f"{HEAD}Transfer-Encoding: chunked\r\n\r\n", 2 * chunk)  # and no end
        assert b"413" in answer.split(b"\r\n")[0]


def test_a_body_that_takes_too_long_is_given_up(fake: Backbone) -> None:
    limits = Limits(body_s=0.3)
    app = create_app(ServiceSettings(backbone=Embedder(fake, text_cache=False), limits=limits))
    with threaded(app) as url:
        answer = send(url, f"{HEAD}Content-Length: 1000\r\n\r\n", b"RIFF")
        assert b"408" in answer.split(b"\r\n")[0]


def test_bodies_together_are_bounded(fake: Backbone) -> None:
    limits = Limits(in_flight_bytes=150_000)
    app = create_app(ServiceSettings(backbone=Embedder(fake, text_cache=False), limits=limits))
    with threaded(app) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(f"{HEAD}Content-Length: 200000\r\n\r\n".encode() + bytes(100_000))

            def refused() -> bool:  # as soon as the first body has been read so far
                answer = send(url, f"{HEAD}Content-Length: 100000\r\n\r\n", bytes(100_000))
                return b"503" in answer.split(b"\r\n")[0] and b"etry-after: 2" in answer

            wait_until(refused)
        wait_until(  # what a client that left had sent is free again
            lambda: b"415" in send(url, f"{HEAD}Content-Length: 100000\r\n\r\n", bytes(100_000))
        )


def test_past_the_queue_requests_are_refused_with_the_time_to_wait(
    fake: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = Embedder(fake, text_cache=False, threads=1)
    with serving(ServiceSettings(backbone=embedder, queue=1)) as client:
        release, codes = threading.Event(), []
        state = state_of(client)

        def occupy() -> None:
            codes.append(client.post("/v1/classify", params=ASKED, content=clip_bytes()))

        heads = state.heads.get
        monkeypatch.setattr(state.heads, "get", lambda spec: release.wait(20) and heads(spec))
        threads = [threading.Thread(target=occupy) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_until(lambda: state.work.admitted == 2)
        assert "driftscore_running 1.0" in client.get("/metrics").text
        assert state.work.waiting == 1
        refused = client.post("/v1/classify", params=ASKED, content=clip_bytes())
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert "busy" in refused.json()["error"]
        assert client.get("/livez").status_code == 200
        assert "driftscore_waiting 1.0" in client.get("/metrics").text
        release.set()
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in codes] == [200, 200]
        wait_until(lambda: state.work.admitted == 0)


def test_work_is_counted_until_its_thread_is_done() -> None:
    async def scenario() -> None:
        queue = WorkQueue(workers=1, waiting=0)
        begun, release = threading.Event(), threading.Event()

        def occupy() -> bool:
            begun.set()
            return release.wait(60)

        first = asyncio.create_task(queue.run(occupy))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        with pytest.raises(BusyError):  # its client has gone, but the thread is still busy
            await queue.run(lambda: None)
        release.set()
        while queue.admitted:
            await asyncio.sleep(0.01)
        assert await queue.run(lambda: 5) == 5
        with pytest.raises(ZeroDivisionError):
            await queue.run(lambda: 1 / 0)
        assert queue.admitted == 0
        queue.close()

    asyncio.run(scenario())


def test_the_time_to_wait_follows_from_how_long_work_takes() -> None:
    queue = WorkQueue(workers=2, waiting=100)
    assert queue.retry_after == 1
    queue.mean_s, queue.admitted = 1.0, 42
    assert queue.retry_after == 21  # 40 wait, then this one, two at a time
    queue.admitted = 1000
    assert queue.retry_after == 60


def test_uploads_touch_neither_the_disk_nor_another_program(
    fake: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a file or a process was opened for a request")

    large = clip_bytes(120.0)  # beyond the size from which Starlette spools to disk
    assert len(large) > 3_000_000
    with serving(ServiceSettings(backbone=Embedder(fake, text_cache=False))) as client:
        monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
        monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
        monkeypatch.setattr(tempfile, "_TemporaryFileWrapper", refuse)
        monkeypatch.setattr(subprocess, "Popen", refuse)
        form = client.post("/v1/classify", data=ASKED, files={"file": ("a.wav", large)})
        assert form.status_code == 200, form.text
        for content in (b"OggS" + bytes(100), b"ID3" + bytes(100), bytes(100), b"RIFF" + large):
            answer = client.post("/v1/classify", params=ASKED, content=content)
            assert answer.status_code in (415, 422), answer.text


def test_the_service_is_alive_before_it_is_ready(
    fake: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder, release = Embedder(fake, text_cache=False), threading.Event()
    monkeypatch.setattr(embedder, "start", lambda: release.wait(20))
    app = create_app(ServiceSettings(backbone=embedder))
    with TestClient(app, base_url="http://localhost") as client:
        assert client.get("/livez").status_code == 200
        ready = client.get("/readyz")
        assert ready.status_code == 503
        assert "being loaded" in ready.json()["error"]
        early = client.post("/v1/classify", params=ASKED, content=clip_bytes())
        assert early.status_code == 503
        assert early.headers["retry-after"] == "1"
        release.set()
        wait_until(lambda: client.get("/readyz").status_code == 200)
        state_of(client).stopping = True
        assert "shutting down" in client.get("/readyz").json()["error"]
        late = client.post("/v1/classify", params=ASKED, content=clip_bytes())
        assert (late.status_code, late.headers["retry-after"]) == (503, "1")
        assert "shutting down; try again" in late.json()["error"]


def test_metrics_count_answers_by_route_and_never_by_request(fake: Backbone) -> None:
    with serving(ServiceSettings(backbone=Embedder(fake, text_cache=False))) as client:
        client.post("/v1/classify", params={"labels": "a secret word,b"}, content=clip_bytes())
        client.get("/v1/heads/AAAA")
        client.get("/some/other/path")
        text = client.get("/metrics").text
    assert 'driftscore_answers_total{code="200",path="/v1/classify"} 1.0' in text
    assert 'driftscore_answers_total{code="404",path="/v1/heads/{id}"} 1.0' in text
    assert 'driftscore_answers_total{code="404",path="other"} 1.0' in text
    assert 'driftscore_answer_seconds_count{path="/v1/classify"} 1.0' in text
    assert "driftscore_ready 1.0" in text
    assert "secret" not in text
