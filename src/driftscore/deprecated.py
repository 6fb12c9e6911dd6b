"""Parameters of `Classifier` in earlier versions: accepted with a warning, or refused in words.

What is deprecated here goes in the next release.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping

from driftscore.errors import UsageError, unknown

MOVED = {
    "runtime": "backbone=Embedder(..., runtime=...)",
    "engine": "backbone=Embedder(..., engine=...)",
    "address": "backbone=Embedder(..., address=...)",
    "threads": "backbone=Embedder(..., threads=...)",
    "audio_cache": "backbone=Embedder(..., audio_cache=...)",
    "cache": "backbone=Embedder(..., text_cache=...)",
    "noise": "settings={'noise': ...}",
    "pool": "settings={'pool': ...}",
    **{
        name: f"prompts=PromptSettings({name}=...)"
        for name in ("prompt", "pack", "templates", "reference", "direction", "skip_same")
    },
}
"""Parameters of earlier versions, and where they are now."""


def with_deprecated(
    settings: Mapping[str, object] | None,
    deprecated: Mapping[str, object],
    known: Callable[[], Iterable[str]],
) -> Mapping[str, object] | None:
    """Return the settings, with `beta` if it was given in the way of version 0.1."""
    for name in deprecated:
        if name in MOVED:
            raise UsageError(f"Classifier has no parameter {name!r} any more: use {MOVED[name]}")
        if name != "beta":
            raise unknown("parameter of Classifier", name, known())
    if "beta" not in deprecated:
        return settings
    warnings.warn(
        "Classifier(beta=...) is deprecated; use Classifier(settings={'beta': ...})",
        DeprecationWarning,
        stacklevel=3,
    )
    return {**(settings or {}), **deprecated}
