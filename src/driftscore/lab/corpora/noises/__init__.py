"""Noises, one per file: where noise comes from, and how an excerpt of it is drawn.

`protocol.py` says what a noise's file defines. A noise can also be an entry point of the group
`driftscore.noises`, or "module:attribute".
"""

from driftscore import registry
from driftscore.lab.corpora.loading import NOISES as KIND
from driftscore.lab.corpora.noises.protocol import Noise, describe_noise

__all__ = ["KIND", "Noise", "find_noise", "noise_names"]


def noise_names() -> tuple[str, ...]:
    """Return the names of all noises."""
    return registry.names(KIND)


def find_noise(name: str) -> Noise:
    """Return a noise by its name; an unknown name is an error that offers the nearest."""
    return describe_noise(name, registry.find(KIND, name))
