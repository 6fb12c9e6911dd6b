"""How rules are named, ordered and drawn in tables and figures: as they describe themselves.

A rule's heading and variants come from its own file, entry point or function, so that a new rule
appears everywhere by itself. Rules are ordered with the paper's columns first.
"""

from collections.abc import Iterable

from driftscore.lab.conditions import Scoring
from driftscore.lab.report.results import PAPER_BETA, PooledResult, Results
from driftscore.lab.runs.scorings import rule_of, split_name
from driftscore.scoring.rules import KIND, Needs, Rule, Variant
from driftscore.system import plugins as registry

ACEVEDO = ("zs_text", "zs_text:matched", "zs_audio", "tgap", "tgap_audio")
PANEL = ("cosine", *ACEVEDO, "das")
"""The columns of the paper's main table: cosine, the five of Acevedo et al., DAS."""

_PALETTE = (
    "#d9822b", "#5a9e6f", "#9b6bb3", "#b0a13a", "#c8553d", "#4c8fbf", "#a4abb8", "#7d5a4f",
    "#2f8f83", "#c26d9b",
)  # fmt: skip
_FIXED = {"cosine": "#3b4252", "das": "#0b6e99"}
_DASHES = ("-", "-.", ":")
_NEEDS = {
    Needs.BACKGROUND: "an oracle: it is given the background of each clip",
    Needs.NOISE: "needs recordings of the noise",
    Needs.POOL: "needs a pool of clips of the same kind",
}


def installed_rule(name: str) -> tuple[Rule | None, Variant | None]:
    """Return the rule and the variant of a scoring's name; None for what is not installed here.

    A store may have rows of a rule that came from another package.
    """
    rule_name, variant = split_name(name)
    if not registry.has(KIND, rule_name):
        return None, None
    rule = rule_of(rule_name)
    return rule, next((v for v in rule.variants if v.name == variant), None)


def heading(name: str) -> str:
    """Return what a table calls a rule (or one of its variants)."""
    rule, variant = installed_rule(name)
    if variant is not None:
        return variant.heading
    return name if rule is None or name != rule.name else rule.heading


def ordered(names: Iterable[str]) -> list[str]:
    """Return rule names, each once: the paper's columns, then the others in alphabetical order."""
    present = set(names)
    first = [name for name in PANEL if name in present]
    return [*first, *sorted(present.difference(PANEL))]


def needs_in_words(name: str) -> str:
    """Return what a rule must be given that DAS does without."""
    rule, variant = installed_rule(name)
    parts = [variant.summary] if variant is not None else []
    if rule is not None:
        parts += [text for need, text in _NEEDS.items() if rule.needs & need]
    return ", ".join(parts)


def line_styles(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the colour and the dashes of each rule in a figure."""
    present = ordered(names)
    styles = {name: (_FIXED[name], "-") for name in present if name in _FIXED}
    for number, name in enumerate(name for name in present if name not in _FIXED):
        rule, _ = installed_rule(name)
        dashes = _DASHES[number // len(_PALETTE) % len(_DASHES)]
        if rule is not None and rule.needs & Needs.BACKGROUND:  # an oracle
            dashes = "--"
        styles[name] = (_PALETTE[number % len(_PALETTE)], dashes)
    return styles


def main_results(results: Results) -> list[PooledResult]:
    """Return the results of a main table: every rule, each with one choice of settings.

    DAS has those of the paper, or does not appear. Any other rule has its default settings, or the
    measured ones nearest to them, so that none is left out.
    """
    das = results.das()

    def distance(scoring: Scoring) -> tuple[bool, bool, bool, float, str]:
        rule, _ = installed_rule(scoring.name)
        parameter = rule.parameters.get("beta") if rule is not None else None
        default = parameter.default if parameter is not None else PAPER_BETA
        beta = default if isinstance(default, (int, float)) else PAPER_BETA
        return (
            scoring.pack not in (None, das.pack if das else "das52"),
            scoring.direction not in (None, "mean"),
            scoring.reference not in (None, "prompt"),
            0.0 if scoring.beta is None else abs(scoring.beta - beta),
            scoring.key,
        )

    nearest = {"das": das}
    for scoring in sorted({row.cell.scoring for row in results.rows}, key=distance):
        nearest.setdefault(scoring.name, scoring)
    # Scorings with other noise corpora or digests are the same choice of settings.
    chosen = {settings_of(scoring) for scoring in nearest.values() if scoring}
    return [result for result in results.all if settings_of(result.scoring) in chosen]


def settings_of(scoring: Scoring) -> tuple[object, ...]:
    """Return a scoring without its noise corpus and digests."""
    s = scoring
    return (s.name, s.beta, s.pack, s.direction, s.reference)
