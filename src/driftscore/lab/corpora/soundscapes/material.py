"""The recordings that soundscapes are made of: clips by label, and backgrounds.

Both come from the folder of shared recordings and its manifest.csv:

    split "events"    clips of split "events", backgrounds of split "noise"
    split "train"     labelled recordings of split "train", and the places among the others

The manifest names what is audible in each background (`avoid_classes`), but not for those of split
"train": for these the table below does, by their names, and recordings that are no place (a single
animal, a bell) are not in it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driftscore.errors import UsageError
from driftscore.lab.corpora.folders import root, rows
from driftscore.lab.corpora.noises.protocol import NoiseRecording
from driftscore.lab.corpora.places import shared_audio
from driftscore.prompts import words

_MANIFEST = "manifest.csv"
_COLUMNS = ("file", "split", "label", "environment", "avoid_classes")

AUDIBLE = {
    "airplane": "airplane engine helicopter vacuum_cleaner",
    "carousel": "laughing crying_baby clapping clock_alarm",
    "ceiling-fan": "vacuum_cleaner airplane helicopter washing_machine",
    "dryer": "washing_machine vacuum_cleaner engine",
    "forest-rain": "rain water_drops chirping_birds thunderstorm",
    "jungle": "chirping_birds insects crickets frog crow hen",
    "light-rain": "rain water_drops",
    "night-village": "crickets insects frog dog rooster",
    "rain-on-tent": "rain water_drops",
    "river": "pouring_water water_drops sea_waves",
    "road": "engine car_horn siren train",
    "sailboat": "sea_waves wind door_wood_creaks",
    "stream": "pouring_water water_drops chirping_birds",
    "summer-night": "crickets insects frog",
    "underwater": "water_drops sea_waves",
    "waves": "sea_waves",
    "wind": "wind",
    "wind-in-trees": "wind chirping_birds",
}
"""Backgrounds of split "train" by environment, and the labels that may be audible in each."""


@dataclass(frozen=True)
class Material:
    """Files of clips by label (`sea waves`), and backgrounds; files are relative to `home`."""

    home: Path
    clips: Mapping[str, tuple[str, ...]]
    backgrounds: tuple[NoiseRecording, ...]


def material(split: str, home: str | Path | None = None) -> Material:
    """Return the recordings of a split; without a home, of the shared recordings."""
    place = root(shared_audio() if home is None else home, _MANIFEST)
    table = rows(place / _MANIFEST, _COLUMNS)
    clips: dict[str, list[str]] = {}
    backgrounds = []
    for row in table:
        if row["split"] == split and row["label"]:
            clips.setdefault(words(row["label"]), []).append(row["file"])
        elif (split, row["split"]) in (("events", "noise"), ("train", "train")):
            avoid = row["avoid_classes"] or (AUDIBLE.get(row["environment"]) or "")
            if split == "events" or avoid:
                file, labels = row["file"], tuple(re.split(r"[\s,;]+", avoid)) if avoid else ()
                backgrounds.append(NoiseRecording(file, file, row["environment"], labels))
    if not clips or not backgrounds:
        raise UsageError(
            f"{place / _MANIFEST} has {len(clips)} labels and {len(backgrounds)} backgrounds of "
            f"split {split!r}; a soundscape needs both"
        )
    ordered = {label: tuple(sorted(clips[label])) for label in sorted(clips)}
    return Material(place, ordered, tuple(sorted(backgrounds, key=lambda noise: noise.file)))
