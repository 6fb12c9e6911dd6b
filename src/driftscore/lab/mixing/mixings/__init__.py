"""Mixing methods, one per file: each fixes how an event is put into noise at an SNR.

A method is a module (or any object) with

    draw(event, background, *, snr_db, meter, seed, rng) -> MixRecord
    background_s(event_s) -> float      how many seconds of background an event needs

`draw` fixes every choice of the mix, takes all its randomness from `rng`, and applies nothing. A
method can also be an entry point of the group `driftscore.mixings`, or "module:attribute". SNRs of
different methods are different numbers and never share a column.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from driftscore.errors import UsageError
from driftscore.lab.mixing.record import MixRecord
from driftscore.system import plugins

KIND = plugins.Kind("mixing", __name__, "draw")


@runtime_checkable
class MixingModule(Protocol):
    """A module, or an object, that defines a mixing method."""

    draw: Callable[..., MixRecord]
    background_s: Callable[[float], float]


def find_mixing(name: str) -> MixingModule:
    """Return a mixing method by its name; an unknown name is an error that offers the nearest."""
    plugin = plugins.find(KIND, name)
    if not isinstance(plugin, MixingModule):
        raise UsageError(
            f"The mixing {name!r} must define draw(event, background, ...) and "
            "background_s(event_s)"
        )
    return plugin
