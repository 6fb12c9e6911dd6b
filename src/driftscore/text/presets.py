"""Settings as values: templates, how prompts are composed, and presets that name such settings.

Every default is written once: those of the prompts in `PromptSettings`, those of a rule in the
signature of its `compile`. A preset holds only what differs from them: `default` is ours, `das2026`
the paper's; a preset of one's own is a TOML file in the form of `presets.toml`.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path

from msgspec import Struct

from driftscore.errors import FormatError, UsageError, unknown
from driftscore.storage.checked import FilledText, Text, decode, parse
from driftscore.storage.files import read_text

AUTO = "auto"
"""In place of a rule: that of the preset, or the best one for the backbone; in place of a
calibration: the one that comes with the backbone."""
DEFAULT_PRESET = "default"
REFERENCES = ("prompt", "matched")
DIRECTIONS = ("mean", "svd")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def check_template(template: str, *, needs: str, may: str = "") -> None:
    """Refuse a template without every placeholder in `needs`, or with one outside both sets."""
    names = set(_PLACEHOLDER.findall(template))
    if missing := [name for name in needs if name not in names and name.upper() not in names]:
        raise UsageError(
            f"The template {template!r} lacks its placeholder {{{missing[0]}}}; "
            "write it as in 'the sound of {c}'"
        )
    allowed = {*needs, *may, *("P" if "p" in needs + may else "")}
    if strange := sorted(names - allowed):
        raise UsageError(f"The template {template!r} has an unknown placeholder {{{strange[0]}}}")


def fill(template: str, *, c: str = "", p: str = "") -> str:
    """Put the words of a label and a noise phrase into a template."""
    values = {"c": c, "p": p, "P": p[:1].upper() + p[1:]}
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


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
            if (value := getattr(self, name)) not in choices:
                raise UsageError(f"{name} must be {' or '.join(choices)}, got {value!r}")
        check_template(self.prompt, needs="c")

    def changed(self, **changes: object) -> "PromptSettings":
        """Return a copy with other values; None leaves a value as it is."""
        names = [field.name for field in fields(self)]
        for name in changes:
            if name not in names:
                raise unknown("prompt setting", name, names)
        changes = {name: value for name, value in changes.items() if value is not None}
        return replace(self, **changes)  # type: ignore[arg-type]


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


class _PresetTable(Struct, forbid_unknown_fields=True):
    """A preset as it is written in a file."""

    title: Text = ""
    rule: FilledText = "das"
    standardised: bool = False
    prompts: dict[str, object] = {}
    rules: dict[str, dict[str, object]] = {}


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets that come with driftscore."""
    return tuple(_shipped())


def load_preset(preset: "str | PathLike[str] | Preset" = DEFAULT_PRESET) -> Preset:
    """Return a preset by its name, or one of a user's own by the path of its TOML file."""
    if isinstance(preset, Preset):
        return preset
    name = str(preset)
    if name in _shipped():
        return _shipped()[name]
    if not name.endswith(".toml"):
        raise unknown("preset", name, _shipped())
    where = f"The preset file {name}"
    content = parse(read_text(Path(name), "preset"), where=where)
    tables = decode(content, dict[str, _PresetTable], where=where)
    if len(tables) != 1:
        raise FormatError(f"{where} must hold one preset, got {len(tables)}")
    [(name, table)] = tables.items()
    try:
        prompts = PromptSettings().changed(**table.prompts)
    except UsageError as error:
        raise FormatError(f"{where}: {name}.prompts: {error}") from error
    return Preset(name, table.title or name, prompts, table.rules, table.rule, table.standardised)


@cache
def _shipped() -> dict[str, Preset]:
    """Return the presets of our own file, which the tests check."""
    tables = tomllib.loads((files("driftscore.text") / "presets.toml").read_text(encoding="utf-8"))
    for table in tables.values():
        table["prompts"] = PromptSettings(**table.get("prompts", {}))
    return {name: Preset(name, **table) for name, table in tables.items()}
