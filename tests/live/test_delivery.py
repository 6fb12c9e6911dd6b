"""Webhooks and programs: delivered in order, once, late ones marked, kept in the store."""

import errno
import json
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from driftscore.cli.listen import listen as app
from driftscore.decisions import DecisionStore
from driftscore.decisions.records import LiveReport, OutputStatus, Started
from driftscore.errors import StoreError, UsageError
from driftscore.live.outputs import Outputs
from driftscore.live.outputs.delivery import Delivery, UndeliveredError
from driftscore.live.outputs.program import Program
from driftscore.live.outputs.webhook import Webhook

from .scenes import NOON, Kept, eventually, scene, stored, write
from .test_mqtt import free_port


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftscore.live.outputs.delivery.FIRST_WAIT_S", 0.02)
    monkeypatch.setattr("driftscore.live.outputs.delivery.CLOSE_S", 0.5)


class Receiver:
    """A web server that keeps what is posted to it; `status` is how it answers."""

    def __init__(self, port: int = 0) -> None:
        self.posts: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.status: Callable[[dict[str, Any]], int] = lambda _: 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                code = receiver.status(fields)
                if code == 200:
                    receiver.posts.append(fields)
                    receiver.headers.append(dict(self.headers))
                self.send_response(code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = HTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def ids(self) -> list[str]:
        return [post["id"] for post in self.posts]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    running = Receiver()
    yield running
    running.stop()


def begun(delivery: Delivery, reports: list[LiveReport] | None = None) -> Delivery:
    delivery.begin((lambda _: None) if reports is None else reports.append)
    return delivery


def started(id: int = 1) -> Started:
    return Started(id, "mic1", "dog bark", 3.2, NOON.timestamp(), 0)


def test_a_webhook_gets_start_and_end_as_json_with_the_secret_of_the_environment(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTSCORE_WEBHOOK_SECRET", "open sesame")
    delivery = begun(Delivery(Webhook(f"http://127.0.0.1:{receiver.port}/hook")))
    delivery.send(started(7))
    eventually(lambda: receiver.posts)
    delivery.send(replace(stored(8), start_id=7))
    delivery.send(stored(9, rejected="below the threshold"))
    assert delivery.close() == 0
    assert [(post["phase"], post["id"], post["start_id"]) for post in receiver.posts] == [
        ("start", "7", "7"), ("end", "8", "7")
    ]  # fmt: skip
    assert receiver.posts[1]["duration_s"] == 4.5
    assert receiver.headers[0]["Authorization"] == "Bearer open sesame"
    assert receiver.headers[1]["Idempotency-Key"] == "8-end"


def test_a_webhook_that_is_away_is_reported_at_once_and_gets_its_events_in_order_and_late() -> None:
    port, messages, reports = free_port(), list[str](), list[LiveReport]()
    webhook = Webhook(f"http://127.0.0.1:{port}/secret-path")
    delivery = begun(Delivery(webhook, notify=messages.append), reports)
    eventually(lambda: messages)  # before there is an event
    assert "Connection refused" in messages[0]
    assert "secret-path" not in messages[0]
    for id in (1, 2, 3):
        delivery.send(stored(id))
    receiver = Receiver(port)
    eventually(lambda: len(receiver.posts) == 3)
    delivery.send(stored(4))
    assert delivery.close() == 0
    receiver.stop()
    assert [(post["id"], post.get("late", False)) for post in receiver.posts] == [
        ("1", True), ("2", True), ("3", True), ("4", False)
    ]  # fmt: skip
    problems = [report.problem for report in reports if isinstance(report, OutputStatus)]
    assert "cannot be reached" in problems[0]
    assert problems[-1] == ""


@pytest.mark.parametrize("secret", ["open\nsesame", "sésame"])
def test_a_secret_that_no_header_can_hold_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("DRIFTSCORE_WEBHOOK_SECRET", secret)
    with pytest.raises(UsageError, match="DRIFTSCORE_WEBHOOK_SECRET must be") as error:
        Webhook("http://127.0.0.1/")
    assert "same" not in str(error.value)


def test_an_event_that_a_webhook_refuses_is_given_up_and_does_not_hold_up_others(
    receiver: Receiver,
) -> None:
    messages: list[str] = []
    receiver.status = lambda fields: 400 if fields["id"] == "1" else 200
    webhook = Webhook(f"http://127.0.0.1:{receiver.port}")
    delivery = begun(Delivery(webhook, notify=messages.append))
    delivery.send(stored(1))
    delivery.send(stored(2))
    eventually(lambda: receiver.posts)
    assert delivery.close() == 1
    assert receiver.ids == ["2"]
    assert any("end of event 1 is given up: answers 400" in text for text in messages)


def test_a_webhook_that_is_overloaded_is_tried_for_longer(receiver: Receiver) -> None:
    answers = [503] * 8 + [200]
    receiver.status = lambda _: answers.pop(0)
    delivery = begun(Delivery(Webhook(f"http://127.0.0.1:{receiver.port}")))
    delivery.send(stored(1))
    eventually(lambda: receiver.posts)
    assert delivery.close() == 0
    assert receiver.posts[0]["late"] is True


def test_a_start_that_waits_is_not_sent_once_its_end_is_known(tmp_path: Path) -> None:
    port = free_port()
    with DecisionStore(tmp_path / "events.db") as store:
        delivery = begun(Delivery(Webhook(f"http://127.0.0.1:{port}"), store=store))
        delivery.send(stored(1))
        delivery.send(started(2))
        delivery.send(replace(stored(3), start_id=2))
        receiver = Receiver(port)
        eventually(lambda: len(receiver.posts) == 2)
        assert delivery.close() == 0
        receiver.stop()
    assert receiver.ids == ["1", "3"]


def test_events_wait_in_memory_while_the_disk_is_full_and_none_is_sent_twice(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away:
        name, key = "it", "it"
        taken: list[str]

        def __init__(self) -> None:
            self.taken, self.away = [], True

        def begin(self, *_: object) -> None: ...
        def show(self, _: object) -> None: ...
        def close(self) -> None: ...
        def deliver(self, fields: dict[str, Any]) -> None:
            if self.away:
                raise UndeliveredError("is away")
            self.taken.append(fields["id"])

    transport = Away()
    with DecisionStore(tmp_path / "events.db") as store:
        delivery = begun(Delivery(transport, store=store))
        delivery.send(stored(1))

        def full(*_: object) -> None:
            raise StoreError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(store, "wait", full)
            patch.setattr(store, "delivered", full)
            delivery.send(stored(2))
            transport.away = False
            eventually(lambda: transport.taken == ["1", "2"])
        delivery.send(stored(3))
        assert delivery.close() == 0
        assert store.waiting("it") == []
    assert transport.taken == ["1", "2", "3"]


def test_two_listeners_with_one_store_and_output_send_each_event_once(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with DecisionStore(tmp_path / "events.db") as store:
        first = begun(Delivery(Webhook(url), store=store, sources={"yard"}))
        first.send(replace(stored(1), source="yard"))
        second = begun(Delivery(Webhook(url), store=store, sources={"roof"}))
        second.send(replace(stored(2), source="roof"))
        receiver = Receiver(port)
        eventually(lambda: len(receiver.posts) == 2)
        assert (first.close(), second.close()) == (0, 0)
        receiver.stop()
    assert sorted(receiver.ids) == ["1", "2"]


def test_events_of_a_store_whose_disk_is_full_are_written_later(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    store = DecisionStore(tmp_path / "events.db")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))  # no file can be written
    try:
        with pytest.raises(StoreError):
            store.send(stored(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.send(stored(2))
    assert [event.id for event in store.events()] == [2, 1]
    assert store.close() == 0


def test_a_program_gets_each_event_on_its_standard_input_without_a_shell(tmp_path: Path) -> None:
    script, log = tmp_path / "take it.py", tmp_path / "log"
    script.write_text(
        "import sys, pathlib\n"
        f"with open({str(log)!r}, 'a') as log: log.write(' '.join(sys.argv[1:]) + sys.stdin.read())"
    )
    delivery = begun(Delivery(Program(f"'{sys.executable}' '{script}' '$HOME;ls' ")))
    for id in (1, 2):
        delivery.send(stored(id))
    eventually(lambda: log.exists() and len(log.read_text().splitlines()) == 2)
    assert delivery.close() == 0
    lines = log.read_text().splitlines()
    assert all(line.startswith("$HOME;ls{") for line in lines)
    assert [json.loads(line.removeprefix("$HOME;ls"))["id"] for line in lines] == ["1", "2"]


def test_a_program_that_fails_is_reported_with_its_last_words_and_its_events_counted(
    tmp_path: Path,
) -> None:
    script, messages = tmp_path / "no", list[str]()
    script.write_text("#!/bin/sh\ncat > /dev/null; echo 'no door bell here' >&2; exit 3\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    delivery = begun(Delivery(Program(str(script)), notify=messages.append))
    delivery.send(stored(1))
    eventually(lambda: any("given up" in text for text in messages))
    assert delivery.close() == 1
    assert "The program no ends with status 3: no door bell here" in messages[0]


def test_a_program_that_a_full_disk_keeps_from_starting_has_not_refused_its_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(UndeliveredError, match="No space left on device") as error:
        Program("cat").deliver({})
    assert not error.value.refused


def test_a_program_that_still_runs_when_the_listener_stops_is_named() -> None:
    messages: list[str] = []
    delivery = begun(Delivery(Program("sleep 3"), notify=messages.append))
    delivery.send(stored(1))
    assert delivery.close() == 1
    assert messages == ["The program sleep took no event for 0.5 s"]


def test_a_program_may_leave_another_one_running(tmp_path: Path) -> None:
    log, messages = tmp_path / "log", list[str]()
    command = f"sh -c 'cat >> {log}; sleep 3 & exit 0'"  # as a script that plays a sound
    delivery = begun(Delivery(Program(command), notify=messages.append))
    delivery.send(stored(1))
    eventually(log.exists)
    assert delivery.close() == 0
    assert messages == []


@pytest.mark.parametrize("how", ["timeout", "close"])
def test_a_program_that_does_not_end_is_ended_with_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "timeout":
        monkeypatch.setattr("driftscore.live.outputs.program.TIMEOUT_S", 0.3)
    log = tmp_path / "log"
    delivery = begun(Delivery(Program(f"sh -c '(sleep 2; echo late >> {log}) & wait'")))
    delivery.send(stored(1))
    assert delivery.close() == 1
    time.sleep(2.5)
    assert not log.exists()


@pytest.mark.parametrize(
    ("make", "text"),
    [(Webhook, "ftp://host"), (Webhook, "host"), (Program, ""), (Program, "'a"),
     (Program, "/no/such/program")],
)  # fmt: skip
def test_an_output_that_cannot_be_is_refused_before_anything_is_read(
    make: Callable[[str], object], text: str
) -> None:
    with pytest.raises(UsageError):
        make(text)


def test_what_is_wrong_with_one_output_is_told_to_the_others() -> None:
    kept = Kept()
    delivery = Delivery(Webhook(f"http://127.0.0.1:{free_port()}"))
    outputs = Outputs([delivery, kept], print)
    eventually(lambda: kept.problems)
    outputs.close()
    assert "cannot be reached" in kept.problems[0].problem


def test_a_run_that_could_not_deliver_ends_with_status_1_and_the_count(tmp_path: Path) -> None:
    path = write(tmp_path / "scene.wav", scene(20, [(8.0, "siren")]))
    arguments = [
        path,
        "-l",
        "siren, alarm clock",
        "--speed",
        "0",
        "--webhook",
        f"http://127.0.0.1:{free_port()}/x",
        "--store",
        str(tmp_path / "events.db"),
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert "error: 1 event could not be delivered" in done.stderr
    with DecisionStore(tmp_path / "events.db") as store:
        assert len(store.events()) == 1
