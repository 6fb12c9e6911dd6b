"""The folder of shared recordings, its manifest.csv, and what soundscapes are made of.

    split "events"    clips of split "events", backgrounds of split "noise"
    split "train"     labelled recordings of split "train", and the places among the others

The manifest names what is audible in each background (`avoid_classes`), but not for those of split
"train": for these the table below does, by their names, and recordings that are no place (a single
animal, a bell) are not in it.
"""

import os
import re
from pathlib import Path

from driftscore.errors import UsageError, unknown
from driftscore.lab.corpora.folders import root, rows
from driftscore.lab.corpora.noises.protocol import NoiseRecording
from driftscore.lab.corpora.soundscapes.draw import Material
from driftscore.text.prompts import words

MANIFEST = "manifest.csv"
SPLITS = ("events", "train")
"""Clips and noise for reporting, and those for choosing settings."""

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


def shared_audio() -> Path:
    """Return the folder of shared recordings: `$DRIFTSCORE_SHARED`, or beside the project."""
    if variable := os.environ.get("DRIFTSCORE_SHARED"):
        candidates = [Path(variable).expanduser()]
    else:
        projects = (Path(__file__).parents[2], Path.cwd())
        candidates = [project.resolve().parent / "shared" for project in projects]
    for candidate in candidates:
        for folder in (candidate / "audio", candidate):
            if (folder / MANIFEST).is_file():
                return folder
    searched = ", ".join(str(folder) for folder in dict.fromkeys(candidates))
    raise UsageError(
        f"The shared recordings (audio/manifest.csv) are not in {searched}; "
        "set DRIFTSCORE_SHARED to their folder"
    )


def manifest(folder: Path, split: str) -> list[dict[str, str]]:
    """Return the rows of the manifest whose split begins with `split`."""
    table = rows(folder / MANIFEST, ["file", "split", "label", "environment", "avoid_classes"])
    return [row for row in table if row["split"].startswith(split)]


def split_labels(text: str) -> tuple[str, ...]:
    """Return the labels of a list with spaces, commas or semicolons."""
    return tuple(label for label in re.split(r"[\s,;]+", text) if label)


def material(split: str, home: str | Path | None = None) -> Material:
    """Return the recordings of a split; without a home, of the shared recordings."""
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    folder = root(shared_audio() if home is None else Path(home), MANIFEST)
    clips: dict[str, list[str]] = {}
    backgrounds = []
    for row in manifest(folder, ""):
        if row["split"] == split and row["label"]:
            clips.setdefault(words(row["label"]), []).append(row["file"])
        elif (split, row["split"]) in (("events", "noise"), ("train", "train")):
            audible = row["avoid_classes"] or AUDIBLE.get(row["environment"], "")
            if split == "events" or audible:
                labels = split_labels(audible)
                backgrounds.append(
                    NoiseRecording(row["file"], row["file"], row["environment"], labels)
                )
    files = [file for listed in clips.values() for file in listed]
    files += [noise.file for noise in backgrounds]
    return Material(clips, backgrounds, {file: folder / file for file in files})
