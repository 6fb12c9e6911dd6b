"""Topics and payloads of MQTT, as Home Assistant's device discovery has them.

    driftscore/<site>/status                      online | offline (last will)
    driftscore/<site>/<source>/status             online | offline
    driftscore/<site>/<source>/event              an event; never retained
    driftscore/<site>/<source>/label/<slug>       ON | OFF
    driftscore/<site>/<source>/last               the last event
    driftscore/<site>/<source>/level              laeq, l10, l90
    driftscore/<site>/<source>/words              the labels; set by .../words/set
    homeassistant/device/driftscore_<site>_<source>/config

Field names are a contract with users: they do not change.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from driftscore.live.clips import slug
from driftscore.live.records import EventRecord, Json, LevelRecord, iso, rounded
from driftscore.version import __version__

BIRTH = "homeassistant/status"
"""Where Home Assistant says that it has started."""
_TAKEN = ("sound", "last", "level", "words")


def label_slugs(labels: Iterable[str]) -> dict[str, str]:
    """Return the name of each label in topics: lower case ASCII, and different from each other."""
    slugs: dict[str, str] = {}
    for label in labels:
        name = slug(label)
        if name in _TAKEN or name == "x":
            name = f"label_{name}" if name != "x" else _hashed(label)
        if name in slugs.values():
            name = f"{name}_{_hashed(label)}"
        slugs[label] = name
    return slugs


def _hashed(label: str) -> str:
    return hashlib.sha256(label.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Topics:
    """The topics of one source."""

    site: str
    source: str

    @property
    def home(self) -> str:
        """The beginning of all topics of the source."""
        return f"driftscore/{self.site}/{self.source}"

    @property
    def identifier(self) -> str:
        """What Home Assistant knows the source by."""
        return f"driftscore_{self.site}_{self.source}"

    @property
    def config(self) -> str:
        """The topic of discovery."""
        return f"homeassistant/device/{self.identifier}/config"

    @property
    def site_status(self) -> str:
        """The topic of the last will."""
        return f"driftscore/{self.site}/status"

    def label(self, name: str) -> str:
        """Return the topic of the state of a label."""
        return f"{self.home}/label/{name}"


def discovery(
    topics: Topics, slugs: Mapping[str, str], *, calibrated: bool, only_source: bool = True
) -> dict[str, object]:
    """Return the payload that makes a source a device with its entities."""
    site = topics.site.replace("_", " ").capitalize()
    name = f"{site} sounds" if only_source else f"{site} {topics.source} sounds"
    return {
        "device": {
            "identifiers": [topics.identifier],
            "name": name,
            "manufacturer": "driftscore",
            "sw_version": __version__,
        },
        "origin": {"name": "driftscore", "sw_version": __version__},
        "availability": [{"topic": topics.site_status}, {"topic": f"{topics.home}/status"}],
        "availability_mode": "all",
        "qos": 1,
        "components": _components(topics, slugs, calibrated=calibrated),
    }


def _components(topics: Topics, slugs: Mapping[str, str], *, calibrated: bool) -> dict[str, object]:
    """Return the entities of a source."""
    components: dict[str, object] = {
        "sound": {
            "platform": "event",
            "unique_id": f"{topics.identifier}_sound",
            "name": "Sound",
            "state_topic": f"{topics.home}/event",
            "event_types": list(slugs.values()),
        }
    }
    for label, short in slugs.items():
        components[short] = {
            "platform": "binary_sensor",
            "unique_id": f"{topics.identifier}_{short}",
            "name": label,
            "device_class": "sound",
            "state_topic": topics.label(short),
        }
    components["last"] = {
        "platform": "sensor",
        "unique_id": f"{topics.identifier}_last",
        "name": "Last sound",
        "state_topic": f"{topics.home}/last",
        "value_template": "{{ value_json.label }}",
        "json_attributes_topic": f"{topics.home}/last",
    }
    components["level"] = _level(topics, calibrated)
    components["words"] = {
        "platform": "text",
        "unique_id": f"{topics.identifier}_words",
        "name": "Words",
        "entity_category": "config",
        "command_topic": f"{topics.home}/words/set",
        "state_topic": f"{topics.home}/words",
    }
    return components


def _level(topics: Topics, calibrated: bool) -> dict[str, str]:
    """Return the sensor of the level; without a calibrated microphone it has no device class."""
    device = {"device_class": "sound_pressure"} if calibrated else {}
    return {
        "platform": "sensor",
        "unique_id": f"{topics.identifier}_laeq",
        "name": "Level",
        **device,
        "unit_of_measurement": "dBA" if calibrated else "dBFS",
        "state_class": "measurement",
        "state_topic": f"{topics.home}/level",
        "value_template": "{{ value_json.laeq }}",
    }


def event_payload(record: EventRecord, slugs: Mapping[str, str]) -> Json:
    """Return the fields of an event."""
    event = record.event
    return {
        "event_type": slugs.get(event.label, slug(event.label)),
        "label": event.label,
        "score": rounded(event.score),
        "start": iso(record.start),
        "end": iso(record.end),
        "duration_s": record.duration_s,
        "snr_db": rounded(event.snr_db, 1),
        "id": str(record.id),
    }


def level_payload(record: LevelRecord) -> Json:
    """Return the fields of a level."""
    fields = dict(record.fields())
    del fields["source"]
    return fields
