"""Read the folder of a corpus: its root, its tables, and what is missing from it."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from driftscore.errors import FormatError, UsageError
from driftscore.lab.corpora.about import About

_SHOWN = 12  # missing files named in an error; the others are counted


def root(home: str | Path, *marks: str) -> Path:
    """Return the folder that contains any of `marks`: `home` itself, or a folder directly in it.

    Archives contain a top folder of their own; they may be unpacked with or without it. Hidden
    folders are not looked at: an archive may be in one while it is unpacked.
    """
    folder = Path(home).expanduser()
    inside = _visible_folders(folder) if folder.is_dir() else []
    for place in (folder, *inside):
        if any((place / mark).exists() for mark in marks):
            return place
    return folder


def _visible_folders(folder: Path) -> list[Path]:
    try:
        found = sorted(folder.iterdir())
        return [path for path in found if not path.name.startswith(".") and path.is_dir()]
    except OSError as error:
        raise FormatError(f"{folder} cannot be listed: {error.strerror or error}") from error


def rows(path: Path, columns: Sequence[str], *, delimiter: str = ",") -> list[dict[str, str]]:
    """Return the rows of a csv with a header, which must have `columns`."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            reader = csv.DictReader(handle, delimiter=delimiter)
            found = list(reader)
            header = reader.fieldnames or []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"{path} cannot be read as a table: {error}") from error
    if lacking := [column for column in columns if column not in header]:
        raise FormatError(
            f"{path} lacks the column {', '.join(lacking)}; "
            f"its columns: {', '.join(header) or 'none'}"
        )
    for number, row in enumerate(found, start=2):
        if any(row[column] is None for column in columns):
            raise FormatError(f"{path}, line {number}: fewer fields than columns")
    return found


def absent(folder: Path, names: Iterable[str]) -> list[str]:
    """Return those of `names` that are not in `folder`, in order, each once."""
    return [name for name in dict.fromkeys(names) if not (folder / name).exists()]


def require(about: About, home: str | Path, missing: Sequence[str]) -> None:
    """Raise an error that lists everything that is missing, if anything is."""
    if not missing:
        return
    shown = "\n".join(f"  {name}" for name in missing[:_SHOWN])
    more = f"\n  and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    raise UsageError(f"{about.title} in {home} is incomplete; missing:\n{shown}{more}")
