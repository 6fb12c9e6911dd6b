"""MQTT with Home Assistant's device discovery, through paho-mqtt (extra `mqtt`).

    driftscore/<site>/status                      online | offline (last will)
    driftscore/<site>/outputs                     what is wrong with other outputs
    driftscore/<site>/<source>/status             online | offline
    driftscore/<site>/<source>/start              an event has begun, or is withdrawn; not retained
    driftscore/<site>/<source>/event              an event that has ended; not retained
    driftscore/<site>/<source>/label/<slug>       ON | OFF
    driftscore/<site>/<source>/last               the last event
    driftscore/<site>/<source>/level              laeq, l10, l90
    driftscore/<site>/<source>/words              the labels; set by .../words/set
    driftscore/<site>/<source>/verdict/set        right | wrong | unsure, of the last event; of any
                                                  other: {"id": "...", "verdict": "right"}
    homeassistant/device/driftscore_<site>_<source>/config

Topics and field names are a contract with users: they do not change. States are kept here and sent
again whenever the broker or Home Assistant has started anew. An event was taken when the broker has
confirmed it; `delivery.py` keeps those that wait.
"""

import contextlib
import hashlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Set
from typing import Any
from urllib.parse import unquote, urlsplit

from driftscore.decisions.records import (
    END,
    RIGHT,
    WRONG,
    JsonFields,
    LevelReport,
    LiveReport,
    OutputStatus,
    SourceStatus,
    Started,
    StoredEvent,
    Words,
)
from driftscore.errors import MissingExtraError, UsageError
from driftscore.live.clips import slug
from driftscore.live.outputs.delivery import CLOSE_S, UndeliveredError, connection_problem
from driftscore.version import __version__

PASSWORD = "DRIFTSCORE_MQTT_PASSWORD"  # noqa: S105 (the name of a variable)
BIRTH = "homeassistant/status"
"""Where Home Assistant says that it has started."""
MAX_WORDS = 10_000  # bytes of a message that changes the words
_NOT_CONNECTED = 4  # paho's MQTT_ERR_NO_CONN
_PORTS = {"mqtt": 1883, "mqtts": 8883}
_EVENT_FIELDS = ("phase", "label", "score", "start", "end", "duration_s", "snr_db", "id",
                 "start_id", "withdrawn", "late")  # fmt: skip
_TAKEN = ("sound", "last", "level", "words", "verdict_right", "verdict_wrong")


class Mqtt:
    """Publishes to a broker, and takes new words from it.

    Parameters
    ----------
        url: the broker, as in mqtt://user@host:1883; mqtts:// is encrypted. The password is better
            in DRIFTSCORE_MQTT_PASSWORD.
        site: the name of this machine in topics.
        sources: the names of the sources.
        calibrated: whether levels are dBA.
        change_words: called with a source and its new words.
        answer: called with the id of an event and a verdict on it.

    """

    def __init__(
        self,
        url: str,
        site: str,
        sources: Set[str],
        *,
        calibrated: bool,
        change_words: Callable[[str, str], None],
        answer: Callable[[int, str], None] = lambda *_: None,
    ) -> None:
        self._site = slug(site)
        client, host, port = _open_client(url, f"driftscore_{self._site}_{os.getpid()}")
        self._client = client
        self._status = f"driftscore/{self._site}/status"
        self._slugs = {name: slug(name) for name in sources}
        """The sources in topics."""
        if len(set(self._slugs.values())) < len(self._slugs):
            raise UsageError(
                f"The names of the sources are too alike for topics: {sorted(sources)}"
            )
        self._calibrated = calibrated
        self._change_words, self._answer = change_words, answer
        self._last_ids: dict[str, int] = {}
        """The last event of each source."""
        self._lock = threading.RLock()
        self._labels: dict[str, dict[str, str]] = {name: {} for name in sources}
        """The labels of each source in topics."""
        self._states: dict[str, str] = {}
        """What is retained, by topic; sent again when the broker has started anew."""
        self._problem = ""
        self._answered = False
        """Whether a broker has accepted the connection that there is."""
        self._problems: dict[str, str] = {}
        """What is wrong with other outputs."""
        self._sent: tuple[str, Any] | None = None
        """The last event that was given to paho, and what paho knows of it."""
        self._failed: Callable[[str], None] = lambda _: None
        self._ready: Callable[[], None] = lambda: None
        self.name = f"The MQTT broker {host}:{port}"
        self.key = f"mqtt {host}:{port} {self._site}"
        client.will_set(self._status, "offline", qos=1, retain=True)
        client.reconnect_delay_set(1, 60)
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.connect_async(host, port, keepalive=30)

    def begin(self, failed: Callable[[str], None], ready: Callable[[], None]) -> None:
        """Connect; paho tries it again after 1 to 60 s."""
        self._failed, self._ready = failed, ready
        self._client.loop_start()

    def show(self, report: LiveReport) -> None:
        """Publish a state; of an event that is `last`."""
        if isinstance(report, Started):
            return
        if isinstance(report, OutputStatus):
            with self._lock:
                self._problems[report.output] = report.problem
                problems = {name: why for name, why in self._problems.items() if why}
                self._state(f"driftscore/{self._site}/outputs", json.dumps(problems))
            return
        with self._lock:
            home, labels = self._home(report.source), self._labels[report.source]
            if isinstance(report, StoredEvent):
                if not report.rejected:
                    self._last_ids[report.source] = report.id
                    self._state(f"{home}/last", self._payload(report.message()))
            elif isinstance(report, LevelReport):
                level = {name: value for name, value in vars(report).items() if name != "source"}
                self._state(f"{home}/level", json.dumps(level))
            elif isinstance(report, SourceStatus):
                self._state(f"{home}/status", "online" if report.online else "offline")
            elif isinstance(report, Words):
                # Entities of labels that are gone are removed.
                slugs = self._labels[report.source] = label_slugs(report.watch.names)
                gone = set(labels.values()) - set(slugs.values())
                if gone:
                    self._announce(report.source, removed=gone)
                for name in gone:
                    self._states.pop(f"{home}/label/{name}", None)
                    self._publish(f"{home}/label/{name}", "")
                self._announce(report.source)
                for name in slugs.values():
                    if f"{home}/label/{name}" not in self._states:
                        self._state(f"{home}/label/{name}", "OFF")
                self._state(f"{home}/words", report.text)
            else:
                for label, name in labels.items():
                    state = "ON" if label in report.labels else "OFF"
                    self._state(f"{home}/label/{name}", state)

    def deliver(self, fields: JsonFields) -> None:
        """Publish an event, and wait until the broker has confirmed it."""
        key = f"{fields['id']} {fields['phase']}"
        if self._sent is None or self._sent[0] != key:
            until = time.monotonic() + CLOSE_S  # it may only just have been started
            while not self._client.is_connected():
                if self._problem or time.monotonic() > until:
                    raise UndeliveredError(self._problem or "does not answer")
                time.sleep(0.01)
            topic = "event" if fields["phase"] == END else "start"
            topic = f"{self._home(str(fields['source']))}/{topic}"
            message = self._client.publish(topic, self._payload(fields), qos=1)
            if message.rc == _NOT_CONNECTED:  # since a moment: paho keeps it, which is no refusal
                message.rc = 0
            self._sent = key, message
        # After a lost connection paho sends it again by itself.
        while not self._sent[1].is_published():
            if not self._client.is_connected():
                raise UndeliveredError(self._problem or "is lost")
            time.sleep(0.005)
        self._sent = None

    def close(self) -> None:
        """Disconnect."""
        if self._client.is_connected():
            message = self._client.publish(self._status, "offline", qos=1, retain=True)
            with contextlib.suppress(RuntimeError):  # the connection has just been lost
                message.wait_for_publish(CLOSE_S)
        self._client.disconnect()
        self._client.loop_stop()

    def _payload(self, fields: JsonFields) -> str:
        """Return the message of an event: some of its fields, with its label as in topics."""
        labels = self._labels.get(str(fields["source"]), {})
        label = str(fields["label"])
        message = {name: fields[name] for name in _EVENT_FIELDS if name in fields}
        return json.dumps({"event_type": labels.get(label, slug(label)), **message})

    def _home(self, source: str) -> str:
        return f"driftscore/{self._site}/{self._slugs.get(source) or slug(source)}"

    def _on_connect(
        self, client: Any, data: object, flags: object, reason: Any, properties: object
    ) -> None:
        if reason.is_failure:
            self._fail(f"refuses the connection: {reason}")
            return
        self._problem, self._answered = "", True
        client.subscribe(BIRTH, qos=1)
        for source in self._slugs:
            client.subscribe(f"{self._home(source)}/words/set", qos=1)
            client.subscribe(f"{self._home(source)}/verdict/set", qos=1)
        self._send_everything()
        self._ready()

    def _on_disconnect(
        self, client: Any, data: object, flags: object, reason: Any, properties: object
    ) -> None:
        if reason.is_failure and not self._problem:  # else the refusal is what is wrong
            here = self._answered
            self._fail(
                f"is lost ({reason})" if here else "is there, but does not answer as a broker"
            )
        self._answered = False

    def _on_connect_fail(self, client: Any, data: object) -> None:
        error = sys.exc_info()[1]  # paho calls this where it has caught what went wrong
        why = getattr(error, "strerror", None) or error or "no answer"
        self._fail(f"cannot be reached: {why}")

    def _fail(self, problem: str) -> None:
        self._problem = problem
        self._failed(problem)

    def _on_message(self, client: Any, data: object, message: Any) -> None:
        try:
            text = message.payload[:MAX_WORDS].decode("utf-8")
        except UnicodeDecodeError:
            return
        if message.topic == BIRTH:
            if text == "online":
                self._send_everything()
            return
        for source in self._slugs:
            if message.topic == f"{self._home(source)}/words/set" and not message.retain:
                self._change_words(source, text)
            if message.topic == f"{self._home(source)}/verdict/set" and not message.retain:
                self._answer(*_verdict(text, self._last_ids.get(source, 0)))

    def _send_everything(self) -> None:
        """Send discovery and all states: to a broker or a Home Assistant that knows nothing."""
        with self._lock:
            for source, labels in self._labels.items():
                if labels:
                    self._announce(source)
            for topic, payload in self._states.items():
                self._publish(topic, payload)
            self._publish(self._status, "online")

    def _announce(self, source: str, removed: Set[str] = frozenset()) -> None:
        """Publish what makes a source a device with its entities, without removed ones."""
        home, title = self._home(source), self._site.replace("_", " ").capitalize()
        identifier = f"driftscore_{self._site}_{self._slugs[source]}"

        def entity(platform: str, key: str, name: str, **fields: object) -> dict[str, object]:
            unique_id = f"{identifier}_{key}"
            return {"platform": platform, "unique_id": unique_id, "name": name, **fields}

        labels = self._labels[source]
        sound = {"state_topic": f"{home}/event", "event_types": list(labels.values())}
        components = {"sound": entity("event", "sound", "Sound", **sound)}
        for label, name in labels.items():
            state = {"device_class": "sound", "state_topic": f"{home}/label/{name}"}
            components[name] = entity("binary_sensor", name, label, **state)
        components["last"] = entity(
            "sensor",
            "last",
            "Last sound",
            state_topic=f"{home}/last",
            value_template="{{ value_json.label }}",
            json_attributes_topic=f"{home}/last",
        )
        components["level"] = entity(
            "sensor",
            "laeq",
            "Level",
            # Without a calibrated microphone the sensor has no device class.
            **({"device_class": "sound_pressure"} if self._calibrated else {}),
            unit_of_measurement="dBA" if self._calibrated else "dBFS",
            state_class="measurement",
            state_topic=f"{home}/level",
            value_template="{{ value_json.laeq }}",
        )
        components["words"] = entity(
            "text",
            "words",
            "Words",
            entity_category="config",
            command_topic=f"{home}/words/set",
            state_topic=f"{home}/words",
        )
        for verdict in (RIGHT, WRONG):
            components[f"verdict_{verdict}"] = entity(
                "button",
                f"verdict_{verdict}",
                f"Last sound was {verdict}",
                entity_category="diagnostic",
                command_topic=f"{home}/verdict/set",
                payload_press=verdict,
            )
        components.update({name: {"platform": "binary_sensor"} for name in removed})
        several = f" {self._slugs[source]}" if len(self._slugs) > 1 else ""
        payload = {
            "device": {
                "identifiers": [identifier],
                "name": f"{title}{several} sounds",
                "manufacturer": "driftscore",
                "sw_version": __version__,
            },
            "origin": {"name": "driftscore", "sw_version": __version__},
            "availability": [{"topic": self._status}, {"topic": f"{home}/status"}],
            "availability_mode": "all",
            "qos": 1,
            "components": components,
        }
        self._publish(f"homeassistant/device/{identifier}/config", json.dumps(payload))

    def _state(self, topic: str, payload: str) -> None:
        """Publish a state that is retained, if it has changed."""
        if self._states.get(topic) != payload:
            self._states[topic] = payload
            self._publish(topic, payload)

    def _publish(self, topic: str, payload: str) -> None:
        """Send a message that is retained; all of them are sent again after a connection."""
        if self._client.is_connected():
            self._client.publish(topic, payload, qos=1, retain=True)


def _verdict(text: str, last_id: int) -> tuple[int, str]:
    """Return the event that a message is about, and what it says of it."""
    try:
        fields = json.loads(text)
        return int(fields["id"]), str(fields["verdict"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return last_id, text.strip().lower()


def _open_client(url: str, client_id: str) -> tuple[Any, str, int]:
    """Return a client of paho that is not connected yet, and the host and port of its broker."""
    try:
        from paho.mqtt import client as paho
        from paho.mqtt.enums import CallbackAPIVersion
    except ImportError as error:
        raise MissingExtraError("MQTT", "mqtt") from error
    parts = urlsplit(url if "://" in url else f"mqtt://{url}")
    try:
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        port = 0
    if parts.scheme not in _PORTS or not parts.hostname or not port:
        raise UsageError(f"A broker is given as mqtt://host:1883 or mqtts://host, not {url!r}")
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=client_id)
    if parts.username:
        password = unquote(parts.password or "") or os.environ.get(PASSWORD) or None
        client.username_pw_set(unquote(parts.username), password)
    if parts.scheme == "mqtts":
        client.tls_set()
    return client, parts.hostname, port


def broker_problem(url: str) -> tuple[str, str]:
    """Return the address of a broker, and why it cannot be used; empty if it can."""
    client, host, port = _open_client(url, f"driftscore_doctor_{os.getpid()}")
    if problem := connection_problem(host, port):
        return f"{host}:{port}", f"cannot be reached: {problem}"
    answers: queue.Queue[Any] = queue.Queue()
    client.on_connect = lambda _client, _data, _flags, reason, _properties: answers.put(reason)
    try:
        client.connect(host, port, keepalive=10)
        client.loop_start()
        reason = answers.get(timeout=CLOSE_S)
        problem = f"refuses the connection: {reason}" if reason.is_failure else ""
    except OSError as error:  # of the encryption, or the other side has hung up
        problem = f"is there, but cannot be used: {error.strerror or error}"
    except queue.Empty:
        problem = "is there, but does not answer as a broker"
    client.disconnect()
    client.loop_stop()
    return f"{host}:{port}", problem


def label_slugs(labels: Iterable[str]) -> dict[str, str]:
    """Return the name of each label in topics: lower case ASCII, and different from each other."""
    slugs: dict[str, str] = {}
    for label in labels:
        name, digest = slug(label), hashlib.sha256(label.encode()).hexdigest()[:8]
        if name == "x":
            name = digest
        elif name in _TAKEN:
            name = f"label_{name}"
        slugs[label] = f"{name}_{digest}" if name in slugs.values() else name
    return slugs
