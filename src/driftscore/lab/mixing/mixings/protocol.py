"""What a mixing method defines.

A method is a module (or any object) with

    draw(event, background, *, snr_db, meter, seed, rng) -> MixRecord
    background_s(event_s) -> float      how many seconds of background an event needs

`draw` fixes every choice of the mix, takes all its randomness from `rng`, and applies nothing.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from driftscore.errors import UsageError
from driftscore.lab.mixing.loudness import LoudnessMeter
from driftscore.lab.mixing.record import MixRecord
from driftscore.lab.mixing.sounds import Excerpt, Sound
from driftscore.registry import summary


class Draw(Protocol):
    """Fix a mix of an event and a background."""

    def __call__(
        self,
        event: Sound,
        background: Excerpt,
        *,
        snr_db: float,
        meter: LoudnessMeter,
        seed: str = "",
        rng: np.random.Generator,
    ) -> MixRecord:
        """Return the record of the mix."""


class BackgroundSeconds(Protocol):
    """Say how long a background has to be."""

    def __call__(self, event_s: float) -> float:
        """Return the seconds of background for an event of `event_s` seconds."""


@runtime_checkable
class MixingModule(Protocol):
    """A module, or an object, that defines a mixing method."""

    draw: Draw
    background_s: BackgroundSeconds


@dataclass(frozen=True)
class Mixing:
    """A mixing method by its name."""

    name: str
    summary: str
    draw: Draw
    background_s: BackgroundSeconds


def describe_mixing(name: str, plugin: object) -> Mixing:
    """Return the mixing method that a module or an object defines."""
    if not isinstance(plugin, MixingModule):
        raise UsageError(
            f"The mixing {name!r} must define draw(event, background, ...) and "
            "background_s(event_s)"
        )
    return Mixing(name, summary(plugin), plugin.draw, plugin.background_s)
