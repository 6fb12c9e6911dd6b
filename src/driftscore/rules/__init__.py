"""Scoring rules, one a file: each compiles a class bank to a head.

A rule's file defines `compile(bank, *, ...) -> Head`. What it asks for by name is what it
gets: `text` is the backbone's text side, `noise` and `pool` are embeddings of clips, and
everything else is a setting with a default. A rule that reads the bank's noisy prompts (drifts,
radii, noisy_means) says so by `READS_DRIFTS = True`; for the others they are never encoded.
"""

import hashlib
import inspect
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from driftscore import plugins
from driftscore.backbones import Backbone, check_model
from driftscore.bank import ClassBank
from driftscore.errors import MismatchError, UsageError, unknown
from driftscore.head import Head
from driftscore.presets import DEFAULT, rule_settings
from driftscore.textcache import TextCache, TextEncoder
from driftscore.vectors import Matrix, matrix

EMBEDDINGS = {
    "noise": "embeddings of noise-only clips",
    "pool": "embeddings of unlabelled clips to draw prototypes from",
    "background": "the embedding of the very background that was mixed into the clip",
}
"""Parameters of rules that are rows of embeddings, and what they are."""


def rule_names() -> tuple[str, ...]:
    """Return the names of all rules."""
    return plugins.names(__name__, "compile")


def rule_parameters(rule: str) -> Mapping[str, inspect.Parameter]:
    """Return what a rule takes beside its bank, by name."""
    module = plugins.find(__name__, rule, entry="compile", kind="rule")
    return {
        name: parameter
        for name, parameter in inspect.signature(module.compile).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def reads_drifts(rule: str) -> bool:
    """Return whether a rule needs more of a bank than its clean prompts."""
    module = plugins.find(__name__, rule, entry="compile", kind="rule")
    return bool(getattr(module, "READS_DRIFTS", False))


def compile_head(
    bank: ClassBank,
    rule: str = "das",
    *,
    backbone: Backbone | None = None,
    preset: str = DEFAULT,
    cache: TextCache | None = None,
    **settings: Any,
) -> Head:
    """Compile a bank to a head by a rule; settings not given are the preset's.

    `backbone` is needed only by rules that encode further text, and must be the bank's own.
    """
    parameters = rule_parameters(rule)
    if "drifts" in bank.made_by and reads_drifts(rule):
        raise UsageError(
            f"The rule {rule!r} needs the noisy prompts, which this bank was built without; "
            "build it with drifts=True"
        )
    for name in settings:
        if name not in parameters or name == "text":
            known = [n for n in parameters if n != "text"] or ["(none)"]
            raise UsageError(f"The rule {rule!r}: {unknown('setting', name, known)}")
    chosen = rule_settings(preset, rule) | settings
    arguments: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if name == "text":
            arguments[name] = _encoder(bank, rule, backbone, cache)
        elif name in chosen:
            arguments[name] = _checked(bank, rule, parameter, chosen[name])
        elif parameter.default is inspect.Parameter.empty:
            what = EMBEDDINGS.get(name, "a setting without a default")
            raise UsageError(f"The rule {rule!r} needs {name}: {what}")
    head: Head = plugins.find(__name__, rule, entry="compile", kind="rule").compile(
        bank, **arguments
    )
    defaults = {n: p.default for n, p in parameters.items() if n != "text"}
    record = {name: _recorded(arguments.get(name, default)) for name, default in defaults.items()}
    made_by = {
        "rule": rule,
        "preset": preset,
        "settings": record,
        "backbone": bank.made_by.get("backbone"),
        "fingerprint": bank.made_by.get("fingerprint"),
        "bank": dict(bank.made_by),
    }
    return replace(head, made_by=made_by)


def _encoder(
    bank: ClassBank, rule: str, backbone: Backbone | None, cache: TextCache | None
) -> TextEncoder:
    if backbone is None:
        raise UsageError(f"The rule {rule!r} encodes further text: pass the bank's backbone")
    check_model(bank.made_by, backbone, what="The bank")
    return TextEncoder(backbone, cache=cache)


def _checked(bank: ClassBank, rule: str, parameter: inspect.Parameter, value: Any) -> Any:
    """Return a setting as its annotation says, or say what is wrong with it."""
    where = f"{parameter.name} of the rule {rule!r}"
    if parameter.annotation == Matrix:
        rows = matrix(value, what=where)
        if rows.shape[1] != bank.dim:
            raise MismatchError(
                f"{where} has {rows.shape[1]} dimensions, the bank {bank.dim}: "
                "they come from different models"
            )
        return rows
    if parameter.annotation in (float, int):
        try:
            number = parameter.annotation(value)
        except (TypeError, ValueError):
            raise UsageError(f"{where} must be a number, not {value!r}") from None
        if not math.isfinite(number) or isinstance(value, bool):
            raise UsageError(f"{where} must be a finite number, not {value!r}")
        return number
    return value


def _recorded(value: Any) -> Any:
    """Return a setting as JSON can keep it: rows of embeddings by their count and digest."""
    if isinstance(value, np.ndarray):
        return {"rows": len(value), "sha256": hashlib.sha256(value.tobytes()).hexdigest()}
    return value if isinstance(value, (bool, int, float, str)) else str(value)
