"""Recorded noise: the 15 shared recordings, with the classes audible in each of them.

manifest.csv    file, split, environment, avoid_classes; rows whose split begins with "noise"
"""

from pathlib import Path

from driftscore.lab.corpora.about import About
from driftscore.lab.corpora.folders import absent, root
from driftscore.lab.corpora.noises.protocol import NoiseRecording
from training.corpora.recordings import MANIFEST, manifest, shared_audio, split_labels

ABOUT = About(
    title="Shared noise",
    page="",
    licence="stated per recording in manifest.csv",
    citation="stated per recording in manifest.csv",
)
default_home = shared_audio


def recordings(home: Path) -> list[NoiseRecording]:
    """Return the recordings in the order of the manifest."""
    folder = root(home, MANIFEST)
    return [
        NoiseRecording(
            str(folder / row["file"]),
            row["file"],
            row["environment"].replace("_", " "),
            split_labels(row["avoid_classes"]),
        )
        for row in manifest(folder, "noise")
    ]


def missing(home: Path) -> list[str]:
    """Return everything that the folder lacks."""
    folder = root(home, MANIFEST)
    if lacking := absent(folder, [MANIFEST]):
        return lacking
    return absent(folder, [row["file"] for row in manifest(folder, "noise")])
