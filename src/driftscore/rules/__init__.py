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
from driftscore.calibration import Calibration, standardise
from driftscore.errors import MismatchError, UsageError, unknown
from driftscore.head import Head
from driftscore.prompts import texts_digest
from driftscore.rules.protocol import Compile, Needs, Rule, RuleModule, Variant, describe_rule
from driftscore.settings import DEFAULT_PRESET, Preset, load_preset
from driftscore.textcache import TextCache, TextEncoder
from driftscore.vectors import Matrix, matrix

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["Compile", "Needs", "Rule", "RuleModule", "Variant", "choose_rule", "compile_head",
           "find_rule", "rule_names"]  # fmt: skip

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
    calibration: Calibration | None = None,
    standardised: bool = False,
    **settings: object,
) -> Head:
    """Compile a bank to a head by a rule; settings that are not given are the preset's.

    `backbone` is needed only by rules that encode further text, and must be the bank's own. A
    `calibration` is needed by the rules that use it, and to standardise the scores.
    """
    found = find_rule(rule)
    return compile_rule(
        found,
        bank,
        settings,
        backbone=backbone,
        preset=preset,
        cache=cache,
        calibration=calibration,
        standardised=standardised,
    )


def compile_rule(
    rule: Rule,
    bank: ClassBank,
    settings: Mapping[str, object],
    *,
    backbone: Backbone | None = None,
    preset: "str | PathLike[str] | Preset" = DEFAULT_PRESET,
    cache: TextCache | None = None,
    calibration: Calibration | None = None,
    standardised: bool = False,
) -> Head:
    """Compile a bank to a head: `compile_head` with the settings as one mapping."""
    chosen = load_preset(preset)
    if rule.needs.noisy_prompts and not bank.has_drifts:
        raise UsageError(
            f"The rule {rule.name!r} needs the noisy prompts, which this bank was built without; "
            "build it with drifts=True"
        )
    values = chosen.rule_settings(rule.name) | dict(settings)
    check_settings(rule, values)
    _check_calibration(rule, bank, calibration, standardised)
    calibrated = dict(calibration.settings.get(rule.name, {})) if calibration else {}
    arguments = _arguments(rule, bank, calibrated | values)
    supplied: dict[str, object] = {}
    if "text" in rule.parameters:
        supplied["text"] = _encoder(bank, rule, backbone, cache)
    if "calibration" in rule.parameters:
        supplied["calibration"] = calibration
    head = rule.compile(bank, **arguments, **supplied)
    if not isinstance(head, Head):
        raise UsageError(f"The rule {rule.name!r} must return a Head, got {type(head).__name__}")
    head = replace(head, made_by=_record(rule, chosen, bank, arguments, calibration))
    return standardise(head, calibration) if standardised and calibration else head


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


def _check_calibration(
    rule: Rule, bank: ClassBank, calibration: Calibration | None, standardised: bool
) -> None:
    if calibration is not None:
        if (maker := bank.made_by.get("fingerprint")) != calibration.made_by.get("fingerprint"):
            raise MismatchError(
                f"The calibration was made with {calibration.made_by.get('backbone')}, the bank "
                f"with another model ({str(maker)[:24]}); make a calibration for this model with "
                "`driftscore calibrate`"
            )
    elif Needs.CALIBRATION in rule.needs or standardised:
        what = f"The rule {rule.name!r}" if Needs.CALIBRATION in rule.needs else "Standardising"
        raise UsageError(
            f"{what} needs a calibration, and {bank.made_by.get('backbone')} comes with none; "
            "make one with `driftscore calibrate`"
        )


def choose_rule(calibration: Calibration | None) -> tuple[str, str]:
    """Return the rule that works best on a backbone, and why in words."""
    if calibration is None:
        return "das", "no calibration exists for this model, so DAS as in the paper"
    if not calibration.default_rule:
        return "cosine", "the calibration recommends no rule"
    why = str(calibration.made_by.get("default_why", "chosen when the calibration was made"))
    return calibration.default_rule, why


def _record(
    rule: Rule,
    preset: Preset,
    bank: ClassBank,
    arguments: Mapping[str, object],
    calibration: Calibration | None,
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
        "prompts_sha256": _prompts_digest(rule, bank, arguments),
        **({"calibration": calibration.digest} if calibration is not None else {}),
    }


def _prompts_digest(rule: Rule, bank: ClassBank, arguments: Mapping[str, object]) -> str | None:
    """Return a digest of all texts that a head is made of; None for a bank that has none."""
    own = bank.made_by.get("texts_sha256")
    if own is None or Needs.TEXT not in rule.needs or rule.texts is None:
        return None if own is None else str(own)
    return texts_digest([str(own), *rule.further_texts(bank.labels, arguments)])


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
    if _is_rows(parameter):
        rows = matrix(value, what=where)  # type: ignore[arg-type]
        if rows.shape[1] != bank.dim:
            raise MismatchError(
                f"{where} has {rows.shape[1]} dimensions, the bank {bank.dim}: "
                "they come from different models"
            )
        return rows
    if parameter.annotation in (float, int, float | str):
        whole = parameter.annotation is int  # a count stays an integer: it is used as an index
        try:
            number = int(value) if whole else float(value)  # type: ignore[call-overload,arg-type]
        except (TypeError, ValueError, OverflowError):
            if parameter.annotation == float | str and isinstance(value, str):
                return value
            raise UsageError(f"{where} must be a number, got {value!r}") from None
        if not math.isfinite(number) or isinstance(value, bool):
            raise UsageError(f"{where} must be a finite number, got {value!r}")
        return number
    return value


def _is_rows(parameter: inspect.Parameter) -> bool:
    """Return whether a setting is rows of embeddings: by its type, else by its name."""
    untyped = parameter.annotation is inspect.Parameter.empty
    return parameter.annotation == Matrix or (untyped and parameter.name in EMBEDDINGS)


def _recorded(value: object) -> object:
    """Return a setting as JSON can hold it: rows of embeddings by their count and digest."""
    if isinstance(value, np.ndarray):
        return {"rows": len(value), "sha256": hashlib.sha256(value.tobytes()).hexdigest()}
    return value if isinstance(value, (bool, int, float, str)) else str(value)
