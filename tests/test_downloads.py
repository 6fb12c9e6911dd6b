"""The downloader against servers on this machine that misbehave in every way that we know."""

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from driftscore.backbones.mn04 import tagger
from driftscore.errors import DownloadError, DriftscoreError, WriteError
from driftscore.storage import downloads

CONTENT = bytes(range(256)) * 400
Answer = Callable[[socket.socket, str], None]
"""Answers one request, given its headers."""


class RawServer:
    """A server that answers with whatever bytes a test wants, and remembers the requests."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.requests = answer, list[str]()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with closing(connection), suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request and (some := connection.recv(65536)):
                request += some
            self.requests.append(request.decode("latin-1"))
            self.answer(connection, self.requests[-1])


Serve = Callable[[Answer | bytes], RawServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    running: list[RawServer] = []

    def start(answer: Answer | bytes) -> RawServer:
        whole = answer
        act = (lambda c, _: c.sendall(whole)) if isinstance(whole, bytes) else whole
        running.append(RawServer(act))
        return running[-1]

    yield start
    for server in running:
        server.socket.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PAUSE_S", 0.0)
    monkeypatch.setattr(downloads, "WINDOW_S", 0.5)
    monkeypatch.setenv("no_proxy", "*")


def answer(status: str, *headers: str, body: bytes = b"") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode("latin-1") + body


COMPLETE = answer("200 OK", f"Content-Length: {len(CONTENT)}", body=CONTENT)


def fetched(server: RawServer, part: Path, **options: int) -> bytes:
    downloads.download(f"{server.address}/x", part, what="x", **options)
    return part.read_bytes()


ODD = {
    "no content": answer("204 No Content"),
    "created": answer("201 Created", "Content-Length: 0"),
    "range not satisfiable": answer("416 Range Not Satisfiable", "Content-Length: 0"),
    "negative length": answer("200 OK", "Content-Length: -5", body=CONTENT),
    "length in words": answer("200 OK", "Content-Length: many", body=CONTENT),
    "length with an exponent": answer("200 OK", "Content-Length: 1e3", body=CONTENT),
    "length with a sign": answer("200 OK", "Content-Length: +5", body=CONTENT),
    "length of 30 digits": answer("200 OK", f"Content-Length: {'9' * 30}", body=CONTENT),
    "length of a petabyte": answer("200 OK", f"Content-Length: {10**15}", body=CONTENT),
    "length of other digits": answer("200 OK", "Content-Length: \xb2", body=CONTENT),
    "empty answer": b"",
    "no status": b"hello\r\n\r\n",
    "odd status": b"HTTP/1.1 abc OK\r\n\r\n",
    "long line": b"HTTP/1.1 200 " + b"x" * 700_000 + b"\r\n\r\n",
    "too many headers": answer("200 OK", *(f"X-{i}: 1" for i in range(20_000))),
    "not found": answer("404 Not Found"),
    "words with a line end": answer("418 I am \x1b[31m a teapot"),
    "too short": answer("200 OK", "Content-Length: 900000", body=CONTENT),
    "broken chunks": answer("200 OK", "Transfer-Encoding: chunked", body=b"zz\r\nabc"),
    "chunks without an end": answer("200 OK", "Transfer-Encoding: chunked", body=b"5\r\nab"),
    "nowhere": answer("302 Found"),
    "to a file": answer("302 Found", "Location: file:///etc/passwd"),
    "to ftp": answer("302 Found", "Location: ftp://127.0.0.1/x"),
    "to another server without encryption": answer("302 Found", "Location: http://127.0.0.2:1/x"),
    "to half an address": answer("302 Found", "Location: http://[::1"),
    "to no host": answer("302 Found", "Location: https://"),
    "to an odd port": answer("302 Found", "Location: https://127.0.0.1:port/"),
    "in a circle": answer("302 Found", "Location: /x"),
    "for ever": answer("308 Permanent Redirect", "Location: x/x"),
}


@pytest.mark.parametrize("case", ODD)
def test_an_odd_answer_is_one_sentence(case: str, serve: Serve, tmp_path: Path) -> None:
    server = serve(ODD[case])
    with pytest.raises(DownloadError, match=rf"^Cannot download {server.address}/x: ") as found:
        fetched(server, tmp_path / "part")
    said = str(found.value)
    assert "\n" not in said
    assert len(said) < 500
    with pytest.raises(DriftscoreError):
        downloads.read_document(f"{server.address}/x", most=1000)


def test_an_empty_file_is_a_file(serve: Serve, tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_bytes(b"old")
    assert fetched(serve(answer("200 OK", "Content-Length: 0")), part) == b""


@pytest.mark.parametrize("target", ["https://127.0.0.1:1/x", "//127.0.0.1:1/x"])
def test_a_redirect_to_https_is_followed_and_one_to_http_never(
    target: str, serve: Serve, tmp_path: Path
) -> None:
    server = serve(answer("302 Found", f"Location: {target}"))
    with pytest.raises(DownloadError) as found:
        fetched(server, tmp_path / "part")
    assert ("which is not https" in str(found.value)) == target.startswith("//")


def test_a_mirror_may_redirect_within_itself(serve: Serve, tmp_path: Path) -> None:
    def moved(connection: socket.socket, request: str) -> None:
        there = request.startswith("GET /there ")
        connection.sendall(COMPLETE if there else answer("302 Found", "Location: /there"))

    assert fetched(serve(moved), tmp_path / "part") == CONTENT


def drip(first: bytes) -> Answer:
    def answered(connection: socket.socket, _: str) -> None:
        connection.sendall(first)
        for _number in range(400):
            connection.sendall(b"1")
            time.sleep(0.05)

    return answered


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"", id="status"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: ", id="headers"),
        pytest.param(answer("200 OK", "Content-Length: 90000000"), id="body"),
        pytest.param(answer("200 OK", "Transfer-Encoding: chunked"), id="chunk size"),
        pytest.param(b"HTTP/1.1 302 Found\r\nX: ", id="redirect"),
    ],
)
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(
    first: bytes, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "WINDOW_S", 0.2)
    started = time.monotonic()
    server = serve(drip(first))
    with pytest.raises(DownloadError, match=r"2 attempts failed: the server sent .* less than"):
        fetched(server, tmp_path / "part")
    with pytest.raises(DownloadError, match="less than"):
        downloads.read_document(f"{server.address}/x", most=10**9)
    assert time.monotonic() - started < 18  # the server goes on for 20 s each time


def test_a_server_that_never_answers_is_given_up(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "WINDOW_S", 0.2)
    silent = serve(lambda connection, _: time.sleep(60))
    with pytest.raises(DownloadError, match=r"2 attempts failed: the server sent 0 bytes"):
        fetched(silent, tmp_path / "part")


def test_the_real_limits_end_within_a_minute() -> None:
    assert downloads.SLOW_TRIES * 20.0 < 60  # the window, before the tests shorten it
    assert downloads.MIN_BYTES >= 1000


def test_a_slow_but_steady_server_is_waited_for(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "MIN_BYTES", 100)
    monkeypatch.setattr(downloads, "WINDOW_S", 1.5)  # a busy machine may stop for a second

    def steady(connection: socket.socket, _: str) -> None:
        connection.sendall(answer("200 OK", "Content-Length: 2000"))
        for _number in range(20):
            connection.sendall(b"x" * 100)
            time.sleep(0.1)

    assert fetched(serve(steady), tmp_path / "part") == b"x" * 2000


def test_a_stream_without_an_end_is_bounded(serve: Serve, tmp_path: Path) -> None:
    def endless(connection: socket.socket, _: str) -> None:
        connection.sendall(answer("200 OK"))
        while True:
            connection.sendall(b"x" * 65536)

    with pytest.raises(DownloadError, match="sends more than 1,000,000 bytes"):
        fetched(serve(endless), tmp_path / "part", most=1_000_000)
    assert (tmp_path / "part").stat().st_size <= 1_000_000
    with pytest.raises(DownloadError, match="more than 5,000 bytes"):
        downloads.read_document(f"{serve(endless).address}/x", most=5_000)


def test_a_part_that_continues_elsewhere_is_downloaded_from_the_beginning(
    serve: Serve, tmp_path: Path
) -> None:
    def other_place(connection: socket.socket, request: str) -> None:
        half = answer("206 Partial Content", "Content-Range: bytes 0-9/20", body=b"0123456789")
        connection.sendall(half if "Range:" in request else COMPLETE)

    (tmp_path / "part").write_bytes(CONTENT[:1000])
    assert fetched(serve(other_place), tmp_path / "part") == CONTENT


def test_a_place_that_cannot_be_written_is_reported_once(serve: Serve, tmp_path: Path) -> None:
    server = serve(COMPLETE)
    with pytest.raises(WriteError, match="Cannot write"):
        fetched(server, tmp_path / "no folder" / "part")
    assert len(server.requests) == 1


def mn04_from(address: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTSCORE_CACHE", str(home))
    monkeypatch.delenv("DRIFTSCORE_MN04", raising=False)
    monkeypatch.setattr(tagger, "SOURCE", f"{address}/{tagger.FILE_NAME}")


def test_the_weights_of_mn04_are_kept_if_their_sum_is_right(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mn04_from(serve(COMPLETE).address, tmp_path, monkeypatch)
    monkeypatch.setattr(tagger, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    assert tagger.find_weights().read_bytes() == CONTENT


@pytest.mark.parametrize("case", ["another file", "no content", "in a circle", "to ftp"])
def test_a_failed_download_of_mn04_leaves_no_file_and_says_what_to_do(
    case: str, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mn04_from(serve(ODD.get(case, COMPLETE)).address, tmp_path / "cache", monkeypatch)
    with pytest.raises(DownloadError, match=r"save it as"):
        tagger.find_weights()
    assert list((tmp_path / "cache").iterdir()) == []


def test_weights_of_mn04_that_never_end_are_bounded(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tagger, "_MAX_BYTES", 1000)
    mn04_from(serve(COMPLETE).address, tmp_path / "cache", monkeypatch)
    with pytest.raises(DownloadError, match=r"more than 1,000.*save it as"):
        tagger.find_weights()
    assert list((tmp_path / "cache").iterdir()) == []
