"""Rules and backbones are files, found by their name: adding one is adding one file."""

import importlib
import importlib.util
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


def has(package: str, name: str, entry: str) -> bool:
    """Return whether `package` has a module `name` with `entry`, importing no other."""
    if not name.isidentifier() or name.startswith("_"):
        return False
    found = importlib.util.find_spec(f"{package}.{name}") is not None
    return found and hasattr(importlib.import_module(f"{package}.{name}"), entry)


def find(package: str, name: str, *, entry: str, kind: str) -> ModuleType:
    """Return the module `name` of `package`, or say which name is nearest."""
    if not has(package, name, entry):
        raise unknown(kind, name, names(package, entry))
    return importlib.import_module(f"{package}.{name}")


def summary(module: ModuleType) -> str:
    """Return the first line of a module's docstring, without its full stop."""
    return (module.__doc__ or "").strip().split("\n")[0].rstrip(".")
