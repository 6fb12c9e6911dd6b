"""Mixing methods, one per file: each fixes how an event is put into noise at an SNR.

`protocol.py` says what a method's file defines. A method can also be an entry point of the group
`driftscore.mixings`, or "module:attribute". SNRs of different methods are different numbers and
never share a column.
"""

from driftscore import registry
from driftscore.lab.mixing.mixings.protocol import Mixing, describe_mixing

KIND = registry.Kind("mixing", __name__, "draw")

__all__ = ["Mixing", "find_mixing", "mixing_names"]


def mixing_names() -> tuple[str, ...]:
    """Return the names of all mixing methods."""
    return registry.names(KIND)


def find_mixing(name: str) -> Mixing:
    """Return a mixing method by its name; an unknown name is an error that offers the nearest."""
    return describe_mixing(name, registry.find(KIND, name))
