"""Noises, one per file: where noise comes from, and how an excerpt of it is drawn.

`protocol.py` says what a noise's file defines. A noise can also be an entry point of the group
`driftscore.noises`, or "module:attribute". Any other name with a folder is a user's own noise,
which is read as `recorded`.
"""

from pathlib import Path

from driftscore.lab.corpora.folders import NOISES as KIND
from driftscore.lab.corpora.folders import find_plugin
from driftscore.lab.corpora.noises.protocol import Noise

__all__ = ["KIND", "Noise", "find_noise"]


def find_noise(name: str, home: str | Path | None = None) -> Noise:
    """Return a noise by its name; with a `home`, any other name is that of a user's own noise.

    An unknown name without a home is an error that offers the nearest.
    """
    functions = ("recordings",)
    return Noise(name, find_plugin(KIND, name, home, own="recorded", functions=functions), home)
