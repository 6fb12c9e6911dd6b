"""Settings as values: how prompts are composed, and presets that name such settings.

Every default is written once: those of the prompts in `PromptSettings`, those of a rule in the
signature of its `compile`. A preset holds only what differs from them: `default` is ours, `das2026`
the paper's; a preset of one's own is a TOML file in the form of `presets.toml`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, cast

from driftscore.errors import FormatError, UsageError, unknown
from driftscore.reading import read_text
from driftscore.schema import (
    anything,
    choice,
    filled_text,
    flag,
    mapping,
    parse_toml,
    table,
    text,
)

AUTO = "auto"
"""In place of the name of a rule: that of the preset, or the best one for the backbone."""
DEFAULT_PRESET = "default"
REFERENCES = ("prompt", "matched")
DIRECTIONS = ("mean", "svd")


@dataclass(frozen=True)
class PromptSettings:
    """How the prompts of a label are composed and its drift is computed.

    Attributes:
        prompt: the clean prompt, with {c} in place of the label's words.
        pack: the noise phrases: the id of a pack, or the path of a TOML file.
        templates: the composition templates: the id of a pack, or the path of a TOML file.
        reference: what a drift is measured from: the clean "prompt", or the "matched" sentence
            of the template without its noise part.
        direction: the "mean" of a label's drifts, or their top singular vector ("svd").
        skip_same: leave out a phrase that equals the label ("rain with rain").

    """

    prompt: str = "the sound of {c}"
    pack: str = "das52"
    templates: str = "das4"
    reference: str = "prompt"
    direction: str = "mean"
    skip_same: bool = False

    def __post_init__(self) -> None:
        for name in ("prompt", "pack", "templates", "reference", "direction"):
            value = getattr(self, name)
            if isinstance(value, PathLike):
                object.__setattr__(self, name, str(value))
            elif not isinstance(value, str):
                raise UsageError(f"{name} must be a text, got {value!r}")
        if not isinstance(self.skip_same, bool):
            raise UsageError(f"skip_same must be true or false, got {self.skip_same!r}")
        for name, choices in (("reference", REFERENCES), ("direction", DIRECTIONS)):
            if getattr(self, name) not in choices:
                given = getattr(self, name)
                raise UsageError(f"{name} must be {' or '.join(choices)}, got {given!r}")

    def changed(self, **changes: object) -> "PromptSettings":
        """Return a copy with other values; None leaves a value as it is."""
        given = {name: value for name, value in changes.items() if value is not None}
        for name in given:
            if name not in _PROMPT_FIELDS:
                raise unknown("prompt setting", name, _PROMPT_FIELDS)
        return replace(self, **given)  # type: ignore[arg-type]


_PROMPT_FIELDS = tuple(field.name for field in fields(PromptSettings))


@dataclass(frozen=True)
class Preset:
    """A paper's settings by name: of the prompts, and of each rule that it changes."""

    name: str
    title: str
    prompts: PromptSettings = PromptSettings()
    rules: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    rule: str = "das"
    """The rule that is used if none is named; "auto" is the best one for the backbone."""
    standardised: bool = False
    """Whether scores are standardised where a calibration exists."""

    def rule_settings(self, rule: str) -> dict[str, object]:
        """Return the settings of a rule that this preset fixes."""
        return dict(self.rules.get(rule, {}))


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets that come with driftscore."""
    return tuple(_shipped())


def load_preset(preset: "str | PathLike[str] | Preset" = DEFAULT_PRESET) -> Preset:
    """Return a preset by its name, or one of a user's own by the path of its TOML file."""
    if isinstance(preset, Preset):
        return preset
    given = str(preset)
    if given in _shipped():
        return _shipped()[given]
    if not given.endswith(".toml"):
        raise unknown("preset", given, _shipped())
    found = _parse(read_text(Path(given), "preset"), where=given)
    if len(found) != 1:
        raise FormatError(f"The preset file {given} must hold one preset, got {len(found)}")
    return next(iter(found.values()))


@cache
def _shipped() -> dict[str, Preset]:
    written = (files("driftscore") / "presets.toml").read_text(encoding="utf-8")
    return _parse(written, where="presets.toml")


_PROMPTS = table(
    optional={
        "prompt": filled_text,
        "pack": filled_text,
        "templates": filled_text,
        "reference": choice(*REFERENCES),
        "direction": choice(*DIRECTIONS),
        "skip_same": flag,
    }
)
_PRESET = table(
    optional={
        "title": text,
        "rule": filled_text,
        "standardised": flag,
        "prompts": _PROMPTS,
        "rules": mapping(mapping(anything)),
    }
)


def _parse(written: str, *, where: str) -> dict[str, Preset]:
    content = parse_toml(written, mapping(_PRESET), where=f"The preset file {where}")
    return {name: _preset(name, cast(dict[str, Any], one)) for name, one in content.items()}


def _preset(name: str, content: dict[str, Any]) -> Preset:
    """Return the preset of a table that was checked."""
    return Preset(
        name,
        content.get("title", name),
        PromptSettings().changed(**content.get("prompts", {})),
        content.get("rules", {}),
        content.get("rule", "das"),
        content.get("standardised", False),
    )
