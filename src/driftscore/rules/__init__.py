"""Scoring rules, one per file: each compiles a class bank to a head.

`protocol.py` says what a rule's file defines. A rule can also be a function, an entry point of the
group `driftscore.rules`, or "module:function".
"""

import hashlib
import inspect
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from driftscore import registry
from driftscore.backbones import Backbone, check_model
from driftscore.bank import ClassBank
from driftscore.errors import MismatchError, UsageError, unknown
from driftscore.head import Head
from driftscore.rules.protocol import Compile, Needs, Rule, RuleModule, Variant, describe_rule
from driftscore.settings import DEFAULT_PRESET, Preset, load_preset
from driftscore.textcache import TextCache, TextEncoder
from driftscore.vectors import Matrix, matrix

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["Compile", "Needs", "Rule", "RuleModule", "Variant", "compile_head", "find_rule",
           "rule_names"]  # fmt: skip

KIND = registry.Kind("rule", __name__, "compile")
DEFAULT_RULE = "das"

EMBEDDINGS = {
    "noise": "embeddings of noise-only recordings",
    "pool": "embeddings of unlabelled clips to draw prototypes from",
    "background": "the embedding of the background that was mixed into the clip",
}
"""Parameters of rules that are rows of embeddings, and what they are."""


def rule_names() -> tuple[str, ...]:
    """Return the names of all rules: ours and those of entry points."""
    return registry.names(KIND)


def find_rule(rule: str | Compile | RuleModule | Rule) -> Rule:
    """Return a rule by its name, as "module:function", or from a function or an object."""
    if isinstance(rule, Rule):
        return rule
    if isinstance(rule, str):
        return describe_rule(rule, registry.find(KIND, rule))
    name = getattr(rule, "__name__", type(rule).__name__)
    return describe_rule(str(name).rpartition(".")[2], rule)


def compile_head(
    bank: ClassBank,
    rule: str | Compile | RuleModule | Rule = DEFAULT_RULE,
    *,
    backbone: Backbone | None = None,
    preset: "str | PathLike[str] | Preset" = DEFAULT_PRESET,
    cache: TextCache | None = None,
    **settings: object,
) -> Head:
    """Compile a bank to a head by a rule; settings that are not given are the preset's.

    `backbone` is needed only by rules that encode further text, and must be the bank's own.
    """
    found, chosen = find_rule(rule), load_preset(preset)
    if found.needs.noisy_prompts and not bank.has_drifts:
        raise UsageError(
            f"The rule {found.name!r} needs the noisy prompts, which this bank was built without; "
            "build it with drifts=True"
        )
    check_settings(found, settings)
    arguments = _arguments(found, bank, chosen.rule_settings(found.name) | settings)
    text = {"text": _encoder(bank, found, backbone, cache)} if "text" in found.parameters else {}
    head = found.compile(bank, **arguments, **text)
    if not isinstance(head, Head):
        raise UsageError(f"The rule {found.name!r} must return a Head, got {type(head).__name__}")
    return replace(head, made_by=_record(found, chosen, bank, arguments))


def check_settings(rule: Rule, names: Iterable[str]) -> None:
    """Refuse the name of a setting that the rule does not have."""
    for name in names:
        if name not in rule.settings:
            raise UsageError(
                f"The rule {rule.name!r}: {unknown('setting', name, rule.settings or ['(none)'])}"
            )


def _arguments(rule: Rule, bank: ClassBank, settings: Mapping[str, object]) -> dict[str, object]:
    """Return the checked keyword arguments of a rule, without those left at their default."""
    arguments: dict[str, object] = {}
    for name, parameter in rule.settings.items():
        if name in settings:
            arguments[name] = _checked(bank, rule, parameter, settings[name])
        elif parameter.default is inspect.Parameter.empty:
            what = EMBEDDINGS.get(name, "a setting without a default")
            raise UsageError(f"The rule {rule.name!r} needs {name}: {what}")
    return arguments


def _record(
    rule: Rule, preset: Preset, bank: ClassBank, arguments: Mapping[str, object]
) -> dict[str, object]:
    """Return everything that made a head: the rule, its settings and the bank's own record."""
    settings = {
        name: _recorded(arguments.get(name, parameter.default))
        for name, parameter in rule.settings.items()
    }
    return {
        "rule": rule.name,
        "preset": preset.name,
        "settings": settings,
        "backbone": bank.made_by.get("backbone"),
        "fingerprint": bank.made_by.get("fingerprint"),
        "bank": dict(bank.made_by),
    }


def _encoder(
    bank: ClassBank, rule: Rule, backbone: Backbone | None, cache: TextCache | None
) -> TextEncoder:
    if backbone is None:
        raise UsageError(f"The rule {rule.name!r} encodes further text: pass the bank's backbone")
    check_model(bank.made_by, backbone, what="The bank")
    return TextEncoder(backbone, cache=cache)


def _checked(bank: ClassBank, rule: Rule, parameter: inspect.Parameter, value: object) -> object:
    """Return a setting as its annotation requires, or say what is wrong with it."""
    where = f"{parameter.name} of the rule {rule.name!r}"
    if parameter.annotation == Matrix:
        rows = matrix(value, what=where)  # type: ignore[arg-type]
        if rows.shape[1] != bank.dim:
            raise MismatchError(
                f"{where} has {rows.shape[1]} dimensions, the bank {bank.dim}: "
                "they come from different models"
            )
        return rows
    if parameter.annotation in (float, int):
        try:
            number: float = parameter.annotation(value)
        except (TypeError, ValueError, OverflowError):
            raise UsageError(f"{where} must be a number, got {value!r}") from None
        if not math.isfinite(number) or isinstance(value, bool):
            raise UsageError(f"{where} must be a finite number, got {value!r}")
        return number
    return value


def _recorded(value: object) -> object:
    """Return a setting as JSON can hold it: rows of embeddings by their count and digest."""
    if isinstance(value, np.ndarray):
        return {"rows": len(value), "sha256": hashlib.sha256(value.tobytes()).hexdigest()}
    return value if isinstance(value, (bool, int, float, str)) else str(value)
