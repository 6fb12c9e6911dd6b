"""What the rows say, in sentences and small tables: rivals first, then gains and advice.

A rival is any rule, plain cosine among them, whose mean over the noisy conditions of a dataset and
model is above that of DAS with the paper's settings.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from driftscore.lab.conditions import COSINE, Scoring
from driftscore.lab.report.analysis import BetaGain, advise
from driftscore.lab.report.headings import das_of, heading, needs_in_words
from driftscore.lab.report.numbers import interval, signed
from driftscore.lab.report.parts import Line, Table
from driftscore.lab.report.results import PooledResult, Results
from driftscore.lab.report.tables import betas, main_results

Scene = tuple[str, str]
"""A dataset and a model."""


@dataclass(frozen=True)
class Rival:
    """A rule against DAS on one dataset and model, noisy conditions, in points."""

    name: str
    scene: Scene
    metric: str
    difference: float
    low: float
    high: float
    ahead: int
    of: int

    @property
    def clear(self) -> bool:
        """Whether the interval is above zero."""
        return self.low > 0

    @property
    def sentence(self) -> str:
        """The comparison in words."""
        dataset, backbone = self.scene
        known = not math.isnan(self.low)
        within = f", 95 % interval {self.low:+.1f} to {self.high:+.1f}" if known else ""
        need = needs_in_words(self.name)
        name = "plain cosine" if self.name == "cosine" else heading(self.name)
        return (
            f"{name}: {self.difference:+.1f} points of {self.metric} against DAS on {dataset} with "
            f"{backbone}{within}; ahead in {self.ahead} of {self.of} noisy conditions"
            f"{f' ({need})' if need else ''}."
        )


def scenes(results: Results) -> list[Scene]:
    """Return each dataset and model that has rows."""
    return list(dict.fromkeys((r.dataset, r.backbone) for r in results.all))


def rivals(results: Results) -> list[Rival]:
    """Return every rule that is above DAS: clear differences first, then the largest."""
    das = das_of(results)
    if das is None:
        return []
    main = main_results(results)
    found = [rival for scene in scenes(results) for rival in _against(results, main, das, scene)]
    ahead = [rival for rival in found if rival.difference > 0]
    return sorted(ahead, key=lambda rival: (not rival.clear, -rival.difference))


def _against(
    results: Results, main: Sequence[PooledResult], das: Scoring, scene: Scene
) -> Iterator[Rival]:
    here = [r for r in main if (r.dataset, r.backbone) == scene and r.snr_db is not None]
    ours = {r.place: r for r in here if r.scoring == das}
    for name in dict.fromkeys(r.scoring.name for r in here if r.scoring != das):
        theirs = [r for r in here if r.scoring.name == name and r.place in ours]
        if not theirs:
            continue
        gaps = [r.value - ours[r.place].value for r in theirs]
        found = results.difference([(r.place, r.scoring, das) for r in theirs])
        low, high = (100 * found.low, 100 * found.high) if found else (math.nan, math.nan)
        difference = 100 * found.difference if found else sum(gaps) / len(gaps)
        ahead = sum(gap > 0 for gap in gaps)
        yield Rival(name, scene, theirs[0].metric, difference, low, high, ahead, len(gaps))


def rival_table(found: Sequence[Rival]) -> Table:
    """Return all rules that are above DAS on average."""
    lines = []
    for r in found:
        gap = f"{r.difference:+.2f}" if math.isnan(r.low) else interval(r.difference, r.low, r.high)
        where = (*r.scene, r.metric)
        cells = (heading(r.name), *where, gap, f"{r.ahead}/{r.of}", needs_in_words(r.name))
        lines.append(Line(cells, "ours", (4,) if r.clear else ()))
    columns = ("Rule", "Dataset", "Backbone", "Metric", "Points over DAS, 95 %", "Ahead in", "Note")
    note = (
        "Noisy conditions pooled; DAS with the paper's settings. Bold: the interval excludes zero. "
        "A difference of mAPs is the mean over the conditions."
    )
    return Table("rivals", "Above DAS on average", columns, tuple(lines), note)


def noisy(results: Results, scene: Scene) -> list[PooledResult]:
    """Return the results of a dataset and model with noise."""
    return results.where(lambda r: (r.dataset, r.backbone) == scene and r.snr_db is not None)


def gain_table(results: Results) -> Table:
    """Return the gain of DAS over cosine at each SNR, with intervals."""
    das = das_of(results)
    found = results.where(lambda r: r.scoring == das)
    snrs = sorted({r.snr_db for r in found if r.snr_db is not None}, reverse=True)
    lines = []
    for scene in dict.fromkeys((r.dataset, r.backbone) for r in found):
        here = [r for r in found if (r.dataset, r.backbone) == scene]
        lines.append(Line((f"{scene[0]} ({here[0].metric}), {scene[1]}",), "heading"))
        clean = next((r for r in here if r.snr_db is None), None)
        kinds = dict.fromkeys((r.noise, r.mixing) for r in here if r.snr_db is not None)
        for kind in kinds or {(None, None): None}:
            by_snr = {r.snr_db: r for r in here if (r.noise, r.mixing) == kind}
            lines.append(_gain_line(kind, [clean, *(by_snr.get(snr) for snr in snrs)]))
    columns = ("", "clean", *(f"{snr:g} dB" for snr in snrs))
    note = (
        "Points over cosine with 95 % intervals: paired bootstrap over event clips, all mixes of a "
        "clip together. Bold: the interval excludes zero. Clean clips have no mixing."
    )
    return Table("gains", "DAS over cosine at each SNR", columns, tuple(lines), note)


def _gain_line(kind: tuple[str | None, str | None], found: Sequence[PooledResult | None]) -> Line:
    """Return the gains of one noise and mixing; those whose interval excludes zero are bold."""
    cells = [interval(r.gain, r.low, r.high, digits=1) if r else "" for r in found]
    bold = tuple(i for i, r in enumerate(found, start=1) if r is not None and r.clear)
    return Line((f"{kind[0]}, {kind[1]}", *cells), "ours", bold)


def class_gains(results: Results) -> dict[Scene, dict[str, float]]:
    """Return the gain of each class by DAS over cosine in noise, by dataset and model."""
    das = das_of(results)
    gains: dict[Scene, dict[str, float]] = {}
    for scene in scenes(results) if das else []:
        places = [r.place for r in noisy(results, scene) if r.scoring == das]
        if das and (found := results.class_gains(places, das)):
            gains[scene] = found
    return gains


def class_table(results: Results) -> Table | None:
    """Return the gains by class as a table, or None without a single-label dataset."""
    gains = class_gains(results)
    if not gains:
        return None
    labels = dict.fromkeys(label for found in gains.values() for label in found)
    first = next(iter(gains.values()))
    lines = []
    for label in sorted(labels, key=lambda name: -first.get(name, -math.inf)):
        cells = [signed(found.get(label, math.nan)) for found in gains.values()]
        lines.append(Line((label, *cells)))
    columns = ("Class", *(f"{dataset}, {backbone}" for dataset, backbone in gains))
    return Table("classes", "Gain of DAS over cosine by class", columns, tuple(lines))


def rows_table(results: Results) -> Table:
    """Return every result with its gain, its interval and its size."""
    lines = []
    for r in results.all:
        s = r.scoring
        settings = [f"β {s.beta:g}"] if s.beta is not None else []
        settings += [value for value in (s.pack, s.direction, s.reference) if value]
        where = (r.dataset, r.backbone, r.noise or "", r.mixing or "", r.place.snr)
        size = f"{r.mixes} of {r.clips} clips" if r.mixes != r.clips else f"{r.clips} clips"
        gain = interval(r.gain, r.low, r.high)
        rule = heading(s.name)
        line = (*where, rule, ", ".join(settings), f"{r.value:.2f}", r.metric, gain, size)
        lines.append(Line((*line, str(r.failed or ""))))
    columns = (
        "Dataset", "Backbone", "Noise", "Mixing", "SNR", "Rule", "Settings", "Value", "Metric",
        "over cosine, 95 %", "Mixes", "Failed",
    )  # fmt: skip
    return Table("rows", f"All {len(lines):,} results", columns, tuple(lines))


def failure_table(results: Results) -> Table | None:
    """Return the clips and rows that failed, or None."""
    lines = [
        Line((condition.title, clip, why)) for condition, clip, why in results.store.failures()
    ]
    for row in results.errors:
        lines.append(Line((row.cell.condition.title, row.cell.scoring.name, row.error)))
    if not lines:
        return None
    title = f"{len(lines):,} clips or rules that could not be used"
    return Table("failures", title, ("Condition", "Clip or rule", "Reason"), tuple(lines))


def advice(results: Results) -> list[str]:
    """Return a sentence for each dataset and model: whether DAS helps, and with which beta."""
    sentences = []
    for scene in scenes(results):
        dataset, backbone = scene
        alignment = results.alignment(
            das_of(results),
            lambda c, s=scene: (c.dataset, c.backbone) == s and not c.clean,  # type: ignore[misc]
        )
        what = f"{dataset} with {backbone}"
        gains = list(beta_gains(results, scene))
        if gains:
            sentences.append(advise(gains, alignment, what=what))
        else:
            sentences += _ranking_advice(results, scene, what)
    return sentences


def beta_gains(results: Results, scene: Scene) -> Iterator[BetaGain]:
    """Yield the gain of DAS at each beta, pooled over the noisy clips of a scene; none for mAP."""
    for beta in betas(results):
        das = das_of(results, beta=beta)
        if das is None:
            continue
        places = [r.place for r in noisy(results, scene) if r.scoring == das]
        found = results.compare((place, das, COSINE) for place in places)
        if found:
            yield BetaGain(beta, 100 * found.difference, 100 * found.low, 100 * found.high)


def _ranking_advice(results: Results, scene: Scene, what: str) -> Iterator[str]:
    """Yield what DAS does to mAP, which has no interval over several conditions."""
    das = das_of(results)
    rows = [r for r in noisy(results, scene) if r.scoring == das and not math.isnan(r.gain)]
    if not rows:
        return
    mean = sum(r.gain for r in rows) / len(rows)
    better, worse = sum(r.low > 0 for r in rows), sum(r.high < 0 for r in rows)
    half = len(rows) / 2
    verdict = "helps" if better > half else "hurts" if worse > half else "is unclear"
    yield (
        f"For ranking {what} (mAP), DAS {verdict}: {mean:+.1f} points on average over {len(rows)} "
        f"noisy conditions, clearly better in {better}, clearly worse in {worse}."
    )
