"""Audio-text models behind one small protocol, one family a file, found by its name.

Rows are unit float32. A model file defines `load(...) -> Backbone`; it may define
`accepts(spec) -> bool` to be found by what a user points at (a hub id, a folder, a file).
Heavy libraries are imported inside the file that needs them, and only when it is used.
"""

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from driftscore import plugins
from driftscore.audio import Audio, Samples, Source, Window, sounding_windows
from driftscore.errors import MismatchError, UsageError, unknown
from driftscore.vectors import Matrix, Vector, unit_mean


@runtime_checkable
class Backbone(Protocol):
    """A model that puts sound and text into one space."""

    @property
    def name(self) -> str:
        """What people call the model."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever an embedding may change: weights, front end, text side."""

    @property
    def dim(self) -> int:
        """Length of an embedding."""

    @property
    def rate(self) -> int:
        """Sample rate that the model hears, in Hz."""

    @property
    def seconds(self) -> float:
        """Length of the model's window."""

    def embed_audio(self, clips: Sequence[Audio]) -> Matrix:
        """Return one unit row a clip, the same whatever else is in the list."""

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row a text, the same whatever else is in the list."""


@runtime_checkable
class Staged(Protocol):
    """A backbone whose work on one window has two parts, so that threads can share it.

    Optional: a model without it is asked one window at a time through `embed_audio`.
    `encode(features(samples))` has the bits of `embed_audio`.
    """

    @property
    def encoders(self) -> int:
        """How many windows may be encoded at once, from threads.

        As many as there are cores where one window is encoded on one thread (ONNX); one
        where the library spreads a window over the cores by itself (torch).
        """

    def features(self, samples: Samples) -> NDArray[np.float32]:
        """Return the front end's view (mel) of one window at the model's rate."""

    def encode(self, features: NDArray[np.float32]) -> Vector:
        """Return the unit row of one window's features."""


class Named(Protocol):
    """Anything that says which model it is, or was made by."""

    @property
    def name(self) -> str:
        """What people call the model."""

    @property
    def fingerprint(self) -> str:
        """The model's fingerprint, empty where it is not known."""


def check_model(made_by: Mapping[str, Any], model: Named, *, what: str) -> None:
    """Refuse, in words, to use with `model` what another one made.

    What carries no fingerprint came from elsewhere; its width is all that can be checked.
    """
    maker = made_by.get("fingerprint")
    if maker and model.fingerprint and maker != model.fingerprint:
        raise MismatchError(
            f"{what} was made with {made_by.get('backbone') or 'another model'} "
            f"({str(maker)[:24]}), not with {model.name or 'this one'} "
            f"({model.fingerprint[:24]}); embeddings of two models cannot be compared, "
            "so make it again with the same model"
        )


def cache_key(backbone: Backbone) -> str:
    """Return what a cache keeps a model's vectors by: its fingerprint, and its runtime if it says.

    Runtimes of one model agree but for the last bits, so their banks and heads may be mixed,
    but no number may depend on which of them happened to fill a cache.
    """
    return getattr(backbone, "cache_key", "") or backbone.fingerprint


def backbone_names() -> tuple[str, ...]:
    """Return the names of the model families."""
    return plugins.names(__name__, "load")


def load_backbone(spec: str | PathLike[str], **options: Any) -> Backbone:
    """Load a model by its name, or by a hub id, folder or file that a family accepts."""
    given = fspath(spec)
    family, _, rest = given.partition(":")
    if plugins.has(__name__, given, "load"):
        module, arguments = plugins.find(__name__, given, entry="load", kind="backbone"), []
    elif rest and plugins.has(__name__, family, "load"):
        module, arguments = plugins.find(__name__, family, entry="load", kind="backbone"), [rest]
    else:
        modules = [importlib.import_module(f"{__name__}.{n}") for n in backbone_names()]
        takers = [m for m in modules if hasattr(m, "accepts") and m.accepts(given)]
        if not takers:
            raise UsageError(
                f"{unknown('backbone', given, backbone_names())} (or give a CLAP hub id, a folder "
                "with a CLAP model, or an npz of stored embeddings)"
            )
        module, arguments = takers[0], [given]
    try:
        inspect.signature(module.load).bind(*arguments, **options)
    except TypeError as error:
        if "runtime" in options:
            raise UsageError(
                f"A runtime is chosen for CLAP models; {given} has one only"
            ) from error
        raise UsageError(f"The backbone {given!r} cannot be loaded so: {error}") from error
    backbone: Backbone = module.load(*arguments, **options)
    return backbone


def runtime_option(runtime: str | None) -> dict[str, str]:
    """Return the option of `load_backbone` that asks for a runtime; "auto" is what it does."""
    return {} if runtime in (None, "auto") else {"runtime": str(runtime)}


def embed_windows(source: Source, backbone: Backbone) -> Iterator[tuple[Window, Vector]]:
    """Yield each sounding window of a recording with its embedding, in order of time."""
    for window in sounding_windows(source, rate=backbone.rate, seconds=backbone.seconds):
        yield window, backbone.embed_audio([window.audio])[0]


def embed_recording(source: Source, backbone: Backbone) -> Vector:
    """Return the unit mean of a recording's windows, read as a stream."""
    return unit_mean(row for _, row in embed_windows(source, backbone))


def embed_clips(
    clips: Sequence[Audio], embed_window: Callable[[Samples], Vector], *, rate: int, seconds: float
) -> Matrix:
    """Embed each clip as the unit mean of its windows: what `embed_audio` is made of.

    One window a call keeps every shape fixed: a batched product picks its kernel by the
    batch's size, and a clip's last bits would depend on its neighbours.
    """
    return np.stack(
        [
            unit_mean(
                embed_window(window.audio.samples)
                for window in sounding_windows(clip, rate=rate, seconds=seconds)
            )
            for clip in clips
        ]
    )
