"""TAU Urban Acoustic Scenes 2019, development: the six scenes of Acevedo et al. and the paper.

    audio/{scene}-{city}-{location}-{segment}-{device}.wav    10 s, 48 kHz, binaural
    meta.csv                                                  filename, scene_label, ...; tabs

The classes to avoid are our own judgement of which sounds occur in a scene; the paper names none.
"""

from pathlib import Path

from driftscore.lab.corpora.about import About, zenodo
from driftscore.lab.corpora.folders import absent, root, rows
from driftscore.lab.corpora.noises.protocol import NoiseRecording

SCENES = {
    "airport": ("airplane",),
    "shopping_mall": (),
    "metro_station": ("train",),
    "park": ("chirping_birds", "wind"),
    "public_square": ("church_bells", "children_playing"),
    "street_traffic": ("car_horn", "engine", "engine_idling", "siren"),
}
_NAME = "TAU-urban-acoustic-scenes-2019-development"
_SUMS = (
    "aca4ebfd9ed03d5f747d6ba8c24bc728",
    "c4f170408ce77c8c70c532bf268d7be0",
    "c7214a07211f10f3250290d05e72c37e",
    "a6a62110f6699cf4432072acb1dffda6",
    "091a0b6d3c84b8e60e46940aa7d4a8a0",
    "114f4ca13e074391b98a1cfd8140de65",
    "5951dd2968f7a514e2afbe279c4f060d",
    "b0b63dc95b327e1509857c8d8a663cc3",
    "3c32a693a6b111ffb957be3c1dd22e9b",
    "0ffbf60006da520cc761fb74c878b98b",
    "599055d93b4c11057c29be2df54538d4",
    "98b8d162ff3665695c4c910e6c372cc8",
    "a356c08b1a5a21d433eba37ef87587f4",
    "f8969771e7faf7dd471d1cf78b0cf011",
    "4758c4b0fb7484faa632266e78850820",
    "a18acad9ede8ea76574216feb887f0bc",
    "1af7703484632f340da5c33662dc9632",
    "b67402bf3e08f4da394a7c18756c0fd2",
    "035db315f19106eb848b6f9b32bcc47c",
    "9cb28c74911bf8a3eadcf53f50a5b5d6",
    "0e44ed85c88ec036a9725b4dd1dfaea0",
)
"""md5 sums of the audio parts 1 to 21."""

ABOUT = About(
    title="TAU Urban Acoustic Scenes 2019 (development)",
    page="https://zenodo.org/records/2589280",
    licence="Tampere University's own: free for non-commercial scientific use",
    citation="A. Mesaros, T. Heittola and T. Virtanen. A Multi-Device Dataset for Urban Acoustic "
    "Scene Classification. DCASE Workshop, 2018. arXiv:1807.09840",
    files=zenodo(
        2589280,
        (f"{_NAME}.doc.zip", "1f6879544e80da70099a191613e7e51f"),
        (f"{_NAME}.meta.zip", "09782f2097e4735687af73c44919329c"),
        *((f"{_NAME}.audio.{part}.zip", md5) for part, md5 in enumerate(_SUMS, start=1)),
    ),
)
_META = "meta.csv"


def recordings(home: Path) -> list[NoiseRecording]:
    """Return the recordings of the six scenes, sorted by name."""
    folder = root(home, _META)
    return [
        NoiseRecording(str(folder / name), Path(name).stem, scene.replace("_", " "), SCENES[scene])
        for name, scene in _table(folder)
    ]


def missing(home: Path) -> list[str]:
    """Return everything of the six scenes that the folder lacks."""
    folder = root(home, _META)
    lacking = absent(folder, [_META, "audio"])
    return lacking or absent(folder, [name for name, _ in _table(folder)])


def _table(folder: Path) -> list[tuple[str, str]]:
    table = rows(folder / _META, ["filename", "scene_label"], delimiter="\t")
    pairs = sorted((row["filename"], row["scene_label"]) for row in table)
    return [(name, scene) for name, scene in pairs if scene in SCENES]
