"""Audio-text models, one family per package, found by name or by what a user points at.

A family defines `load(...) -> Backbone`; it may define `accepts(spec) -> bool` to be found by a hub
id, a folder or a file. A model can also come from an entry point of the group
`driftscore.backbones`. Heavy libraries are imported only where they are used.
"""

import inspect
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Protocol, cast, runtime_checkable

from driftscore import registry
from driftscore.backbones.protocol import LOGIT_SCALE, Backbone, Features
from driftscore.errors import MismatchError, UsageError, unknown

__all__ = ["LOGIT_SCALE", "Backbone", "Family", "Features", "Named", "backbone_names",
           "check_backbone", "check_model", "find_family", "load_backbone"]  # fmt: skip

KIND = registry.Kind("backbone", __name__, "load")
DEFAULT_BACKBONE = "mini"
DEFAULT_RUNTIME = "auto"


class Family(Protocol):
    """A module, or an object, that loads the models of one family."""

    def load(self, *arguments: str, **options: object) -> Backbone:
        """Load a model; `arguments` is empty, or the name, folder or file that was asked for."""


@runtime_checkable
class _Accepting(Protocol):
    def accepts(self, spec: str) -> bool:
        """Return whether `spec` is a model of this family."""


@runtime_checkable
class _Listing(Protocol):
    KNOWN: tuple[str, ...]
    """Hub ids that are models of this family, whichever other family would accept them."""


class Named(Protocol):
    """Anything that says which model it is, or was made by."""

    @property
    def name(self) -> str:
        """What people call the model."""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the model; empty if it is not known."""


def check_model(made_by: Mapping[str, object], model: Named, *, what: str) -> None:
    """Refuse to use with `model` what another model made.

    What carries no fingerprint was made elsewhere; only its dimensions can be checked.
    """
    maker = made_by.get("fingerprint")
    if maker and model.fingerprint and maker != model.fingerprint:
        raise MismatchError(
            f"{what} was made with {made_by.get('backbone') or 'another model'} "
            f"({str(maker)[:24]}), not with {model.name or 'this one'} "
            f"({model.fingerprint[:24]}); embeddings of two models cannot be compared, "
            "so make it again with the same model"
        )


def check_backbone(model: object) -> Backbone:
    """Return a loaded model if it has everything that a backbone needs."""
    if isinstance(model, Backbone):
        return model
    wanted = [name for name in _MEMBERS if not hasattr(model, name)]
    raise UsageError(
        f"{type(model).__name__} is not a backbone: it lacks {', '.join(wanted)}; subclass "
        "driftscore.Backbone, which has defaults for most of them"
    )


_MEMBERS = sorted(name for name in {*vars(Backbone), *Backbone.__annotations__} if name[0] != "_")


def backbone_names() -> tuple[str, ...]:
    """Return the names of the model families: ours and those of entry points."""
    return registry.names(KIND)


def load_backbone(
    spec: str | PathLike[str] = DEFAULT_BACKBONE,
    *,
    runtime: str | None = None,
    **options: object,
) -> Backbone:
    """Load a model by its name, or by a hub id, a folder or a file that a family accepts.

    `runtime` chooses what a CLAP runs in; None and "auto" leave the choice to the family.
    """
    given = fspath(spec)
    family, arguments = find_family(given)
    if runtime not in (None, DEFAULT_RUNTIME):
        options["runtime"] = runtime
    try:
        inspect.signature(family.load).bind(*arguments, **options)
    except TypeError as error:
        if "runtime" in options:
            raise UsageError(
                f"Only CLAP models have a choice of runtime; {given} has one"
            ) from error
        raise UsageError(f"The backbone {given!r} cannot be loaded like this: {error}") from error
    return check_backbone(family.load(*arguments, **options))


def find_family(spec: str) -> tuple[Family, list[str]]:
    """Return the family that a user means, and what its `load` is called with; load nothing."""
    name, _, rest = spec.partition(":")
    if rest and name in backbone_names():
        return cast(Family, registry.find(KIND, name)), [rest]
    if registry.has(KIND, spec):
        return cast(Family, registry.find(KIND, spec)), []
    families = [registry.find(KIND, known) for known in backbone_names()]
    for family in families:
        if isinstance(family, _Listing) and spec in family.KNOWN:
            return cast(Family, family), [spec]
    for family in families:
        if isinstance(family, _Accepting) and family.accepts(spec):
            return cast(Family, family), [spec]
    raise UsageError(
        f"{unknown('backbone', spec, backbone_names())} (or give a CLAP hub id, a folder "
        "with a CLAP model, or an npz of stored embeddings)"
    )
