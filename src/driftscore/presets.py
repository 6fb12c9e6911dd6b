"""The settings of two papers by name: `das2026` (the default) and `acevedo2025`."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from driftscore.errors import unknown

DEFAULT = "das2026"


@cache
def _presets() -> dict[str, dict[str, Any]]:
    return tomllib.loads((files("driftscore") / "presets.toml").read_text(encoding="utf-8"))


def preset_titles() -> dict[str, str]:
    """Return each preset's name with what it is."""
    return {name: preset["title"] for name, preset in _presets().items()}


def bank_settings(preset: str) -> dict[str, Any]:
    """Return the settings of `build_bank` that a preset fixes."""
    return dict(_find(preset)["bank"])


def rule_settings(preset: str, rule: str) -> dict[str, Any]:
    """Return the settings of a rule that a preset fixes."""
    return dict(_find(preset)["rules"].get(rule, {}))


def _find(preset: str) -> dict[str, Any]:
    if preset not in _presets():
        raise unknown("preset", preset, _presets())
    return _presets()[preset]
