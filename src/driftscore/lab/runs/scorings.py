"""Which scorings a grid's rules stand for: each rule with every setting that changes its head.

A rule says itself what it needs, and that decides which axes of a grid apply to it: `betas` if it
has the setting `beta`; `packs` if it reads the noisy prompts; `directions` and `references` if it
reads the drifts; the noise corpus if it is given noise recordings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product

from driftscore import registry
from driftscore.lab.conditions import Scoring
from driftscore.rules import KIND, Needs, Rule, find_rule

Value = str | int | float
GridAxes = Mapping[str, Sequence[Value]]


@dataclass(frozen=True)
class Facts:
    """Digests of what the names of a grid stand for, and clip counts; empty before the check.

    `data` and `clips` are by "dataset/limit", the others by name.
    """

    data: Mapping[str, str] = field(default_factory=dict)
    noise: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    packs: Mapping[str, str] = field(default_factory=dict)
    clips: Mapping[str, int] = field(default_factory=dict)
    calibrations: Mapping[str, str] = field(default_factory=dict)
    """By backbone; empty for one that comes without a calibration."""
    hours: Mapping[str, float] = field(default_factory=dict)
    """Of timed datasets, by "dataset/limit"."""


def split_name(name: str) -> tuple[str, str]:
    """Return the rule and the variant that "rule", "rule:variant" or "module:function" names."""
    rule, _, variant = name.rpartition(":")
    return (rule, variant) if rule and registry.has(KIND, rule) else (name, "")


@lru_cache(maxsize=256)
def rule_of(name: str) -> Rule:
    """Return a rule by its name, looked up once per process."""
    return find_rule(name)


def needs_of(scoring: Scoring) -> Needs:
    """Return what the rule of a scoring reads besides the clean prototypes."""
    return rule_of(scoring.rule).needs


def supplied_setting(scoring: Scoring) -> str:
    """Return the setting that the lab supplies to a variant; empty for the rule itself."""
    if not scoring.variant:
        return ""
    return rule_of(scoring.rule).variant(scoring.variant).setting


def uses_calibration(scoring: Scoring) -> bool:
    """Return whether a scoring needs the calibration of its backbone."""
    return bool(needs_of(scoring) & Needs.CALIBRATION) or supplied_setting(scoring) == "calibration"


def calibrated(scorings: Sequence[Scoring], backbone: str, facts: Facts) -> list[Scoring]:
    """Return the scorings that apply to a backbone, with the digest of its calibration."""
    digest = facts.calibrations.get(backbone)
    return [
        replace(scoring, calibration=digest or "") if uses_calibration(scoring) else scoring
        for scoring in scorings
        if digest != "" or not uses_calibration(scoring)
    ]


def needs_clean_pool(scoring: Scoring) -> bool:
    """Return whether a scoring draws from the clean clips of the dataset."""
    return bool(needs_of(scoring) & Needs.POOL) and supplied_setting(scoring) != "pool"


def scorings_of(axes: GridAxes, noise: str | None, facts: Facts) -> list[Scoring]:
    """Return the scorings of a condition with this noise; None: clean.

    On clean clips a rule that is given noise gets that of each corpus of the grid, and neither
    rules that need a background apply nor variants that are given something of the noisy clips.
    """
    found: dict[Scoring, None] = {}
    for name in axes["rules"]:
        rule, variant = split_name(str(name))
        found_rule = rule_of(rule)
        given = found_rule.variant(variant).setting if variant else ""
        of_noise = found_rule.needs & Needs.BACKGROUND or given in ("background", "pool")
        if noise is None and of_noise:
            continue
        found |= dict.fromkeys(_settings(rule, variant, axes, noise, facts))
    return list(found)


def _settings(
    name: str, variant: str, axes: GridAxes, noise: str | None, facts: Facts
) -> list[Scoring]:
    """Return a rule with every combination of the settings that apply to it."""
    rule = rule_of(name)
    drifts = bool(rule.needs & Needs.DRIFTS)
    corpora = ([noise] if noise else axes["noises"]) if rule.needs & Needs.NOISE else [None]
    combinations = product(
        axes["betas"] if "beta" in rule.parameters else [None],
        axes["packs"] if rule.needs.noisy_prompts else [None],
        axes["directions"] if drifts else [None],
        axes["references"] if drifts else [None],
        corpora,
    )
    return [
        Scoring(
            name,
            variant,
            None if beta is None else float(beta),
            _text(pack),
            facts.packs.get(str(pack), ""),
            _text(direction),
            _text(reference),
            _text(corpus),
            facts.noise.get(str(corpus), ""),
        )
        for beta, pack, direction, reference, corpus in combinations
    ]


def _text(value: Value | None) -> str | None:
    return None if value is None else str(value)
