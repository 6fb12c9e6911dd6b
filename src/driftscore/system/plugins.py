"""Plug-ins found by name: a file of ours, an entry point of another package, or a Python object.

A *kind* of plug-in (rule, backbone, engine, output format, dataset, noise, mixing method) is a
package whose public modules each define one function. A name is looked up in this order:

    "das"                  the module of that name in the kind's package
    "my_rule"              an entry point of the kind's group, from any installed package
    "my_package.x:name"    an attribute of any importable module

Adding a plug-in means adding one file, here or elsewhere; nothing else has to be edited.
"""

import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from driftscore.errors import UsageError, unknown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True)
class Kind:
    """A kind of plug-in and where its plug-ins are found."""

    title: str
    """What messages call it: "rule" as in "No rule called 'x'"."""
    package: str
    """Our own package of plug-ins, such as "driftscore.rules"."""
    entry: str
    """The attribute that every plug-in module defines."""

    @property
    def group(self) -> str:
        """The entry point group of other packages' plug-ins."""
        return f"driftscore.{self.package.rpartition('.')[2]}"


def names(kind: Kind) -> tuple[str, ...]:
    """Return the names of all plug-ins of a kind: ours, then those of other packages."""
    home = importlib.import_module(kind.package)
    modules = sorted(module.name for module in pkgutil.iter_modules(home.__path__))
    ours = [name for name in modules if _own(kind, name)]
    return (*ours, *(name for name in sorted(_entry_points(kind)) if name not in ours))


def has(kind: Kind, name: str) -> bool:
    """Return whether `find` would find a plug-in, without importing other plug-ins."""
    return bool(_own(kind, name)) or name in _entry_points(kind) or _is_reference(name)


def find(kind: Kind, name: str) -> object:
    """Return the plug-in called `name`; an unknown name is an error that offers the nearest."""
    if (module := _own(kind, name)) is not None:
        return module
    what = f"The {kind.title} {name!r}"
    if (point := _entry_points(kind).get(name)) is not None:
        origin = f"the package {point.dist.name}" if point.dist else "another package"
        return _loaded(point.value, f"{what} of {origin}")
    if _is_reference(name):
        return _loaded(name, what)
    raise unknown(kind.title, name, names(kind))


def summary(plugin: object) -> str:
    """Return the first line of a plug-in's docstring, without its full stop."""
    return (plugin.__doc__ or "").strip().split("\n")[0].rstrip(".")


def _own(kind: Kind, name: str) -> ModuleType | None:
    """Return the public module of the kind's package that has this name and defines its entry."""
    path = f"{kind.package}.{name}"
    if not name.isidentifier() or name[0] == "_" or importlib.util.find_spec(path) is None:
        return None
    module = importlib.import_module(path)
    return module if hasattr(module, kind.entry) else None


@cache
def _entry_points(kind: Kind) -> "dict[str, EntryPoint]":
    """Return the entry points of a kind's group by name; reading them takes milliseconds."""
    from importlib.metadata import entry_points  # takes a tenth of a second

    return {point.name: point for point in entry_points(group=kind.group)}


def _is_reference(name: str) -> bool:
    """Return whether a name has the form "module:attribute"."""
    module, colon, attribute = name.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        return False
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _loaded(reference: str, what: str) -> object:
    """Import what "module" or "module:attribute" names."""
    module, _, attribute = reference.partition(":")
    try:
        value: object = importlib.import_module(module)
        for part in filter(None, attribute.split(".")):
            value = getattr(value, part)
    except Exception as error:  # whatever a foreign module raises while it is imported
        raise UsageError(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error
    return value
