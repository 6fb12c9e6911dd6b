"""Settings as values: how prompts are composed, and presets that name such settings.

Every default is written once: those of the prompts in `PromptSettings`, those of a rule in the
signature of its `compile`. A preset holds only what differs from them: `default` is ours, `das2026`
the paper's; a preset of one's own is a TOML file in the form of `presets.toml`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path

from driftscore.errors import FormatError, UsageError, unknown

PAPER = "das2026"
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
    try:
        text = Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read the preset {given}: {error}") from error
    found = _parse(text, where=given)
    if len(found) != 1:
        raise FormatError(f"The preset file {given} must hold one preset, got {len(found)}")
    return next(iter(found.values()))


@cache
def _shipped() -> dict[str, Preset]:
    text = (files("driftscore") / "presets.toml").read_text(encoding="utf-8")
    return _parse(text, where="presets.toml")


def _parse(text: str, *, where: str) -> dict[str, Preset]:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"The preset file {where} is not valid TOML: {error}") from error
    return {name: _preset(name, content, where) for name, content in data.items()}


def _preset(name: str, content: object, where: str) -> Preset:
    if not isinstance(content, dict):
        raise FormatError(f"The preset file {where}: {name} must be a table, got {content!r}")
    for key in content:
        if key not in _KEYS:
            error = unknown("key", key, _KEYS)
            raise FormatError(f"The preset {name} in {where}: {error}")
    prompts, rules = content.get("prompts", {}), content.get("rules", {})
    tables = (prompts, rules, *(rules.values() if isinstance(rules, dict) else ()))
    if not all(isinstance(table, dict) for table in tables):
        raise FormatError(f"The preset {name} in {where}: prompts, rules and each rule are tables")
    try:
        settings = PromptSettings().changed(**prompts)
    except UsageError as error:
        raise FormatError(f"The preset {name} in {where}: {error}") from error
    rule, standardised = content.get("rule", "das"), content.get("standardised", False)
    if not isinstance(rule, str) or not isinstance(standardised, bool):
        raise FormatError(
            f"The preset {name} in {where}: rule is a name, standardised true or false"
        )
    return Preset(name, str(content.get("title", name)), settings, rules, rule, standardised)


_KEYS = ("title", "rule", "standardised", "prompts", "rules")
