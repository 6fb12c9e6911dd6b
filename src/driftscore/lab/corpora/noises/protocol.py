"""What a noise defines.

A noise is a module (or any object) with

    ABOUT                                            title, licence, citation, official files
    recordings(home) -> [NoiseRecording]             what excerpts are drawn from
    missing(home) -> [str]                           everything that the folder lacks
    sample(seconds, rate, rng, *, home, avoid=())    draws an Excerpt without the labels to avoid
    default_home() -> Path                           optional: its folder, unless in the data home
    make(description, rate) -> Audio                 optional: generates a sound from its name

A corpus of files has `sample = drawing.sampler(recordings)`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from driftscore.errors import UsageError
from driftscore.lab.corpora.about import About
from driftscore.lab.corpora.places import home_of
from driftscore.lab.mixing.sounds import Excerpt
from driftscore.prompts import words


@dataclass(frozen=True)
class NoiseRecording:
    """One noise recording: its file, its environment in words, and the labels audible in it."""

    file: str
    id: str
    environment: str
    avoid: tuple[str, ...] = ()

    def contains(self, labels: Iterable[str]) -> bool:
        """Return whether any of `labels` is one to avoid, in any spelling."""
        return not {words(label) for label in labels}.isdisjoint(map(words, self.avoid))


class Sample(Protocol):
    """Draw an excerpt of a noise."""

    def __call__(
        self,
        seconds: float,
        rate: int,
        rng: np.random.Generator,
        *,
        home: Path,
        avoid: Iterable[str] = (),
    ) -> Excerpt:
        """Return an excerpt of `seconds` at `rate` without any of the labels in `avoid`."""


@runtime_checkable
class NoiseModule(Protocol):
    """A module, or an object, that defines a noise."""

    ABOUT: About
    recordings: Callable[[Path], Sequence[NoiseRecording]]
    missing: Callable[[Path], Sequence[str]]
    sample: Sample


@dataclass(frozen=True)
class Noise:
    """A noise by its name; without a `home` it is read from its default folder."""

    name: str
    plugin: NoiseModule

    @property
    def about(self) -> About:
        """Title, licence, citation and official files."""
        return self.plugin.ABOUT

    def home(self, given: str | Path | None = None) -> Path:
        """Return the folder of the noise: the one given, or its default."""
        return home_of(self.name, self.plugin, given)

    def recordings(self, home: str | Path | None = None) -> list[NoiseRecording]:
        """Return the recordings that excerpts are drawn from."""
        return list(self.plugin.recordings(self.home(home)))

    def missing(self, home: str | Path | None = None) -> list[str]:
        """Return everything that the folder lacks."""
        return list(self.plugin.missing(self.home(home)))

    def sample(
        self,
        seconds: float,
        rate: int,
        rng: np.random.Generator,
        *,
        home: str | Path | None = None,
        avoid: Iterable[str] = (),
    ) -> Excerpt:
        """Draw an excerpt of `seconds` at `rate` without any of the labels in `avoid`."""
        return self.plugin.sample(seconds, rate, rng, home=self.home(home), avoid=avoid)


def describe_noise(name: str, plugin: object) -> Noise:
    """Return the noise that a module or an object defines."""
    if not isinstance(plugin, NoiseModule):
        raise UsageError(
            f"The noise {name!r} must define ABOUT, recordings(home), missing(home) and "
            "sample(seconds, rate, rng, ...)"
        )
    return Noise(name, plugin)
