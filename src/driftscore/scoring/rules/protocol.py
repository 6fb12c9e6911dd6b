"""What a scoring rule says about itself: what it needs, its heading, its variants.

A rule is a module (or any object) with

    SHORT = "ZS-A"                    column heading in tables; its name if it has none
    NEEDS = Needs.NOISE               what it reads besides the clean prototypes
    VARIANTS = (Variant(...),)        other ways in which a comparison runs it, if there are any
    compile(bank, *, ...) -> Head     the rule itself
    texts(labels, *, ...) -> list     the further texts that it encodes, if it needs TEXT

or a plain callable `f(bank, *, ...) -> Head`. Keyword parameters called `text`, `noise`, `pool`,
`background` and `calibration` are supplied by the caller; every other one is a setting with a
default.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from typing import Protocol

from driftscore.errors import UsageError
from driftscore.scoring.head import Head

Compile = Callable[..., Head]


class Needs(Flag):
    """What a rule reads besides the labels and their clean prototypes."""

    NOTHING = 0
    DRIFTS = auto()
    """`bank.drifts` and `bank.radii`: the noisy prompts, their reference and direction."""
    NOISY_MEANS = auto()
    """`bank.noisy_means`: the noisy prompts."""
    TEXT = auto()
    """The keyword `text`: the backbone's text encoder, for further sentences."""
    NOISE = auto()
    """The keyword `noise`: embeddings of noise-only recordings."""
    POOL = auto()
    """The keyword `pool`: embeddings of unlabelled clips."""
    BACKGROUND = auto()
    """The keyword `background`: the embedding of the background mixed into one clip."""
    CALIBRATION = auto()
    """The keyword `calibration`: how noise moves the embeddings of this backbone."""


NOISY_PROMPTS = Needs.DRIFTS | Needs.NOISY_MEANS
"""A rule that needs one of these needs the noisy prompts of each label."""
SUPPLIED = {
    "text": Needs.TEXT,
    "noise": Needs.NOISE,
    "pool": Needs.POOL,
    "background": Needs.BACKGROUND,
    "calibration": Needs.CALIBRATION,
}
"""Keyword parameters that the caller supplies; noise, pool and background are embeddings."""


@dataclass(frozen=True)
class Variant:
    """Another way in which the lab runs a rule, written "rule:variant" in a grid."""

    name: str
    heading: str
    summary: str
    """What the variant is given that the rule itself is not."""
    setting: str = ""
    """What the lab supplies: `background` in words, `pool`, or `calibration` to standardise."""
    preset: str = ""
    """The preset whose settings it uses; empty for the grid's own."""
    values: tuple[tuple[str, object], ...] = ()
    """Settings of the rule that make the variant."""


def standardised_variant(heading: str) -> Variant:
    """Return the variant of a rule whose scores are standardised: right for thresholds only."""
    return Variant(
        "standardised", f"{heading}, std.", "its scores are standardised by the calibration of the "
        "model, also where labels are compared", setting="calibration",
    )  # fmt: skip


class RuleModule(Protocol):
    """A module, or an object, that defines a rule."""

    compile: Compile


@dataclass(frozen=True)
class Rule:
    """A scoring rule with everything that the command, the tables and the lab ask about it."""

    name: str
    summary: str
    compile: Compile
    needs: Needs
    parameters: Mapping[str, inspect.Parameter]
    """The keyword parameters of `compile`: its settings and what it is supplied with."""
    settings: Mapping[str, inspect.Parameter]
    """The keyword parameters that a user may set, `noise` and `pool` among them."""
    heading: str
    variants: tuple[Variant, ...]
    texts: Callable[..., list[str]] | None
    """The further texts that the rule encodes, by its labels and settings."""
    standardised: bool
    """Whether its scores are standardised for thresholds where a calibration exists."""

    def further_texts(self, labels: Sequence[str], settings: Mapping[str, object]) -> list[str]:
        """Return the texts that the rule encodes besides those of the bank."""
        if Needs.TEXT not in self.needs:
            return []
        if self.texts is None:
            raise UsageError(
                f"The rule {self.name!r} encodes further texts but does not define "
                "texts(labels, ...), which lists them"
            )
        parameters = inspect.signature(self.texts).parameters
        return self.texts(labels, **{k: v for k, v in settings.items() if k in parameters})

    def variant(self, name: str) -> Variant:
        """Return the variant of this name."""
        for variant in self.variants:
            if variant.name == name:
                return variant
        names = ", ".join(variant.name for variant in self.variants) or "none"
        raise UsageError(f"The rule {self.name!r} has no variant {name!r}; it has: {names}")
