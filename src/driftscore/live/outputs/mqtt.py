"""MQTT with Home Assistant's device discovery, through paho-mqtt (extra `mqtt`).

    driftscore/<site>/status                      online | offline (last will)
    driftscore/<site>/<source>/status             online | offline
    driftscore/<site>/<source>/event              an event; never retained
    driftscore/<site>/<source>/label/<slug>       ON | OFF
    driftscore/<site>/<source>/last               the last event
    driftscore/<site>/<source>/level              laeq, l10, l90
    driftscore/<site>/<source>/words              the labels; set by .../words/set
    homeassistant/device/driftscore_<site>_<source>/config

Topics and field names are a contract with users: they do not change. States are kept here and sent
again whenever the broker or Home Assistant has started anew. The broker may be away at the start
and at any time later: that is reported at once, it is tried again after 1 to 60 s, and up to
`MAX_QUEUED` events wait and are sent in order when it is back, with `"late": true`.
"""

import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Set
from typing import Any
from urllib.parse import unquote, urlsplit

from driftscore.decisions.records import (
    LevelReport,
    LiveReport,
    SourceStatus,
    StoredEvent,
    Words,
)
from driftscore.errors import MissingExtraError, UsageError
from driftscore.live.clips import slug
from driftscore.version import __version__

PASSWORD = "DRIFTSCORE_MQTT_PASSWORD"  # noqa: S105 (the name of a variable)
BIRTH = "homeassistant/status"
"""Where Home Assistant says that it has started."""
MAX_QUEUED = 1000
MAX_WORDS = 10_000  # bytes of a message that changes the words
CLOSE_S = 5.0
"""How long events that wait may take when the listener stops."""
_PORTS = {"mqtt": 1883, "mqtts": 8883}
_QUEUE_IS_FULL = 15  # paho's MQTT_ERR_QUEUE_SIZE
_TAKEN = ("sound", "last", "level", "words")


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
        notify: called with messages.

    """

    def __init__(
        self,
        url: str,
        site: str,
        sources: Set[str],
        *,
        calibrated: bool,
        change_words: Callable[[str, str], None],
        notify: Callable[[str], None],
    ) -> None:
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
        self._address = (parts.hostname, port)
        self._site = slug(site)
        self._status = f"driftscore/{self._site}/status"
        self._slugs = {name: slug(name) for name in sources}
        """The sources in topics."""
        if len(set(self._slugs.values())) < len(self._slugs):
            raise UsageError(
                f"The names of the sources are too alike for topics: {sorted(sources)}"
            )
        self._calibrated = calibrated
        self._change_words = change_words
        self._notify = notify
        self._lock = threading.RLock()
        self._labels: dict[str, dict[str, str]] = {name: {} for name in sources}
        """The labels of each source in topics."""
        self._states: dict[str, str] = {}
        """What is retained, by topic; sent again when the broker has started anew."""
        self._waiting: set[int] = set()
        """The events that the broker has not confirmed, by the numbers of their messages."""
        self._confirmed: set[int] = set()
        """Messages of all kinds that it has confirmed since `_settle`."""
        self._lost = 0
        self._problem = ""
        self._client = client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=f"driftscore_{self._site}_{os.getpid()}"
        )
        if parts.username:
            password = unquote(parts.password or "") or os.environ.get(PASSWORD) or None
            client.username_pw_set(unquote(parts.username), password)
        if parts.scheme == "mqtts":
            client.tls_set()
        client.will_set(self._status, "offline", qos=1, retain=True)
        client.reconnect_delay_set(1, 60)
        client.max_queued_messages_set(MAX_QUEUED)
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect
        client.on_publish = self._on_publish
        client.on_message = self._on_message
        client.connect_async(parts.hostname, port, keepalive=30)
        client.loop_start()

    def send(self, report: LiveReport) -> None:
        """Publish a report; of an event within a cool-down only the state `last`."""
        with self._lock:
            home, labels = self._home(report.source), self._labels[report.source]
            if isinstance(report, StoredEvent):
                if report.rejected:
                    return
                fields = report.fields()
                names = ("label", "score", "start", "end", "duration_s", "snr_db", "id")
                event_type = labels.get(report.label, slug(report.label))
                event = {"event_type": event_type, **{name: fields[name] for name in names}}
                payload = json.dumps(event)
                if not report.cooling:
                    self._settle()
                    late = {} if self._client.is_connected() else {"late": True}
                    message = self._client.publish(
                        f"{home}/event", json.dumps({**event, **late}), qos=1
                    )
                    if message.rc == _QUEUE_IS_FULL:
                        self._lost += 1
                    else:
                        self._waiting.add(message.mid)
                self._state(f"{home}/last", payload)
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

    def close(self) -> int:
        """Disconnect, and return how many events the broker has not taken."""
        end = time.monotonic() + CLOSE_S
        while self._settle() and time.monotonic() < end:
            time.sleep(0.05)
        if self._client.is_connected():
            message = self._client.publish(self._status, "offline", qos=1, retain=True)
            message.wait_for_publish(CLOSE_S)
        self._client.disconnect()
        self._client.loop_stop()
        return self._lost + self._settle()

    def _home(self, source: str) -> str:
        return f"driftscore/{self._site}/{self._slugs[source]}"

    def _on_connect(
        self, client: Any, data: object, flags: object, reason: Any, properties: object
    ) -> None:
        if reason.is_failure:
            self._report(f"refuses the connection: {reason}")
            return
        if self._problem:
            self._problem = ""
            self._notify(f"The MQTT broker is there again; {self._settle()} late events are sent")
        client.subscribe(BIRTH, qos=1)
        for source in self._slugs:
            client.subscribe(f"{self._home(source)}/words/set", qos=1)
        self._send_everything()

    def _on_disconnect(
        self, client: Any, data: object, flags: object, reason: Any, properties: object
    ) -> None:
        if reason.is_failure:
            self._report(f"is lost ({reason})")

    def _on_connect_fail(self, client: Any, data: object) -> None:
        self._report(f"cannot be reached: {connection_problem(*self._address) or 'no answer'}")

    def _on_publish(
        self, client: Any, data: object, number: int, reason: object, properties: object
    ) -> None:
        self._confirmed.add(number)  # without our lock: paho holds one of its own here

    def _settle(self) -> int:
        """Take the confirmed events out of those that wait; return how many are left."""
        confirmed = set(self._confirmed)
        self._waiting -= confirmed
        self._confirmed -= confirmed
        return len(self._waiting)

    def _report(self, problem: str) -> None:
        """Say what is wrong with the broker, once while it stays the same."""
        if problem != self._problem:
            self._problem = problem
            host, port = self._address
            self._notify(
                f"The MQTT broker {host}:{port} {problem}; it is tried again, and up to "
                f"{MAX_QUEUED:,} events wait for it"
            )

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


def connection_problem(host: str, port: int) -> str:
    """Return why no connection can be made; empty if one can."""
    try:
        socket.create_connection((host, port), CLOSE_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


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
