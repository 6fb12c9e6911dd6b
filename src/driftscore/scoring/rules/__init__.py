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

from driftscore.backbones import Backbone, check_model
from driftscore.backbones.vectors import Matrix, matrix
from driftscore.errors import MismatchError, UsageError, unknown
from driftscore.scoring.bank import ClassBank
from driftscore.scoring.calibration import Calibration, standardise
from driftscore.scoring.head import Head
from driftscore.scoring.rules.protocol import (
    NOISY_PROMPTS,
    SUPPLIED,
    Compile,
    Needs,
    Rule,
    RuleModule,
    Variant,
)
from driftscore.system import plugins as registry
from driftscore.text.cache import TextCache, TextEncoder
from driftscore.text.presets import DEFAULT_PRESET, Preset, load_preset
from driftscore.text.prompts import texts_digest

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["NOISY_PROMPTS", "Compile", "Needs", "Rule", "RuleModule", "Variant", "check_settings",
           "choose_rule", "compile_head", "find_rule", "rule_names"]  # fmt: skip

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
    plugin: object = rule
    if isinstance(rule, str):
        name, plugin = rule, registry.find(KIND, rule)
    else:
        name = str(getattr(rule, "__name__", type(rule).__name__)).rpartition(".")[2]
    compile_ = getattr(plugin, "compile", plugin)
    if not callable(compile_):
        raise UsageError(
            f"The rule {name!r} is neither a function nor a module that defines compile(bank, ...)"
        )
    try:
        signature = inspect.signature(compile_, eval_str=True)
    except (TypeError, ValueError, NameError) as error:
        raise UsageError(f"The parameters of the rule {name!r} cannot be read: {error}") from error
    empty = inspect.Parameter.empty
    keywords = [p for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
    needs = getattr(plugin, "NEEDS", None)
    if needs is None:
        needs = NOISY_PROMPTS  # a function that says nothing may read any part of the bank
        for parameter in keywords:
            # `background` in words is a setting, as an embedding it is supplied; what has a
            # default can be done without.
            if parameter.default is empty and parameter.annotation is not str:
                needs |= SUPPLIED.get(parameter.name, Needs.NOTHING)
    return Rule(
        name,
        registry.summary(plugin),
        compile_,
        needs,
        parameters={p.name: p for p in keywords},
        settings={p.name: p for p in keywords if p.name not in ("text", "calibration")},
        heading=str(getattr(plugin, "SHORT", name)),
        variants=tuple(getattr(plugin, "VARIANTS", ())),
        texts=getattr(plugin, "texts", None),
        standardised=getattr(plugin, "STANDARDISED", True),
    )


def compile_head(
    bank: ClassBank,
    rule: str | Compile | RuleModule | Rule = DEFAULT_RULE,
    values: Mapping[str, object] | None = None,
    *,
    backbone: Backbone | None = None,
    preset: "str | PathLike[str] | Preset" = DEFAULT_PRESET,
    cache: TextCache | None = None,
    calibration: Calibration | None = None,
    standardised: bool = False,
    **settings: object,
) -> Head:
    """Compile a bank to a head by a rule; settings that are not given are the preset's.

    Settings are given by name, or several as the mapping `values`. `backbone` is needed only by
    rules that encode further text, and must be the bank's own. A `calibration` is needed by the
    rules that use it, and to standardise the scores.
    """
    rule, preset, maker = find_rule(rule), load_preset(preset), bank.made_by.get("backbone")
    if rule.needs & NOISY_PROMPTS and not bank.has_drifts:
        raise UsageError(
            f"The rule {rule.name!r} needs the noisy prompts, which this bank was built without; "
            "build it with drifts=True"
        )
    chosen = {**preset.rules.get(rule.name, {}), **(values or {}), **settings}
    check_settings(rule, chosen)
    fingerprint = bank.made_by.get("fingerprint")
    if calibration is not None:
        measured_on = calibration.made_by.get("fingerprint")
        if calibration.dim != bank.dim or (measured_on and fingerprint != measured_on):
            raise MismatchError(
                f"The calibration was made with {calibration.made_by.get('backbone')}, the bank "
                f"with another model ({str(fingerprint)[:24]}); make a calibration for this model "
                "with `driftscore calibrate`"
            )
        chosen = {**calibration.settings.get(rule.name, {}), **chosen}
    elif Needs.CALIBRATION in rule.needs or standardised:
        what = f"The rule {rule.name!r}" if Needs.CALIBRATION in rule.needs else "Standardising"
        raise UsageError(
            f"{what} needs a calibration, and {maker} comes with none; make one with "
            "`driftscore calibrate`"
        )
    arguments: dict[str, object] = {}  # without those that are left at their default
    for name, parameter in rule.settings.items():
        if name in chosen:
            arguments[name] = _checked(bank, rule, parameter, chosen[name])
        elif parameter.default is inspect.Parameter.empty:
            what = EMBEDDINGS.get(name, "a setting without a default")
            raise UsageError(f"The rule {rule.name!r} needs {name}: {what}")
    supplied: dict[str, object] = {}
    if "text" in rule.parameters:
        if backbone is None:
            raise UsageError(
                f"The rule {rule.name!r} encodes further text: pass the bank's backbone"
            )
        check_model(bank.made_by, backbone, what="The bank")
        supplied["text"] = TextEncoder(backbone, cache=cache)
    if "calibration" in rule.parameters:
        supplied["calibration"] = calibration
    head = rule.compile(bank, **arguments, **supplied)
    if not isinstance(head, Head):
        raise UsageError(f"The rule {rule.name!r} must return a Head, got {type(head).__name__}")
    digest = bank.made_by.get("texts_sha256")  # of all texts that the head is made of
    if digest is not None and Needs.TEXT in rule.needs and rule.texts is not None:
        digest = texts_digest([str(digest), *rule.further_texts(bank.labels, arguments)])
    defaults = {name: parameter.default for name, parameter in rule.settings.items()}
    made_by = {
        "rule": rule.name,
        "preset": preset.name,
        "settings": {name: _recorded(value) for name, value in (defaults | arguments).items()},
        "backbone": maker,
        "fingerprint": fingerprint,
        "bank": dict(bank.made_by),
        "prompts_sha256": digest,
        **({"calibration": calibration.digest} if calibration is not None else {}),
    }
    head = replace(head, made_by=made_by)
    return standardise(head, calibration) if standardised and calibration else head


def check_settings(rule: Rule, names: Iterable[str]) -> None:
    """Refuse the name of a setting that the rule does not have."""
    for name in names:
        if name not in rule.settings:
            raise UsageError(
                f"The rule {rule.name!r}: {unknown('setting', name, rule.settings or ['(none)'])}"
            )


def choose_rule(calibration: Calibration | None) -> tuple[str, str]:
    """Return the rule that works best on a backbone, and why in words."""
    if calibration is None:
        return "das", "no calibration exists for this model, so DAS as in the paper"
    if not calibration.default_rule:
        return "cosine", "the calibration recommends no rule"
    why = str(calibration.made_by.get("default_why", "chosen when the calibration was made"))
    return calibration.default_rule, why


def _checked(bank: ClassBank, rule: Rule, parameter: inspect.Parameter, value: object) -> object:
    """Return a setting as its annotation requires, or say what is wrong with it."""
    where = f"{parameter.name} of the rule {rule.name!r}"
    untyped = parameter.annotation is inspect.Parameter.empty
    if parameter.annotation == Matrix or (untyped and parameter.name in EMBEDDINGS):
        rows = matrix(value, what=where)  # type: ignore[arg-type]
        if rows.shape[1] != bank.dim:
            raise MismatchError(
                f"{where} has {rows.shape[1]} dimensions, the bank {bank.dim}: "
                "they come from different models"
            )
        return rows
    if parameter.annotation in (float, int):
        whole = parameter.annotation is int  # a count stays an integer: it is used as an index
        try:
            number = int(value) if whole else float(value)  # type: ignore[call-overload,arg-type]
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
