"""What a corpus says about itself, and what a labelled clip is.

`About` holds a corpus's title, licence, citation and official files with their published md5
checksums. A file without one is verified by the checksum that its Zenodo record states at download
time.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Remote:
    """One official file: its address, its md5 (empty: ask the record), whether to unpack it."""

    name: str
    url: str
    md5: str = ""
    unpack: bool = True
    stated_by: str = "driftscore"
    """Who states the md5."""


@dataclass(frozen=True)
class About:
    """The facts about a corpus.

    `clips` is how many a dataset has as published, for the plan of a grid before it is downloaded.
    `timed` datasets consist of long recordings whose events have times: a soundscape's truth is
    beside each of them. They measure how events are detected, not which label a clip gets.
    """

    title: str
    page: str
    licence: str
    citation: str
    files: tuple[Remote, ...] = ()
    multi_label: bool = False
    timed: bool = False
    clips: int = 0


@dataclass(frozen=True)
class Generated:
    """How many clips a dataset generates, and how many hours they last together."""

    clips: int
    hours: float


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
