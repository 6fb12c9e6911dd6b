"""Audio-text models, one family per package, found by name or by what a user points at.

Comes in: samples and texts. Goes out: unit rows of one space. May import: `audio`, `storage`,
`system`, `errors`.

A family can also come from an entry point of the group `driftscore.backbones`. Heavy libraries are
imported only where they are used.
"""

import inspect
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Protocol, cast

import numpy as np

from driftscore.audio.recordings import Audio
from driftscore.backbones.devices import AUTO, CPU, device_name, split_runtime
from driftscore.backbones.protocol import Backbone, Features, Named
from driftscore.backbones.vectors import Matrix, Vector, lengths, matrix
from driftscore.errors import MismatchError, UsageError, unknown
from driftscore.system import plugins as registry

__all__ = ["MINIMAL", "Backbone", "Family", "Features", "MinimalBackbone", "Named",
           "backbone_names", "check_backbone", "check_model", "find_family",
           "load_backbone"]  # fmt: skip

KIND = registry.Kind("backbone", __name__, "load")
DEFAULT_BACKBONE = "mini"
DEFAULT_RUNTIME = "auto"


class Family(Protocol):
    """A module, or an object, that loads the models of one family.

    It may also define `accepts(spec) -> bool`, and `KNOWN`, hub ids that are its models whichever
    other family would accept them.
    """

    def load(self, *arguments: str, **options: object) -> Backbone:
        """Load a model; `arguments` is empty, or the name, folder or file that was asked for."""


class MinimalBackbone(Protocol):
    """The least that a model needs; see `Backbone` for what each member is."""

    name: str
    fingerprint: str
    dim: int
    rate: int
    seconds: float

    def embed_audio(self, clips: Sequence[Audio]) -> Matrix:
        """Return one unit row per clip of at most `seconds`."""

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text."""


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


MINIMAL = ("name", "fingerprint", "dim", "rate", "seconds", "embed_audio", "embed_text")
"""What a model must have; `Backbone` has defaults for everything else."""


class AdaptedModel(Backbone):
    """A model that has `MINIMAL`, with the defaults of `Backbone` for what it does not define."""

    def __init__(self, model: MinimalBackbone) -> None:
        self._model = model
        self.name, self.fingerprint, self.dim = model.name, model.fingerprint, model.dim
        self.rate, self.seconds = model.rate, model.seconds
        for name in Backbone.__annotations__:  # a scale, a calibration and so on, if it has them
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))

    def encode(self, features: Features) -> Vector:
        """Return the unit embedding of one window, whose features are its samples."""
        return self.embed_audio([Audio(features, self.rate)])[0]

    def embed_audio(self, clips: Sequence[Audio]) -> Matrix:
        """Return one unit row per clip."""
        return self._checked(self._model.embed_audio(clips), len(clips), "embed_audio")

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text."""
        return self._checked(self._model.embed_text(texts), len(texts), "embed_text")

    @property
    def cache_key(self) -> str:
        """The key of this model's vectors in a cache."""
        return str(getattr(self._model, "cache_key", self.fingerprint))

    def _checked(self, rows: Matrix, count: int, function: str) -> Matrix:
        what = f"{function} of {self.name}"
        rows = matrix(rows, what=what)
        if rows.shape != (count, self.dim):
            raise MismatchError(
                f"{what} returned shape {rows.shape} for {count}; expected ({count}, {self.dim})"
            )
        if not np.allclose(lengths(rows), 1, atol=0.01):
            raise UsageError(f"{what} must return rows of length one; divide each by its length")
        return rows


def check_backbone(model: object) -> Backbone:
    """Return a loaded model; one that has only `MINIMAL` gets the defaults of `Backbone`."""
    if isinstance(model, Backbone):
        return model
    if missing := [name for name in MINIMAL if not hasattr(model, name)]:
        raise UsageError(
            f"{type(model).__name__} is not a backbone: it lacks {', '.join(missing)}; a model has "
            f"{', '.join(MINIMAL)}, or subclasses driftscore.Backbone"
        )
    return AdaptedModel(cast(MinimalBackbone, model))


def backbone_names() -> tuple[str, ...]:
    """Return the names of the model families: ours and those of entry points."""
    return registry.names(KIND)


def load_backbone(
    spec: str | PathLike[str] = DEFAULT_BACKBONE,
    *,
    runtime: str | None = None,
    device: object = None,
    batch_size: int | None = None,
    **options: object,
) -> Backbone:
    """Load a model by its name, or by a hub id, a folder or a file that a family accepts.

    "module:attribute" is a family, a class or function that returns a model, or a model. `runtime`
    chooses what a CLAP runs in, and may name a device as well, as in "torch:cuda:1"; `device` and
    `batch_size` say where and in how large batches. None and "auto" leave the choice to the family.
    """
    runtime, named = split_runtime(runtime)
    place = named if device is None else device_name(device)
    name = fspath(spec)
    family, arguments = find_family(name)
    load = getattr(family, "load", family)
    if not callable(load):
        return check_backbone(family)
    if runtime not in (None, DEFAULT_RUNTIME):
        options["runtime"] = runtime
    signature = inspect.signature(load)
    if batch_size is not None and "batch_size" in signature.parameters:  # else one by one
        options["batch_size"] = batch_size
    if place != AUTO and "device" in signature.parameters:
        options["device"] = place
    elif place not in (AUTO, CPU):
        raise UsageError(f"{name} runs on the CPU only, not on {place}")
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        if "runtime" in options:
            raise UsageError(
                f"Only CLAP models have a choice of runtime; {name} has one"
            ) from error
        raise UsageError(f"The backbone {name!r} cannot be loaded like this: {error}") from error
    return check_backbone(load(*arguments, **options))


def find_family(spec: str) -> tuple[Family, list[str]]:
    """Return the family that a user means, and what its `load` is called with; load nothing."""
    name, _, rest = spec.partition(":")
    if rest and name in backbone_names():
        return cast(Family, registry.find(KIND, name)), [rest]
    if registry.has(KIND, spec):
        return cast(Family, registry.find(KIND, spec)), []
    families: list[Any] = [registry.find(KIND, name) for name in backbone_names()]
    for family in families:
        if spec in getattr(family, "KNOWN", ()):
            return family, [spec]
    for family in families:
        if hasattr(family, "accepts") and family.accepts(spec):
            return family, [spec]
    raise UsageError(
        f"{unknown('backbone', spec, backbone_names())} (or give a CLAP hub id, a folder "
        "with a CLAP model, or an npz of stored embeddings)"
    )
