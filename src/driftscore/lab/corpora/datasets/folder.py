"""A user's own clips: one sub-folder per label, or a csv of files and labels.

    dog bark/a.wav, siren/b.flac, ...      the folder's name is the label
    labels.csv                             file, labels (separated by ; or ,), fold (optional)

A column `label` is read as `labels`. `home` is the folder, or the csv itself. If there is a
labels.csv, sub-folders are not read.
"""

import re
from pathlib import Path

from driftscore.audio import SUFFIXES
from driftscore.errors import FormatError
from driftscore.lab.corpora.about import About, Clip
from driftscore.lab.corpora.folders import absent, require, rows

ABOUT = About(
    title="Your folder", page="", licence="your own", citation="your own", multi_label=True
)
_TABLE = "labels.csv"


def clips(home: str | Path) -> list[Clip]:
    """Return the clips in the order of the table, or sorted by label and name."""
    require(ABOUT, home, missing(home))
    table = _table(home)
    if table is None:
        folder = Path(home).expanduser()
        return [
            Clip(path, (path.relative_to(folder).parts[0],), None, _id(path, folder))
            for path in _sounds(folder)
        ]
    return [
        Clip(table.parent / row["file"], _labels(row, table), row.get("fold") or None, row["file"])
        for row in _rows(table)
    ]


def labels(home: str | Path) -> tuple[str, ...]:
    """Return all labels in alphabetical order."""
    return tuple(sorted({label for clip in clips(home) for label in clip.labels}))


def missing(home: str | Path) -> list[str]:
    """Return everything that the folder lacks."""
    folder, table = Path(home).expanduser(), _table(home)
    if table is not None:
        return absent(table.parent, [row["file"] for row in _rows(table)])
    return [] if _sounds(folder) else [f"{_TABLE}, or sound files in one sub-folder per label"]


def _table(home: str | Path) -> Path | None:
    given = Path(home).expanduser()
    if given.suffix == ".csv" and given.is_file():
        return given
    return given / _TABLE if (given / _TABLE).is_file() else None


def _rows(table: Path) -> list[dict[str, str]]:
    """Return the rows of a table, with their labels in the column `labels`."""
    found = rows(table, ["file"])
    column = "label" if found and "label" in found[0] and "labels" not in found[0] else "labels"
    return [{**row, "labels": row[column]} for row in rows(table, ["file", column])]


def _sounds(folder: Path) -> list[Path]:
    inside = sorted(folder.glob("*/**/*")) if folder.is_dir() else []
    return [path for path in inside if path.suffix.lower() in SUFFIXES and path.is_file()]


def _id(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _labels(row: dict[str, str], table: Path) -> tuple[str, ...]:
    found = tuple(part.strip() for part in re.split("[;,]", row["labels"]) if part.strip())
    if not found:
        raise FormatError(f"{table}: {row['file']} has no label")
    return found
