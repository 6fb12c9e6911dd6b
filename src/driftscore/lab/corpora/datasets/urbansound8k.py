"""UrbanSound8K: 8,732 urban sounds of up to 4 s, 10 classes, 10 folds.

audio/fold{1..10}/{fsID}-{classID}-{occurrence}-{slice}.wav
metadata/UrbanSound8K.csv    slice_file_name, fsID, ..., fold, classID, class
"""

from pathlib import Path

from driftscore.lab.corpora.about import About, Clip, zenodo
from driftscore.lab.corpora.folders import absent, require, root, rows

ABOUT = About(
    title="UrbanSound8K",
    page="https://zenodo.org/records/1203745",
    licence="CC BY-NC 3.0",
    citation="J. Salamon, C. Jacoby and J. P. Bello. A Dataset and Taxonomy for Urban Sound "
    "Research. ACM Multimedia, 2014. doi:10.1145/2647868.2655045",
    files=zenodo(1203745, ("UrbanSound8K.tar.gz", "9aa69802bbf37fb986f71ec1483a196e")),
)
_META = "metadata/UrbanSound8K.csv"


def clips(home: str | Path) -> list[Clip]:
    """Return the clips in the order of the table."""
    require(ABOUT, home, missing(home))
    place = root(home, _META)
    return [
        Clip(
            place / _file(row),
            (row["class"],),
            row["fold"],
            row["slice_file_name"].removesuffix(".wav"),
        )
        for row in _table(place)
    ]


def labels(home: str | Path) -> tuple[str, ...]:
    """Return the classes in the order of their official numbers."""
    table = _table(root(home, _META))
    return tuple(name for _, name in sorted({(int(r["classID"]), r["class"]) for r in table}))


def missing(home: str | Path) -> list[str]:
    """Return everything that the folder lacks."""
    place = root(home, _META)
    if lacking := absent(place, [_META, "audio"]):
        return lacking
    return absent(place, map(_file, _table(place)))


def _file(row: dict[str, str]) -> str:
    return f"audio/fold{row['fold']}/{row['slice_file_name']}"


def _table(place: Path) -> list[dict[str, str]]:
    return rows(place / _META, ["slice_file_name", "fold", "classID", "class"])
