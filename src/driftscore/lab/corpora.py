"""What every corpus file says of itself, and how its folder is read.

`ABOUT` holds a corpus's title, licence, citation and official files with their published
md5 sums. A file whose sum is empty is verified by the sum that its Zenodo record publishes
at download time. A folder that lacks something is reported whole: all that is missing.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from driftscore.errors import FormatError, UsageError

_SHOWN = 12  # missing files named in an error; the rest are counted


@dataclass(frozen=True)
class Remote:
    """One official file: where it is, its md5 (empty: ask the record), whether to unpack it."""

    name: str
    url: str
    md5: str = ""
    unpack: bool = True


@dataclass(frozen=True)
class About:
    """A corpus in facts."""

    title: str
    page: str
    licence: str
    citation: str
    files: tuple[Remote, ...] = ()
    multi_label: bool = False


@dataclass(frozen=True)
class Clip:
    """One labelled recording of a dataset."""

    path: Path
    labels: tuple[str, ...]
    fold: str | None
    id: str


def zenodo(record: int, *files: tuple[str, str], unpack: bool = True) -> tuple[Remote, ...]:
    """Return (name, md5) pairs as the files of a Zenodo record; a name may be a pattern."""
    page = f"https://zenodo.org/records/{record}/files/"
    return tuple(Remote(name, page + name, md5, unpack) for name, md5 in files)


def root(home: str | Path, *marks: str) -> Path:
    """Return the folder that holds any of `marks`: `home` itself, or a folder just inside it.

    Archives bring a top folder of their own; both ways of unpacking are right.
    """
    folder = Path(home).expanduser()
    inside = sorted(p for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    for place in (folder, *inside):
        if any((place / mark).exists() for mark in marks):
            return place
    return folder


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
            f"{path} lacks the column {', '.join(lacking)}; it has {', '.join(header) or 'none'}"
        )
    for number, row in enumerate(found, start=2):
        if any(row[column] is None for column in columns):
            raise FormatError(f"{path}, line {number}: fewer fields than columns")
    return found


def absent(folder: Path, names: Iterable[str]) -> list[str]:
    """Return those of `names` that are not in `folder`, in order and once."""
    return [name for name in dict.fromkeys(names) if not (folder / name).exists()]


def require(about: About, home: str | Path, missing: Sequence[str]) -> None:
    """Raise an error that lists what is missing, if anything is."""
    if not missing:
        return
    shown = "\n".join(f"  {name}" for name in missing[:_SHOWN])
    more = f"\n  and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    raise UsageError(f"{about.title} in {home} is incomplete; missing:\n{shown}{more}")
