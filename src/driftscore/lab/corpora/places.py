"""Where corpora are stored: a folder per corpus in the data home, and the shared recordings."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from driftscore import registry
from driftscore.errors import UsageError, unknown
from driftscore.files import cache_home


@runtime_checkable
class HasDefaultHome(Protocol):
    """A corpus whose folder is not in the data home."""

    default_home: Callable[[], Path]


def data_home() -> Path:
    """Return the folder of all corpora: `$DRIFTSCORE_DATA`, or `data` in the cache folder."""
    if given := os.environ.get("DRIFTSCORE_DATA"):
        return Path(given).expanduser()
    return cache_home() / "data"


def shared_audio() -> Path:
    """Return the folder of shared recordings: `$DRIFTSCORE_SHARED`, or beside the project."""
    if given := os.environ.get("DRIFTSCORE_SHARED"):
        candidates = [Path(given).expanduser()]
    else:
        projects = (Path(__file__).parents[4], Path.cwd())
        candidates = [project.resolve().parent / "shared" for project in projects]
    for folder in candidates:
        for place in (folder / "audio", folder):
            if (place / "manifest.csv").is_file():
                return place
    looked = ", ".join(str(folder) for folder in dict.fromkeys(candidates))
    raise UsageError(
        f"The shared recordings (audio/manifest.csv) are not in {looked}; "
        "set DRIFTSCORE_SHARED to their folder"
    )


def find_plugin(kind: registry.Kind, name: str, home: str | Path | None, *, own: str) -> object:
    """Return the corpus called `name`; any other name with a home is read by the corpus `own`."""
    if registry.has(kind, name):
        return registry.find(kind, name)
    if home is None:
        problem = unknown(kind.title, name, registry.names(kind))
        raise UsageError(f"{problem} (a {kind.title} of your own needs its folder in [homes])")
    return registry.find(kind, own)


def home_of(name: str, corpus: object, home: str | Path | None) -> Path:
    """Return the folder of a corpus: the one given, its own default, or one in the data home."""
    if home is not None:
        return Path(home).expanduser()
    if isinstance(corpus, HasDefaultHome):
        return Path(corpus.default_home())
    return data_home() / name
