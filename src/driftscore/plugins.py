"""Rules and backbones are files, found by their name: adding one is adding one file."""

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from driftscore.errors import unknown


@cache
def names(package: str, entry: str) -> tuple[str, ...]:
    """Return the names of the modules of `package` that define the function `entry`."""
    home = importlib.import_module(package)
    found = sorted(m.name for m in pkgutil.iter_modules(home.__path__) if m.name[0] != "_")
    return tuple(n for n in found if hasattr(importlib.import_module(f"{package}.{n}"), entry))


def find(package: str, name: str, *, entry: str, kind: str) -> ModuleType:
    """Return the module `name` of `package`, or say which name is nearest."""
    if name not in names(package, entry):
        raise unknown(kind, name, names(package, entry))
    return importlib.import_module(f"{package}.{name}")


def summary(module: ModuleType) -> str:
    """Return the first line of a module's docstring, without its full stop."""
    return (module.__doc__ or "").strip().split("\n")[0].rstrip(".")
