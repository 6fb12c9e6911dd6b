"""Which scorings a grid's rules stand for: each rule with every setting that changes its head.

A rule says itself what it needs, and that decides which axes of a grid apply to it: `betas` if it
has the setting `beta`; `packs` if it reads the noisy prompts; `directions` and `references` if it
reads the drifts; the noise corpus if it is given noise recordings; `examples` and `draws` if it
needs neither recordings nor a variant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product

from driftscore.lab.conditions import Scoring
from driftscore.scoring.rules import KIND, NOISY_PROMPTS, Needs, Rule, find_rule
from driftscore.system import plugins as registry
from driftscore.text.presets import PromptSettings, load_preset

Value = str | int | float
GridAxes = Mapping[str, Sequence[Value]]


@dataclass(frozen=True)
class Facts:
    """What the names of a grid stand for: digests and counts; empty before the check.

    `data`, `clips` and `hours` (of timed datasets) are by "dataset/limit", the others by name;
    `examples` is the dataset that the examples of each dataset come from, and its digest;
    `calibrations` is by backbone, and empty for one that comes without a calibration. `corpora` are
    the datasets and noises in words, `missing` is what a planned run would lack.
    """

    data: dict[str, str] = field(default_factory=dict)
    noise: dict[str, str] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    packs: dict[str, str] = field(default_factory=dict)
    clips: dict[str, int] = field(default_factory=dict)
    calibrations: dict[str, str] = field(default_factory=dict)
    hours: dict[str, float] = field(default_factory=dict)
    examples: dict[str, tuple[str, str]] = field(default_factory=dict)
    corpora: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


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
    rule = rule_of(scoring.rule)
    return rule.variant(scoring.variant).setting if scoring.variant else ""


def settings_of(scoring: Scoring) -> dict[str, object]:
    """Return the settings of a scoring's rule: its beta, and those of its variant."""
    settings: dict[str, object] = {} if scoring.beta is None else {"beta": scoring.beta}
    if scoring.variant:
        settings |= dict(rule_of(scoring.rule).variant(scoring.variant).values)
    return settings


def prompts_of(scoring: Scoring) -> PromptSettings:
    """Return how the prompts of a scoring are composed."""
    return load_preset().prompts.changed(
        pack=scoring.pack, direction=scoring.direction, reference=scoring.reference
    )


def uses_calibration(scoring: Scoring) -> bool:
    """Return whether a scoring needs the calibration of its backbone."""
    return bool(needs_of(scoring) & Needs.CALIBRATION) or supplied_setting(scoring) == "calibration"


def scorings_of(axes: GridAxes, noise: str | None, facts: Facts) -> list[Scoring]:
    """Return the scorings of a condition with this noise; None: clean.

    On clean clips a rule that is given noise gets that of each corpus of the grid, and neither
    rules that need a background apply nor variants that are given something of the noisy clips.
    """
    scorings: dict[Scoring, None] = {}
    for name in map(str, axes["rules"]):
        rule_name, variant = split_name(name)
        rule = rule_of(rule_name)
        supplied = rule.variant(variant).setting if variant else ""
        if noise is None and (rule.needs & Needs.BACKGROUND or supplied in ("background", "pool")):
            continue
        drifts = bool(rule.needs & Needs.DRIFTS)
        corpora = ([noise] if noise else axes["noises"]) if rule.needs & Needs.NOISE else [None]
        learns = not variant and not rule.needs & (Needs.NOISE | Needs.POOL | Needs.BACKGROUND)
        examples = [
            (int(count), int(draw))
            for count in (axes["examples"] if learns else [0])
            for draw in (axes["draws"] if count else [0])
        ]
        combinations = product(
            axes["betas"] if "beta" in rule.parameters else [None],
            axes["packs"] if rule.needs & NOISY_PROMPTS else [None],
            axes["directions"] if drifts else [None],
            axes["references"] if drifts else [None],
            corpora,
            examples,
        )
        for beta, *texts, (count, draw) in combinations:
            pack, direction, reference, corpus = (None if t is None else str(t) for t in texts)
            scoring = Scoring(
                rule_name, variant, None if beta is None else float(beta),
                pack, facts.packs.get(str(pack), ""), direction, reference,
                corpus, facts.noise.get(str(corpus), ""), examples=count, draw=draw,
            )  # fmt: skip
            scorings[scoring] = None
    return list(scorings)
