"""MQTT with Home Assistant's device discovery, through paho-mqtt (extra `mqtt`).

States are kept here and sent again whenever the broker or Home Assistant has started anew. The
broker may be away at the start and at any time later; messages wait in a bounded queue.
"""

import json
import os
import threading
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from driftscore.errors import MissingExtraError, UsageError
from driftscore.live.clips import slug
from driftscore.live.outputs.cooling import Cooldown
from driftscore.live.outputs.discovery import (
    BIRTH,
    Topics,
    discovery,
    event_payload,
    label_slugs,
    level_payload,
)
from driftscore.live.records import EventRecord, LevelRecord, SourceStatus
from driftscore.watchlist import WatchList

PASSWORD = "DRIFTSCORE_MQTT_PASSWORD"  # noqa: S105 (the name of a variable)
_MOST_QUEUED = 1000
_MOST_WORDS = 10_000  # bytes of a message that changes the words
_PORTS = {"mqtt": 1883, "mqtts": 8883}
_CLOSE_S = 2.0


@dataclass(frozen=True)
class Broker:
    """Where the broker is."""

    host: str
    port: int
    user: str = ""
    password: str = ""
    encrypted: bool = False

    @staticmethod
    def parse(url: str) -> "Broker":
        """Read mqtt://user@host:port; the password is better in DRIFTSCORE_MQTT_PASSWORD."""
        parts = urlsplit(url if "://" in url else f"mqtt://{url}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in _PORTS or not parts.hostname or port == -1:
            raise UsageError(f"A broker is given as mqtt://host:1883 or mqtts://host, not {url!r}")
        return Broker(
            parts.hostname,
            port or _PORTS[parts.scheme],
            unquote(parts.username or ""),
            unquote(parts.password or "") or os.environ.get(PASSWORD, ""),
            parts.scheme == "mqtts",
        )


class Mqtt:
    """Publishes to a broker, and takes new words from it.

    Parameters
    ----------
        broker: where it is.
        site: the name of this machine in topics.
        sources: the names of the sources.
        calibrated: whether levels are dBA.
        change_words: called with a source and its new words.
        notify: called with messages.

    """

    def __init__(
        self,
        broker: Broker,
        site: str,
        sources: Set[str],
        *,
        calibrated: bool,
        change_words: Callable[[str, str], None],
        notify: Callable[[str], None],
    ) -> None:
        self._site = slug(site)
        self._topics = {name: Topics(self._site, slug(name)) for name in sources}
        if len({topics.source for topics in self._topics.values()}) < len(self._topics):
            raise UsageError(
                f"The names of the sources are too alike for topics: {sorted(sources)}"
            )
        self._calibrated = calibrated
        self._change_words = change_words
        self._notify = notify
        self._lock = threading.RLock()
        self._cooldown = Cooldown()
        self._slugs: dict[str, dict[str, str]] = {name: {} for name in sources}
        self._states: dict[str, str] = {}
        """What is retained, by topic; sent again when the broker has started anew."""
        self._client = self._made(broker)
        self._client.connect_async(broker.host, broker.port, keepalive=30)
        self._client.loop_start()

    def words(self, source: str, watch: WatchList) -> None:
        """Announce the labels of a source; entities of labels that are gone are removed."""
        with self._lock:
            self._cooldown.words(source, watch)
            topics, old = self._topics[source], self._slugs[source]
            new = label_slugs(watch.names)
            self._slugs[source] = new
            gone = set(old.values()) - set(new.values())
            if gone:
                self._announce(source, removed=gone)
            for name in gone:
                self._states.pop(topics.label(name), None)
                self._publish(topics.label(name), "", retain=True)
            self._announce(source)
            for name in new.values():
                if topics.label(name) not in self._states:
                    self._state(topics.label(name), "OFF")
            self._state(f"{topics.home}/words", ", ".join(watch.names))

    def event(self, record: EventRecord) -> None:
        """Publish an event that is reported; within a cool-down only the state `last`."""
        if record.event.rejected:
            return
        with self._lock:
            topics = self._topics[record.source]
            payload = json.dumps(event_payload(record, self._slugs[record.source]))
            if self._cooldown.passes(record):
                self._publish(f"{topics.home}/event", payload, retain=False)
            self._state(f"{topics.home}/last", payload)

    def active(self, source: str, labels: Set[str]) -> None:
        """Publish which labels are present."""
        with self._lock:
            for label, name in self._slugs[source].items():
                self._state(self._topics[source].label(name), "ON" if label in labels else "OFF")

    def level(self, record: LevelRecord) -> None:
        """Publish a level."""
        with self._lock:
            topic = f"{self._topics[record.source].home}/level"
            self._state(topic, json.dumps(level_payload(record)))

    def status(self, status: SourceStatus) -> None:
        """Publish whether a source gives audio."""
        with self._lock:
            topic = f"{self._topics[status.source].home}/status"
            self._state(topic, "online" if status.online else "offline")

    def close(self) -> None:
        """Say that nothing more will come, and disconnect."""
        if self._client.is_connected():
            sent = self._client.publish(self._site_topic, "offline", qos=1, retain=True)
            sent.wait_for_publish(_CLOSE_S)
        self._client.disconnect()
        self._client.loop_stop()

    @property
    def _site_topic(self) -> str:
        return f"driftscore/{self._site}/status"

    def _made(self, broker: Broker) -> Any:
        try:
            from paho.mqtt import client as paho
            from paho.mqtt.enums import CallbackAPIVersion
        except ImportError as error:
            raise MissingExtraError("MQTT", "mqtt") from error
        client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=f"driftscore_{self._site}_{os.getpid()}"
        )
        if broker.user:
            client.username_pw_set(broker.user, broker.password or None)
        if broker.encrypted:
            client.tls_set()
        client.will_set(self._site_topic, "offline", qos=1, retain=True)
        client.reconnect_delay_set(1, 60)
        client.max_queued_messages_set(_MOST_QUEUED)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        return client

    def _on_connect(
        self, client: Any, data: object, flags: object, reason: Any, properties: object
    ) -> None:
        if reason.is_failure:
            self._notify(f"The MQTT broker refuses the connection: {reason}")
            return
        client.subscribe(BIRTH, qos=1)
        for topics in self._topics.values():
            client.subscribe(f"{topics.home}/words/set", qos=1)
        self._send_everything()

    def _on_disconnect(
        self, client: Any, data: object, flags: object, reason: Any, properties: object
    ) -> None:
        if reason.is_failure:
            self._notify(f"The connection to the MQTT broker is lost ({reason}); trying again")

    def _on_message(self, client: Any, data: object, message: Any) -> None:
        try:
            text = message.payload[:_MOST_WORDS].decode("utf-8")
        except UnicodeDecodeError:
            return
        if message.topic == BIRTH:
            if text == "online":
                self._send_everything()
            return
        for source, topics in self._topics.items():
            if message.topic == f"{topics.home}/words/set" and not message.retain:
                self._change_words(source, text)

    def _send_everything(self) -> None:
        """Send discovery and all states: to a broker or a Home Assistant that knows nothing."""
        with self._lock:
            for source in self._topics:
                if self._slugs[source]:
                    self._announce(source)
            for topic, payload in self._states.items():
                self._publish(topic, payload, retain=True)
            self._publish(self._site_topic, "online", retain=True)

    def _announce(self, source: str, removed: Set[str] = frozenset()) -> None:
        topics = self._topics[source]
        payload = discovery(
            topics, self._slugs[source],
            calibrated=self._calibrated, only_source=len(self._topics) == 1,
        )  # fmt: skip
        components = payload["components"]
        if isinstance(components, dict):
            gone: Mapping[str, object] = {name: {"platform": "binary_sensor"} for name in removed}
            payload["components"] = {**components, **gone}
        self._publish(topics.config, json.dumps(payload), retain=True)

    def _state(self, topic: str, payload: str) -> None:
        """Publish a state that is retained, if it has changed."""
        if self._states.get(topic) != payload:
            self._states[topic] = payload
            self._publish(topic, payload, retain=True)

    def _publish(self, topic: str, payload: str, *, retain: bool) -> None:
        """Send a message now; what is retained is sent again after a connection anyway."""
        if self._client.is_connected() or not retain:
            self._client.publish(topic, payload, qos=1, retain=retain)
