"""The 400 shared event clips: a part of ESC-50, 50 classes with 8 clips each.

manifest.csv    file, split, label, ..., fold; the clips are those of split "events"
"""

from pathlib import Path

from driftscore.lab.corpora.about import About, Clip
from driftscore.lab.corpora.folders import absent, root
from training.corpora.recordings import MANIFEST, manifest, shared_audio

ABOUT = About(
    title="Shared events",
    page="https://github.com/karoldvl/ESC-50",
    licence="CC0, CC BY or public domain, stated per clip in manifest.csv",
    citation="K. J. Piczak. ESC: Dataset for Environmental Sound Classification. "
    "ACM Multimedia, 2015. doi:10.1145/2733373.2806390",
)
default_home = shared_audio


def clips(home: Path) -> list[Clip]:
    """Return the clips in the order of the manifest."""
    folder = root(home, MANIFEST)
    return [
        Clip(folder / row["file"], (row["label"],), row["fold"] or None, Path(row["file"]).stem)
        for row in manifest(folder, "events")
    ]


def labels(home: Path) -> tuple[str, ...]:
    """Return the classes in alphabetical order."""
    return tuple(sorted({row["label"] for row in manifest(root(home, MANIFEST), "events")}))


def missing(home: Path) -> list[str]:
    """Return everything that the folder lacks."""
    folder = root(home, MANIFEST)
    if lacking := absent(folder, [MANIFEST]):
        return lacking
    return absent(folder, [row["file"] for row in manifest(folder, "events")])
