"""Recorded noise: any folder of recordings, with the classes audible in each of them.

    *.wav, *.flac, ...    in any sub-folder; the name of the file is its environment
    noise.csv             optional: file, environment, avoid; then only these files are used
    manifest.csv          the shared recordings: rows whose split begins with "noise"

`avoid` (or `avoid_classes`) names labels, separated by spaces, commas or semicolons, with
underscores for the spaces inside a label. Without a home, the shared recordings are used.
"""

import re
from pathlib import Path

from driftscore.audio import SUFFIXES
from driftscore.lab.corpora.about import About
from driftscore.lab.corpora.folders import absent, require, root, rows
from driftscore.lab.corpora.noises.drawing import sampler
from driftscore.lab.corpora.noises.protocol import NoiseRecording
from driftscore.lab.corpora.places import shared_audio

ABOUT = About(
    title="Recorded noise",
    page="",
    licence="your own; of the shared recordings: see manifest.csv",
    citation="your own; of the shared recordings: see manifest.csv",
)
_TABLE = "noise.csv"
_MANIFEST = "manifest.csv"


def default_home() -> Path:
    """Return the folder of the shared recordings."""
    return shared_audio()


def recordings(home: str | Path) -> list[NoiseRecording]:
    """Return the recordings in the order of the table, or sorted by name."""
    require(ABOUT, home, missing(home))
    place = _place(home)
    table = _table(place)
    if table is None:
        return [
            NoiseRecording(str(path), path.relative_to(place).as_posix(), _words(path.stem))
            for path in _sounds(place)
        ]
    return [
        NoiseRecording(
            str(place / row["file"]),
            row["file"],
            _words(row.get("environment") or Path(row["file"]).stem),
            _labels(row.get("avoid") or row.get("avoid_classes") or ""),
        )
        for row in table
    ]


sample = sampler(recordings)


def missing(home: str | Path) -> list[str]:
    """Return everything that the folder lacks."""
    place = _place(home)
    table = _table(place)
    if table is not None:
        return absent(place, [row["file"] for row in table]) or ([] if table else ["noise rows"])
    return [] if _sounds(place) else ["sound files, or a noise.csv that lists them"]


def _place(home: str | Path) -> Path:
    folder = Path(home).expanduser()
    return folder if (folder / _TABLE).is_file() else root(folder, _MANIFEST)


def _table(place: Path) -> list[dict[str, str]] | None:
    if (place / _TABLE).is_file():
        return rows(place / _TABLE, ["file"])
    if (place / _MANIFEST).is_file():
        table = rows(place / _MANIFEST, ["file", "split", "environment", "avoid_classes"])
        return [row for row in table if row["split"].startswith("noise")]
    return None


def _sounds(place: Path) -> list[Path]:
    inside = sorted(place.rglob("*")) if place.is_dir() else []
    return [path for path in inside if path.suffix.lower() in SUFFIXES and path.is_file()]


def _words(name: str) -> str:
    return " ".join(re.split(r"[_\s]+", name.strip()))


def _labels(text: str) -> tuple[str, ...]:
    return tuple(label for label in re.split(r"[\s,;]+", text) if label)
