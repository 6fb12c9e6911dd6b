"""Datasets of labelled clips, one per file, in their official folder layout.

`protocol.py` says what a dataset's file defines. A dataset can also be an entry point of the group
`driftscore.datasets`, or "module:attribute". Any other name with a folder is a user's own dataset,
which is read as `folder`.
"""

from pathlib import Path

from driftscore.lab.corpora.datasets.protocol import Dataset
from driftscore.lab.corpora.folders import find_plugin
from driftscore.system import plugins

KIND = plugins.Kind("dataset", __name__, "clips")

__all__ = ["KIND", "Dataset", "find_dataset"]


def find_dataset(name: str, home: str | Path | None = None) -> Dataset:
    """Return a dataset by its name; with a `home`, any other name is that of a user's own clips.

    An unknown name without a home is an error that offers the nearest.
    """
    functions = ("clips", "labels")
    return Dataset(name, find_plugin(KIND, name, home, own="folder", functions=functions), home)
