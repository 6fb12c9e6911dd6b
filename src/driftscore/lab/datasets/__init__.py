"""Labelled corpora, one a file, in their official folder layout.

A dataset's file defines `ABOUT` (licence, citation, official files), `clips(home)`, the
labelled clips; `labels(home)`, the label set in a fixed order, which may hold labels
without a clip; and `missing(home)`, all that the folder lacks. It may define
`default_home()` where its folder is not one of the data home.
"""

from pathlib import Path
from types import ModuleType
from typing import Any

from driftscore import registry
from driftscore.lab.corpora import Clip
from driftscore.lab.places import data_home

KIND = registry.Kind("dataset", __name__, "clips")

__all__ = ["Clip", "dataset_names", "find_dataset", "home_of"]


def dataset_names() -> tuple[str, ...]:
    """Return the names of all datasets."""
    return registry.names(KIND)


def find_dataset(name: str) -> Any:
    """Return the dataset's module, or say which name is nearest."""
    return registry.find(KIND, name)


def home_of(module: ModuleType, home: str | Path | None = None) -> Path:
    """Return the folder of a corpus: the one given, its own default, or its data folder."""
    if home is not None:
        return Path(home).expanduser()
    if hasattr(module, "default_home"):
        return Path(module.default_home())
    return data_home() / module.__name__.rpartition(".")[2]
