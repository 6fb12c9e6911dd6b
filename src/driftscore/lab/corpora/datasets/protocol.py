"""What a dataset defines.

A dataset is a module (or any object) with

    ABOUT                        title, licence, citation and official files
    clips(home) -> [Clip]        the labelled clips in a fixed order
    labels(home) -> (str, ...)   all labels in a fixed order, also those without a clip
    missing(home) -> [str]       everything that the folder lacks
    default_home() -> Path       optional: its folder, unless it is a folder of the data home
    generated(home) -> Generated optional: the clips that `clips` generates on its first call
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from driftscore.errors import UsageError
from driftscore.lab.corpora.about import About, Clip, Generated
from driftscore.lab.corpora.places import home_of


@runtime_checkable
class DatasetModule(Protocol):
    """A module, or an object, that defines a dataset."""

    ABOUT: About
    clips: Callable[[Path], Sequence[Clip]]
    labels: Callable[[Path], Sequence[str]]
    missing: Callable[[Path], Sequence[str]]


@runtime_checkable
class GeneratingModule(Protocol):
    """A dataset whose clips are generated when they are first listed."""

    generated: Callable[[Path], Generated]


@dataclass(frozen=True)
class Dataset:
    """A dataset by its name; without a `home` it is read from its default folder."""

    name: str
    plugin: DatasetModule

    @property
    def about(self) -> About:
        """Title, licence, citation and official files."""
        return self.plugin.ABOUT

    def home(self, given: str | Path | None = None) -> Path:
        """Return the folder of the dataset: the one given, or its default."""
        return home_of(self.name, self.plugin, given)

    def clips(self, home: str | Path | None = None) -> list[Clip]:
        """Return the labelled clips in a fixed order."""
        return list(self.plugin.clips(self.home(home)))

    def generated(self, home: str | Path | None = None) -> Generated | None:
        """Return how much is generated when the clips are listed; None if they are files."""
        plugin = self.plugin
        return plugin.generated(self.home(home)) if isinstance(plugin, GeneratingModule) else None

    def labels(self, home: str | Path | None = None) -> tuple[str, ...]:
        """Return all labels in a fixed order."""
        return tuple(self.plugin.labels(self.home(home)))

    def missing(self, home: str | Path | None = None) -> list[str]:
        """Return everything that the folder lacks."""
        return list(self.plugin.missing(self.home(home)))


def describe_dataset(name: str, plugin: object) -> Dataset:
    """Return the dataset that a module or an object defines."""
    if not isinstance(plugin, DatasetModule):
        raise UsageError(
            f"The dataset {name!r} must define ABOUT, clips(home), labels(home) and missing(home)"
        )
    return Dataset(name, plugin)
