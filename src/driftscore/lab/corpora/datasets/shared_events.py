"""The 400 shared event clips: a part of ESC-50, 50 classes with 8 clips each.

manifest.csv    file, split, label, ..., fold; the clips are those of split "events"
"""

from pathlib import Path

from driftscore.lab.corpora.about import About, Clip
from driftscore.lab.corpora.folders import absent, require, root, rows
from driftscore.lab.corpora.places import shared_audio

ABOUT = About(
    title="Shared events",
    page="https://github.com/karoldvl/ESC-50",
    licence="CC0, CC BY or public domain, stated per clip in manifest.csv",
    citation="K. J. Piczak. ESC: Dataset for Environmental Sound Classification. "
    "ACM Multimedia, 2015. doi:10.1145/2733373.2806390",
)
_META = "manifest.csv"


def default_home() -> Path:
    """Return the folder of the shared recordings."""
    return shared_audio()


def clips(home: str | Path) -> list[Clip]:
    """Return the clips in the order of the manifest."""
    require(ABOUT, home, missing(home))
    place = root(home, _META)
    return [
        Clip(place / row["file"], (row["label"],), row["fold"] or None, Path(row["file"]).stem)
        for row in _table(place)
    ]


def labels(home: str | Path) -> tuple[str, ...]:
    """Return the classes in alphabetical order."""
    return tuple(sorted({row["label"] for row in _table(root(home, _META))}))


def missing(home: str | Path) -> list[str]:
    """Return everything that the folder lacks."""
    place = root(home, _META)
    if lacking := absent(place, [_META]):
        return lacking
    return absent(place, [row["file"] for row in _table(place)])


def _table(place: Path) -> list[dict[str, str]]:
    table = rows(place / _META, ["file", "split", "label", "fold"])
    return [row for row in table if row["split"] == "events"]
