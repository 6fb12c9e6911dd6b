"""A user's own clips: one sub-folder per label, or a csv of files and labels.

    dog bark/a.wav, siren/b.flac, ...      the folder's name is the label
    labels.csv                             file, labels (separated by ; or ,), fold (optional)

A column `label` is read as `labels`. `home` is the folder, or the csv itself. If there is a
labels.csv, sub-folders are not read.
"""

import re
from pathlib import Path

from driftscore.errors import FormatError
from driftscore.lab.corpora.about import About, Clip
from driftscore.lab.corpora.folders import absent, rows, sounds

ABOUT = About(
    title="Your folder", page="", licence="your own", citation="your own", multi_label=True
)
_TABLE = "labels.csv"


def clips(home: Path) -> list[Clip]:
    """Return the clips in the order of the table, or sorted by label and name."""
    table = _table(home)
    if table is None:
        names = [path.relative_to(home) for path in sounds(home, "*/**/*")]
        return [Clip(home / n, (n.parts[0],), None, n.as_posix()) for n in names]
    listed = []
    for row in _rows(table):
        file = row["file"]
        names_of_clip = tuple(n.strip() for n in re.split("[;,]", row["labels"]) if n.strip())
        if not names_of_clip:
            raise FormatError(f"{table}: {file} has no label")
        listed.append(Clip(table.parent / file, names_of_clip, row.get("fold") or None, file))
    return listed


def labels(home: Path) -> tuple[str, ...]:
    """Return all labels in alphabetical order."""
    return tuple(sorted({label for clip in clips(home) for label in clip.labels}))


def missing(home: Path) -> list[str]:
    """Return everything that the folder lacks."""
    if (table := _table(home)) is not None:
        return absent(table.parent, [row["file"] for row in _rows(table)])
    if sounds(home, "*/**/*"):
        return []
    return [f"{_TABLE}, or sound files in one sub-folder per label"]


def _table(home: Path) -> Path | None:
    table = home if home.suffix == ".csv" else home / _TABLE
    return table if table.is_file() else None


def _rows(table: Path) -> list[dict[str, str]]:
    """Return the rows of a table, with their labels in the column `labels`."""
    listed = rows(table, ["file"])
    column = "label" if listed and "label" in listed[0] and "labels" not in listed[0] else "labels"
    return [{**row, "labels": row[column]} for row in rows(table, ["file", column])]
