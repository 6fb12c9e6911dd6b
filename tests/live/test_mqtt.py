"""MQTT against a real mosquitto: discovery, states, last will, words, restarts of both sides."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from driftscore import Classifier
from driftscore.decisions import DecisionStore, open_store
from driftscore.decisions.records import Started, Words
from driftscore.errors import UsageError
from driftscore.events.watchlist import WatchList
from driftscore.live.listener import Listener
from driftscore.live.outputs import Output
from driftscore.live.outputs.delivery import Delivery, UndeliveredError
from driftscore.live.outputs.mqtt import Mqtt, broker_problem, label_slugs
from driftscore.version import __version__

from .scenes import ScriptedSource, eventually, scene, stored, write

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
needs_broker = pytest.mark.skipif(
    MOSQUITTO is None, reason="MOSQUITTO IS MISSING: apt install mosquitto"
)
HOME = "driftscore/yard/mic1"
CONFIG = "homeassistant/device/driftscore_yard_mic1/config"


def free_port() -> int:
    """Return a port of loopback where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RealBroker:
    """A mosquitto of our own on loopback, that can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._config = folder / "mosquitto.conf"
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {folder}/\nuser root\n"
        )
        self.start()

    def start(self) -> None:
        assert MOSQUITTO is not None
        self._process = subprocess.Popen([MOSQUITTO, "-c", str(self._config)],
                                         stderr=subprocess.DEVNULL)  # fmt: skip
        eventually(self._answers)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Observer:
    """A client that keeps what it receives, as Home Assistant would see it."""

    def __init__(self, port: int) -> None:
        paho = pytest.importorskip("paho.mqtt.client")
        from paho.mqtt.enums import CallbackAPIVersion

        self.received: list[tuple[str, str, bool]] = []
        # The broker keeps what comes while this client is away.
        self.client: Any = paho.Client(
            CallbackAPIVersion.VERSION2, client_id="observer", clean_session=False
        )
        self.client.on_connect = lambda client, *_: client.subscribe("#", qos=1)
        self.client.on_message = lambda _c, _d, message: self.received.append(
            (message.topic, message.payload.decode(), message.retain)
        )
        self.client.reconnect_delay_set(1, 1)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def last(self, topic: str) -> str | None:
        return next((p for t, p, _ in reversed(self.received) if t == topic), None)

    def all(self, topic: str) -> list[str]:
        return [payload for t, payload, _ in self.received if t == topic]

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealBroker]:
    running = RealBroker(tmp_path)
    yield running
    running.stop()


@pytest.fixture
def observer(broker: RealBroker) -> Iterator[Observer]:
    watching = Observer(broker.port)
    yield watching
    watching.close()


class StartedListener:
    """A listener that publishes to the broker."""

    def __init__(
        self, broker: RealBroker, classifier: Classifier, source: ScriptedSource, *,
        calibrated: bool = False,
    ) -> None:  # fmt: skip
        self.messages: list[str] = []
        mqtt = Mqtt(
            f"mqtt://127.0.0.1:{broker.port}", "Yard", {"mic1"}, calibrated=calibrated,
            change_words=lambda name, text: self.listener.change_words(name, text),
        )  # fmt: skip
        self.mqtt = Delivery(mqtt, notify=self.messages.append)
        watch = WatchList.of(["siren", "alarm clock"])
        self.listener = Listener(
            classifier, watch, {"mic1": source}, [self.mqtt], notify=self.messages.append
        )


def slow_scene() -> ScriptedSource:
    return ScriptedSource(scene(30, [(12.0, "siren")]).samples)


def quiet_scene() -> ScriptedSource:
    return ScriptedSource(scene(3, []).samples, idles=True)


class FakeClient(MagicMock):
    """Stands for the client of paho; it is connected, and keeps the last message per topic."""

    def messages(self) -> dict[str, Any]:
        calls = self.publish.call_args_list
        return {call.args[0]: call.args[1] for call in calls}


def offline(
    monkeypatch: pytest.MonkeyPatch, url: str = "mqtt://host", *, calibrated: bool = False
) -> tuple[Mqtt, FakeClient]:
    """Return an output without a broker, and the client that it uses."""
    client = FakeClient()
    monkeypatch.setattr("paho.mqtt.client.Client", lambda *_, **__: client)
    mqtt = Mqtt(url, "Yard", {"mic1"}, calibrated=calibrated, change_words=lambda *_: None)
    return mqtt, client


def test_discovery_is_that_of_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of live.md, field by field (names of entities are added)."""
    mqtt, client = offline(monkeypatch, calibrated=True)
    mqtt.show(Words("mic1", WatchList.of(["dog bark"])))
    payload = json.loads(client.messages()[CONFIG])
    components: Any = payload["components"]
    for component in components.values():
        component.pop("name")
    assert payload == {
        "device": {"identifiers": ["driftscore_yard_mic1"], "name": "Yard sounds",
                   "manufacturer": "driftscore", "sw_version": __version__},
        "origin": {"name": "driftscore", "sw_version": __version__},
        "availability": [{"topic": "driftscore/yard/status"},
                         {"topic": "driftscore/yard/mic1/status"}],
        "availability_mode": "all", "qos": 1,
        "components": {
            "sound": {"platform": "event", "unique_id": "driftscore_yard_mic1_sound",
                      "state_topic": f"{HOME}/event", "event_types": ["dog_bark"]},
            "dog_bark": {"platform": "binary_sensor",
                         "unique_id": "driftscore_yard_mic1_dog_bark", "device_class": "sound",
                         "state_topic": f"{HOME}/label/dog_bark"},
            "last": {"platform": "sensor", "unique_id": "driftscore_yard_mic1_last",
                     "state_topic": f"{HOME}/last", "value_template": "{{ value_json.label }}",
                     "json_attributes_topic": f"{HOME}/last"},
            "level": {"platform": "sensor", "unique_id": "driftscore_yard_mic1_laeq",
                      "device_class": "sound_pressure", "unit_of_measurement": "dBA",
                      "state_class": "measurement", "state_topic": f"{HOME}/level",
                      "value_template": "{{ value_json.laeq }}"},
            "words": {"platform": "text", "unique_id": "driftscore_yard_mic1_words",
                      "entity_category": "config", "command_topic": f"{HOME}/words/set",
                      "state_topic": f"{HOME}/words"},
            **{f"verdict_{verdict}": {
                "platform": "button", "unique_id": f"driftscore_yard_mic1_verdict_{verdict}",
                "entity_category": "diagnostic", "command_topic": f"{HOME}/verdict/set",
                "payload_press": verdict} for verdict in ("right", "wrong")},
        },
    }  # fmt: skip


def test_an_event_has_the_fields_of_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    mqtt, client = offline(monkeypatch)
    mqtt.show(Words("mic1", WatchList.of(["dog bark"])))
    level = json.loads(client.messages()[CONFIG])["components"]["level"]
    assert level["unit_of_measurement"] == "dBFS"  # without a calibrated microphone
    assert "device_class" not in level
    start = datetime(2026, 11, 16, 2, 10, 3, 250_000, tzinfo=UTC)
    mqtt.deliver(stored(17, start=start, score=4.1).message())
    assert json.loads(client.messages()[f"{HOME}/event"]) == {
        "event_type": "dog_bark", "phase": "end", "label": "dog bark", "score": 4.1,
        "start": "2026-11-16T02:10:03.250+00:00", "end": "2026-11-16T02:10:07.750+00:00",
        "duration_s": 4.5, "snr_db": 3.2, "id": "17", "start_id": None,
    }  # fmt: skip
    begun = Started(16, "mic1", "dog bark", 3.2, start.timestamp(), 0)
    mqtt.deliver(begun.message())
    expected = {
        "event_type": "dog_bark", "phase": "start", "label": "dog bark", "score": 3.2,
        "start": "2026-11-16T02:10:03.250+00:00", "id": "16", "start_id": "16",
    }  # fmt: skip
    assert json.loads(client.messages()[f"{HOME}/start"]) == expected
    mqtt.deliver(replace(begun, withdrawn="more like 'cat'").message())
    assert json.loads(client.messages()[f"{HOME}/start"]) == {
        **expected, "phase": "withdrawn", "withdrawn": "more like 'cat'"
    }  # fmt: skip


def test_labels_have_different_names_in_topics() -> None:
    slugs = label_slugs(["Dog bark", "dog-bark", "words", "犬", "猫"])
    assert slugs["Dog bark"] == "dog_bark"
    assert slugs["words"] == "label_words"
    assert len(set(slugs.values())) == 5
    assert all(name.isascii() for name in slugs.values())


@pytest.mark.parametrize("url", ["http://host", "mqtt://", "mqtt://host:99999"])
def test_what_is_no_address_of_a_broker_is_refused(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    with pytest.raises(UsageError, match="mqtt://host:1883"):
        offline(monkeypatch, url)


def test_the_password_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTSCORE_MQTT_PASSWORD", "secret")
    _, client = offline(monkeypatch, "mqtts://me@host")
    client.username_pw_set.assert_called_once_with("me", "secret")
    client.tls_set.assert_called_once_with()
    client.connect_async.assert_called_once_with("host", 8883, keepalive=30)


@needs_broker
def test_discovery_states_and_events_reach_the_broker(
    broker: RealBroker, observer: Observer, classifier: Classifier
) -> None:
    started = StartedListener(broker, classifier, slow_scene())
    with started.listener:
        eventually(lambda: observer.last(f"{HOME}/event"))
        eventually(lambda: observer.last(f"{HOME}/label/siren") == "OFF")
        eventually(lambda: observer.last("driftscore/yard/status") == "online")
    states = observer.all(f"{HOME}/label/siren")
    assert "ON" in states
    config = json.loads(observer.last(CONFIG) or "")
    assert config["components"]["sound"]["event_types"] == ["siren", "alarm_clock"]
    event = json.loads(observer.last(f"{HOME}/event") or "")
    assert event["event_type"] == "siren"
    assert json.loads(observer.last(f"{HOME}/last") or "") == event
    assert observer.last(f"{HOME}/words") == "siren, alarm clock"
    eventually(lambda: observer.last("driftscore/yard/status") == "offline")
    assert observer.last(f"{HOME}/status") == "offline"
    late = Observer(broker.port)  # what is retained: everything but the event
    retained = (CONFIG, f"{HOME}/last", f"{HOME}/label/siren", f"{HOME}/status", f"{HOME}/words")
    eventually(lambda: all(map(late.last, retained)))
    time.sleep(0.3)
    late.close()
    assert f"{HOME}/event" not in {topic for topic, _, _ in late.received}


@needs_broker
def test_within_a_cool_down_only_the_first_event_is_sent_and_the_last_one_shown(
    broker: RealBroker, observer: Observer
) -> None:
    mqtt = publisher(broker.port, [])
    mqtt.send(Words("mic1", WatchList.of(["siren"])))
    eventually(lambda: observer.last("driftscore/yard/status") == "online")
    start = datetime(2026, 11, 16, 2, 10, tzinfo=UTC)
    for number in (0, 30, 90):
        event = stored(number, "siren", start=start + timedelta(seconds=number), seconds=2.0)
        mqtt.send(replace(event, cooling=number == 30))
        last = str(number)
        eventually(lambda: json.loads(observer.last(f"{HOME}/last") or "{}").get("id") == last)  # noqa: B023
    mqtt.close()
    assert [json.loads(sent)["id"] for sent in observer.all(f"{HOME}/event")] == ["0", "90"]


@needs_broker
def test_words_changed_over_mqtt_give_new_entities_and_remove_old_ones(
    broker: RealBroker, observer: Observer, classifier: Classifier
) -> None:
    started = StartedListener(broker, classifier, quiet_scene())
    with started.listener:
        eventually(lambda: observer.last(CONFIG))
        eventually(lambda: observer.last("driftscore/yard/status") == "online")
        before = len(observer.all(CONFIG))
        observer.client.publish(f"{HOME}/words/set", "siren, dog bark", qos=1)
        eventually(lambda: observer.last(f"{HOME}/words") == "siren, dog bark")
        eventually(lambda: len(observer.all(CONFIG)) >= before + 2)
        removing, final = map(json.loads, observer.all(CONFIG)[-2:])
        assert removing["components"]["alarm_clock"] == {"platform": "binary_sensor"}
        assert "alarm_clock" not in final["components"]
        assert final["components"]["sound"]["event_types"] == ["siren", "dog_bark"]
        assert observer.last(f"{HOME}/label/alarm_clock") == ""
        assert observer.last(f"{HOME}/label/dog_bark") == "OFF"
        observer.client.publish(f"{HOME}/words/set", "siren, siren", qos=1)
        eventually(lambda: any("cannot be used" in text for text in started.messages))
    assert observer.last(f"{HOME}/words") == "siren, dog bark"


@needs_broker
def test_verdicts_by_mqtt_are_kept_in_the_store(
    broker: RealBroker, observer: Observer, classifier: Classifier, tmp_path: Path
) -> None:
    messages: list[str] = []
    store = DecisionStore(tmp_path / "events.db")
    for id in (1, 2, 3):
        store.send(stored(id))

    def answer(event_id: int, verdict: str) -> None:
        listener.answer(event_id, verdict)

    mqtt = Mqtt(f"mqtt://127.0.0.1:{broker.port}", "Yard", {"mic1"}, calibrated=False,
                change_words=lambda *_: None, answer=answer)  # fmt: skip
    outputs: list[Output] = [Delivery(mqtt, notify=messages.append), store]
    listener = Listener(classifier, WatchList.of(["dog bark"]), {"mic1": quiet_scene()}, outputs,
                        notify=messages.append)  # fmt: skip

    def verdicts() -> list[str]:
        with open_store(tmp_path / "events.db") as other:
            return [event.verdict for event in other.after(0, 9)]

    with listener:
        eventually(lambda: observer.last("driftscore/yard/status") == "online")
        listener.outputs.send(stored(3))  # it is the last one now
        topic = f"{HOME}/verdict/set"
        observer.client.publish(topic, '{"id": "1", "verdict": "right"}', qos=1)
        observer.client.publish(topic, "Wrong", qos=1)
        eventually(lambda: verdicts()[:3] == ["right", "", "wrong"])
        for text in ("perhaps", '{"id": 99, "verdict": "right"}', "[" * 9999):
            observer.client.publish(topic, text, qos=1)
        eventually(lambda: len([text for text in messages if "is not kept" in text]) == 3)
    assert any("no event 99" in text for text in messages)
    assert verdicts()[:3] == ["right", "", "wrong"]


@needs_broker
def test_discovery_and_states_are_sent_again_when_home_assistant_has_started(
    broker: RealBroker, observer: Observer, classifier: Classifier
) -> None:
    started = StartedListener(broker, classifier, quiet_scene())
    with started.listener:
        eventually(lambda: observer.last(f"{HOME}/status") == "online")
        eventually(lambda: observer.last("driftscore/yard/status") == "online")
        before = len(observer.all(CONFIG)), len(observer.all(f"{HOME}/words"))
        observer.client.publish("homeassistant/status", "online")
        eventually(lambda: len(observer.all(CONFIG)) > before[0])
        eventually(lambda: len(observer.all(f"{HOME}/words")) > before[1])


@needs_broker
def test_a_broker_that_is_restarted_gets_everything_again(
    broker: RealBroker, classifier: Classifier
) -> None:
    started = StartedListener(broker, classifier, quiet_scene())
    with started.listener:
        first = Observer(broker.port)
        eventually(lambda: first.last(f"{HOME}/status") == "online")
        first.close()
        broker.stop()
        eventually(lambda: any("is lost" in text for text in started.messages))
        broker.start()  # it has forgotten what was retained
        again = Observer(broker.port)
        eventually(lambda: again.last("driftscore/yard/status") == "online")
        eventually(lambda: again.last(CONFIG))
        assert again.last(f"{HOME}/status") == "online"
        assert again.last(f"{HOME}/words") == "siren, alarm clock"
        again.close()


@needs_broker
def test_the_last_will_says_offline_after_kill_9(
    broker: RealBroker, observer: Observer, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.wav", scene(120, []))
    child = subprocess.Popen(
        [sys.executable, "-m", "driftscore", "listen", f"mic1={path}",
         "-l", "siren, alarm clock", "--site", "yard", "--mqtt", f"127.0.0.1:{broker.port}"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        eventually(lambda: observer.last("driftscore/yard/status") == "online", 60)
        eventually(lambda: observer.last(f"{HOME}/status") == "online")
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    eventually(lambda: observer.last("driftscore/yard/status") == "offline")


def publisher(
    port: int, messages: list[str], *, host: str = "127.0.0.1", store: DecisionStore | None = None
) -> Delivery:
    mqtt = Mqtt(
        f"mqtt://{host}:{port}", "Yard", {"mic1"}, calibrated=False, change_words=lambda *_: None
    )
    delivery = Delivery(mqtt, store=store, notify=messages.append)
    delivery.begin(lambda _: None)
    return delivery


def test_a_connection_that_ends_while_an_event_is_published_is_no_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mqtt = Mqtt(
        f"mqtt://127.0.0.1:{free_port()}", "Yard", {"mic1"},
        calibrated=False, change_words=lambda *_: None,
    )  # fmt: skip
    connected = iter([True])
    monkeypatch.setattr(mqtt._client, "is_connected", lambda: next(connected, False))
    for _ in range(2):
        with pytest.raises(UndeliveredError, match="is lost") as error:
            mqtt.deliver(stored(1).message())
        assert not error.value.refused
    assert mqtt._sent is not None
    mqtt._sent[1]._set_as_published()  # as paho does when the broker is back and has confirmed it
    mqtt.deliver(stored(1).message())
    assert mqtt._sent is None


@needs_broker
def test_events_without_a_broker_arrive_once_in_order_and_are_marked_late(
    broker: RealBroker, observer: Observer
) -> None:
    messages: list[str] = []
    mqtt = publisher(broker.port, messages)
    eventually(lambda: observer.last("driftscore/yard/status") == "online")
    mqtt.send(stored(1))
    eventually(lambda: len(observer.all(f"{HOME}/event")) == 1)
    broker.stop()
    eventually(lambda: any("is lost" in text for text in messages))
    for id in (2, 3, 4):
        mqtt.send(stored(id))
    broker.start()
    eventually(lambda: len(observer.all(f"{HOME}/event")) >= 4)
    mqtt.send(stored(5))
    assert mqtt.close() == 0
    eventually(lambda: len(observer.all(f"{HOME}/event")) >= 5)
    events = [json.loads(text) for text in observer.all(f"{HOME}/event")]
    assert [event["id"] for event in events] == ["1", "2", "3", "4", "5"]
    assert [event.get("late", False) for event in events] == [False, True, True, True, False]
    assert any("there again" in text for text in messages)


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_a_broker_that_is_not_there_is_reported_at_once_and_its_events_are_counted(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driftscore.live.outputs.delivery.CLOSE_S", 0.5)
    monkeypatch.setattr("driftscore.live.outputs.delivery.MAX_IN_MEMORY", 3)
    messages: list[str] = []
    mqtt = publisher(free_port(), messages, host=host)
    eventually(lambda: bool(messages))
    assert "cannot be reached: " in messages[0]
    for id in range(5):
        mqtt.send(stored(id + 1))
    assert mqtt.close() == 5
    assert [text for text in messages[1:] if "no more events can wait" not in text] == []


@pytest.mark.parametrize(
    ("scheme", "problem"), [("mqtts", "SSL"), ("mqtt", "does not answer as a broker")]
)
def test_a_port_where_no_broker_of_this_kind_answers_is_reported_with_what_is_wrong(
    scheme: str, problem: str
) -> None:
    messages: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.recv(10_000)
                connection.sendall(b"neither a broker nor encrypted")

        threading.Thread(target=answer, daemon=True).start()
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}"
        output = Mqtt(url, "home", {"yard"}, calibrated=False, change_words=lambda *_: None)
        output.begin(messages.append, lambda: None)
        eventually(lambda: bool(messages))
        output.close()
    assert problem in messages[0]


def test_a_refused_connection_is_not_reported_as_a_lost_one_as_well() -> None:
    class Reason:
        is_failure = True

        def __str__(self) -> str:
            return "Not authorized"

    mqtt = Mqtt("mqtt://127.0.0.1", "home", {"yard"}, calibrated=False, change_words=print)
    problems: list[str] = []
    mqtt._failed = problems.append
    mqtt._on_connect(None, None, None, Reason(), None)
    mqtt._on_disconnect(None, None, None, Reason(), None)
    assert problems == ["refuses the connection: Not authorized"]


@needs_broker
def test_events_that_wait_in_the_store_are_sent_by_the_next_run(
    broker: RealBroker, observer: Observer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driftscore.live.outputs.delivery.CLOSE_S", 0.5)
    broker.stop()
    messages: list[str] = []
    with DecisionStore(tmp_path / "events.db") as store:
        first = publisher(broker.port, messages, store=store)
        eventually(lambda: bool(messages))
        for id in (1, 2):
            first.send(stored(id))
        assert first.close() == 2
    assert "gets 2 events from the next run" in messages[-1]
    broker.start()
    # Until it has subscribed again.
    eventually(lambda: observer.client.publish("probe", "") and observer.last("probe") is not None)
    with DecisionStore(tmp_path / "events.db") as store:
        second = publisher(broker.port, messages, store=store)
        second.send(stored(3))
        assert second.close() == 0
        third = publisher(broker.port, messages, store=store)
        assert third.close() == 0
    eventually(lambda: len(observer.all(f"{HOME}/event")) >= 3)
    events = [json.loads(text) for text in observer.all(f"{HOME}/event")]
    assert [(event["id"], event.get("late", False)) for event in events] == [
        ("1", True), ("2", True), ("3", False)
    ]  # fmt: skip


@needs_broker
def test_doctor_says_what_is_wrong_with_a_broker(broker: RealBroker) -> None:
    assert broker_problem(f"mqtt://127.0.0.1:{broker.port}") == (f"127.0.0.1:{broker.port}", "")
    nobody = free_port()
    assert broker_problem(f"127.0.0.1:{nobody}")[1] == "cannot be reached: Connection refused"
