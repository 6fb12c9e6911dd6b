"""How rules are named, ordered and drawn in tables and figures: as they describe themselves.

A rule's heading and variants come from its own file, entry point or function, so that a new rule
appears everywhere by itself. Rules are ordered with the paper's columns first.
"""

from collections.abc import Iterable

from driftscore import registry
from driftscore.lab.conditions import Scoring
from driftscore.lab.report.results import Results
from driftscore.lab.runs.scorings import rule_of, split_name
from driftscore.rules import KIND, Needs, Rule, Variant

ACEVEDO = ("zs_text", "zs_text:matched", "zs_audio", "tgap", "tgap_audio")
PANEL = ("cosine", *ACEVEDO, "das")
"""The columns of the paper's main table: cosine, the five of Acevedo et al., DAS."""

PAPER_BETA = 0.25
_PALETTE = (
    "#d9822b", "#5a9e6f", "#9b6bb3", "#b0a13a", "#c8553d", "#4c8fbf", "#a4abb8", "#7d5a4f",
    "#2f8f83", "#c26d9b",
)  # fmt: skip
_FIXED = {"cosine": "#3b4252", "das": "#0b6e99"}
_DASHES = ("-", "-.", ":")


def known_rule(name: str) -> tuple[Rule | None, Variant | None]:
    """Return the rule and the variant of a scoring's name; None for what is not installed here.

    A store may have rows of a rule that came from another package.
    """
    rule, variant = split_name(name)
    if not registry.has(KIND, rule):
        return None, None
    found = rule_of(rule)
    return found, next((v for v in found.variants if v.name == variant), None)


def heading(name: str) -> str:
    """Return what a table calls a rule (or one of its variants)."""
    rule, variant = known_rule(name)
    if variant is not None:
        return variant.heading
    return name if rule is None or name != rule.name else rule.heading


def ordered(names: Iterable[str]) -> list[str]:
    """Return rule names, each once: the paper's columns, then the others in alphabetical order."""
    found = dict.fromkeys(names)
    first = [name for name in PANEL if name in found]
    return [*first, *sorted(name for name in found if name not in PANEL)]


def needs_in_words(name: str) -> str:
    """Return what a rule must be given that DAS does without."""
    rule, variant = known_rule(name)
    parts = [variant.summary] if variant is not None else []
    needs = rule.needs if rule is not None else Needs.NOTHING
    if needs & Needs.BACKGROUND:
        parts.append("an oracle: it is given the background of each clip")
    if needs & Needs.NOISE:
        parts.append("needs recordings of the noise")
    if needs & Needs.POOL:
        parts.append("needs a pool of clips of the same kind")
    return ", ".join(parts)


def line_styles(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the colour and the dashes of each rule in a figure."""
    styles: dict[str, tuple[str, str]] = {}
    number = 0
    for name in ordered(names):
        rule, _ = known_rule(name)
        if name in _FIXED:
            styles[name] = (_FIXED[name], "-")
            continue
        dashes = _DASHES[number // len(_PALETTE) % len(_DASHES)]
        oracle = rule is not None and bool(rule.needs & Needs.BACKGROUND)
        styles[name] = (_PALETTE[number % len(_PALETTE)], "--" if oracle else dashes)
        number += 1
    return styles


def das_of(results: Results, **changes: object) -> Scoring | None:
    """Return the scoring that is the paper's DAS (or differs by `changes`), if it was measured."""
    wanted = {"beta": PAPER_BETA, "direction": "mean", "reference": "prompt", **changes}
    found = sorted(
        {r.cell.scoring for r in results.rows if r.cell.scoring.rule == "das"},
        key=lambda s: (s.pack != "das52", s.pack or ""),
    )
    fits = (s for s in found if all(getattr(s, k) == v for k, v in wanted.items()))
    return next(fits, None)


Settings = tuple[str, float | None, str | None, str | None, str | None]


def settings_of(scoring: Scoring) -> Settings:
    """Return a scoring without its noise corpus and digests."""
    s = scoring
    return (s.name, s.beta, s.pack, s.direction, s.reference)


def main_settings(results: Results) -> set[Settings]:
    """Return the settings with which each rule appears in a main table.

    DAS has those of the paper, or does not appear. Any other rule has its default settings, or the
    measured ones nearest to them, so that none is left out.
    """
    das = das_of(results)
    by_name: dict[str, list[Scoring]] = {}
    for scoring in dict.fromkeys(row.cell.scoring for row in results.rows):
        by_name.setdefault(scoring.name, []).append(scoring)
    chosen = {settings_of(das)} if das else set()
    for name, scorings in by_name.items():
        if name != "das":
            chosen.add(settings_of(min(scorings, key=lambda s: _distance(s, das))))
    return chosen


def _distance(scoring: Scoring, das: Scoring | None) -> tuple[bool, bool, bool, float, str]:
    """Return how far a scoring is from the default settings, for sorting."""
    rule, _ = known_rule(scoring.name)
    default = PAPER_BETA
    if rule is not None and "beta" in rule.parameters:
        given = rule.parameters["beta"].default
        default = float(given) if isinstance(given, (int, float)) else PAPER_BETA
    return (
        scoring.pack not in (None, das.pack if das else "das52"),
        scoring.direction not in (None, "mean"),
        scoring.reference not in (None, "prompt"),
        0.0 if scoring.beta is None else abs(scoring.beta - default),
        scoring.key,
    )
