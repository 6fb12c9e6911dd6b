"""Recorded noise: any folder of recordings, with the classes audible in each of them.

    *.wav, *.flac, ...    in any sub-folder; the name of the file is its environment
    noise.csv             optional: file, environment, avoid; then only these files are used

`avoid` (or `avoid_classes`) names labels, separated by spaces, commas or semicolons, with
underscores for the spaces inside a label.
"""

import re
from pathlib import Path

from driftscore.lab.corpora.about import About
from driftscore.lab.corpora.folders import absent, rows, sounds
from driftscore.lab.corpora.noises.protocol import NoiseRecording

ABOUT = About(title="Recorded noise", page="", licence="your own", citation="your own")
_TABLE = "noise.csv"


def recordings(home: Path) -> list[NoiseRecording]:
    """Return the recordings in the order of the table, or sorted by name."""
    table = _table(home)
    if table is None:
        return [
            NoiseRecording(str(path), path.relative_to(home).as_posix(), _words(path.stem))
            for path in sounds(home, "**/*")
        ]
    return [
        NoiseRecording(
            str(home / row["file"]),
            row["file"],
            _words(row.get("environment") or Path(row["file"]).stem),
            tuple(re.findall(r"[^\s,;]+", row.get("avoid") or row.get("avoid_classes") or "")),
        )
        for row in table
    ]


def missing(home: Path) -> list[str]:
    """Return everything that the folder lacks."""
    table = _table(home)
    if table is not None:
        return absent(home, [row["file"] for row in table]) or ([] if table else ["noise rows"])
    return [] if sounds(home, "**/*") else ["sound files, or a noise.csv that lists them"]


def _table(home: Path) -> list[dict[str, str]] | None:
    return rows(home / _TABLE, ["file"]) if (home / _TABLE).is_file() else None


def _words(name: str) -> str:
    return " ".join(re.split(r"[_\s]+", name.strip()))
