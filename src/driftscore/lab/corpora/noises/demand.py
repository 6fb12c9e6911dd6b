"""DEMAND: 18 environments of 5 minutes, recorded with 16 microphones.

    {ENVIRONMENT}/ch01.wav ... ch16.wav    48 kHz (or 16 kHz)

Only ch01 is used: the other microphones recorded the same moments from centimetres away. The
classes to avoid are our own judgement of which sounds occur in such an environment.
"""

from pathlib import Path

from driftscore.lab.corpora.about import About, zenodo
from driftscore.lab.corpora.folders import absent, root
from driftscore.lab.corpora.noises.protocol import NoiseRecording

_TRAFFIC = ("car_horn", "engine", "engine_idling", "siren")
ENVIRONMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "DKITCHEN": ("kitchen", ("pouring_water", "water_drops")),
    "DLIVING": ("living room", ()),
    "DWASHING": ("washing machine", ("washing_machine",)),
    "NFIELD": ("sports field", ()),
    "NPARK": ("park", ("chirping_birds", "children_playing")),
    "NRIVER": ("river", ("pouring_water", "sea_waves")),
    "OHALLWAY": ("hallway", ("footsteps", "door_wood_knock", "door_wood_creaks")),
    "OMEETING": ("meeting room", ()),
    "OOFFICE": ("office", ("keyboard_typing", "mouse_click")),
    "PCAFETER": ("cafeteria", ("laughing", "drinking_sipping")),
    "PRESTO": ("restaurant", ("laughing", "drinking_sipping")),
    "PSTATION": ("station", ("train", "footsteps")),
    "SCAFE": ("cafe", ("laughing", "drinking_sipping")),
    "SPSQUARE": ("public square", ("children_playing",)),
    "STRAFFIC": ("street traffic", _TRAFFIC),
    "TBUS": ("bus", ("engine", "engine_idling")),
    "TCAR": ("car", ("engine", "engine_idling")),
    "TMETRO": ("metro", ("train",)),
}
"""Folder -> the environment in words, and the classes to avoid."""

ABOUT = About(
    title="DEMAND",
    page="https://zenodo.org/records/1227121",
    licence="Creative Commons: CC BY-SA 3.0 by its own text; see the record",
    citation="J. Thiemann, N. Ito and E. Vincent. The Diverse Environments Multi-channel Acoustic "
    "Noise Database. Proceedings of Meetings on Acoustics 19, 2013. doi:10.1121/1.4799597",
    files=zenodo(1227121, *((f"{name}_48k.zip", "") for name in ENVIRONMENTS)),
)
_FILES = tuple(f"{name}/ch01.wav" for name in ENVIRONMENTS)


def recordings(home: Path) -> list[NoiseRecording]:
    """Return one recording per environment."""
    folder = root(home, *_FILES)
    return [
        NoiseRecording(str(folder / f"{name}/ch01.wav"), name, environment, avoid)
        for name, (environment, avoid) in ENVIRONMENTS.items()
    ]


def missing(home: Path) -> list[str]:
    """Return everything that the folder lacks."""
    return absent(root(home, *_FILES), _FILES)
