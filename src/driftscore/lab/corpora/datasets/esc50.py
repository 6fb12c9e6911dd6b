"""ESC-50: 2,000 environmental sounds of 5 s, 50 classes, 5 folds.

audio/{fold}-{source}-{take}-{target}.wav    44.1 kHz, padded with silence
meta/esc50.csv                               filename, fold, target, category, ...
"""

from pathlib import Path

from driftscore.lab.corpora.about import About, Clip, Remote
from driftscore.lab.corpora.folders import absent, require, root, rows

_COMMIT = "33c8ce9eb2cf0b1c2f8bcf322eb349b6be34dbb6"
ABOUT = About(
    title="ESC-50",
    page="https://github.com/karoldvl/ESC-50",
    licence="CC BY-NC 3.0 (single clips: see its LICENSE)",
    citation="K. J. Piczak. ESC: Dataset for Environmental Sound Classification. "
    "ACM Multimedia, 2015. doi:10.1145/2733373.2806390",
    files=(
        Remote(
            "ESC-50.zip",
            f"https://github.com/karoldvl/ESC-50/archive/{_COMMIT}.zip",
            "071b44018315e034b2c6e8064543d19c",
        ),
    ),
)
_META = "meta/esc50.csv"


def clips(home: str | Path) -> list[Clip]:
    """Return the clips in the order of the table."""
    require(ABOUT, home, missing(home))
    place = root(home, _META)
    return [
        Clip(
            place / "audio" / row["filename"],
            (row["category"],),
            row["fold"],
            row["filename"].removesuffix(".wav"),
        )
        for row in _table(place)
    ]


def labels(home: str | Path) -> tuple[str, ...]:
    """Return the categories in the order of their official numbers."""
    table = _table(root(home, _META))
    return tuple(name for _, name in sorted({(int(r["target"]), r["category"]) for r in table}))


def missing(home: str | Path) -> list[str]:
    """Return everything that the folder lacks."""
    place = root(home, _META)
    if lacking := absent(place, [_META, "audio"]):
        return lacking
    return absent(place, [f"audio/{row['filename']}" for row in _table(place)])


def _table(place: Path) -> list[dict[str, str]]:
    return rows(place / _META, ["filename", "fold", "target", "category"])
