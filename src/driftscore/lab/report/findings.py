"""What the rows say, in sentences and small tables: rivals first, then gains.

A rival is any rule, plain cosine among them, whose mean over the noisy conditions of a dataset and
model is above that of DAS with the paper's settings.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from driftscore.lab.conditions import CLEAN, COSINE
from driftscore.lab.metrics import Interval
from driftscore.lab.report.headings import heading, main_results, needs_in_words, ordered
from driftscore.lab.report.page import Line, Table, interval, plain
from driftscore.lab.report.results import Results, Scene, mean


@dataclass(frozen=True)
class Rival:
    """A rule against DAS on one dataset and model, noisy conditions, in points."""

    name: str
    scene: Scene
    metric: str
    gap: Interval
    ahead: int
    of: int

    @property
    def sentence(self) -> str:
        """The comparison in words."""
        within = f", 95 % interval {self.gap.low:+.1f} to {self.gap.high:+.1f}"
        within = "" if math.isnan(self.gap.low) else within
        need = needs_in_words(self.name)
        name = "plain cosine" if self.name == "cosine" else heading(self.name)
        return (
            f"{name}: {self.gap.difference:+.1f} points of {self.metric} against DAS on "
            f"{' with '.join(self.scene)}{within}; ahead in {self.ahead} of {self.of} noisy "
            f"conditions{f' ({need})' if need else ''}."
        )


def rivals(results: Results) -> list[Rival]:
    """Return every rule that is above DAS: clear differences first, then the largest."""
    das = results.das()
    if das is None:
        return []
    main = [r for r in main_results(results) if r.noisy]
    above = []
    for scene in results.scenes:
        here = [r for r in main if r.scene == scene]
        ours = {r.condition: r for r in here if r.scoring == das}
        for name in dict.fromkeys(r.scoring.name for r in here if r.scoring != das):
            theirs = [r for r in here if r.scoring.name == name and r.condition in ours]
            if not theirs:
                continue
            gaps = [r.value - ours[r.condition].value for r in theirs]
            pooled = results.difference([(r.condition, r.scoring, das) for r in theirs])
            pooled = pooled or Interval(sum(gaps) / len(gaps), math.nan, math.nan)
            if pooled.difference > 0:
                ahead = sum(gap > 0 for gap in gaps)
                above.append(Rival(name, scene, theirs[0].metric, pooled, ahead, len(gaps)))
    return sorted(above, key=lambda rival: (not rival.gap.clear, -rival.gap.difference))


def rival_table(rivals: Sequence[Rival]) -> Table:
    """Return all rules that are above DAS on average."""
    lines = []
    for r in rivals:
        gap = f"{r.gap.difference:+.2f}" if math.isnan(r.gap.low) else interval(r.gap)
        ahead = f"{r.ahead}/{r.of}"
        cells = (heading(r.name), *r.scene, r.metric, gap, ahead, needs_in_words(r.name))
        lines.append(Line(cells, "ours", (4,) if r.gap.clear else ()))
    columns = ("Rule", "Dataset", "Backbone", "Metric", "Points over DAS, 95 %", "Ahead in", "Note")
    note = (
        "Noisy conditions pooled; DAS with the paper's settings. Bold: the interval excludes zero. "
        "A difference of mAPs is the mean over the conditions."
    )
    return Table("rivals", "Above DAS on average", columns, lines, note)


def overview_table(results: Results) -> Table:
    """Return the value of each rule by SNR, the mean over noises and mixings."""
    main = main_results(results)
    snrs = sorted({s for r in main if (s := r.condition.snr_db) is not None}, reverse=True)
    lines: list[Line] = []
    for scene in dict.fromkeys(r.scene for r in main):
        here = [r for r in main if r.scene == scene]
        lines.append(Line((f"{scene[0]} ({here[0].metric}), {scene[1]}",), "heading"))
        names = ordered(r.scoring.name for r in here)
        values = {
            name: [
                mean(r.value for r in here if (r.scoring.name, r.condition.snr_db) == (name, snr))
                for snr in (None, *snrs)
            ]
            for name in names
        }
        fair = [name for name in names if "oracle" not in name and "matched" not in name]
        best = [
            max((value for value in column if not math.isnan(value)), default=math.nan)
            for column in zip(*(values[name] for name in fair), strict=True)
        ]
        for name in names:
            noisy = [r for r in here if r.scoring.name == name and r.noisy]
            gain = results.difference([(r.condition, r.scoring, COSINE) for r in noisy])
            shown = interval(gain) if name != COSINE.name else ""
            pairs = zip(values[name], best if name in fair else [], strict=False)
            bold = tuple(n for n, (value, top) in enumerate(pairs, start=1) if value == top)
            lines.append(Line((heading(name), *map(plain, values[name]), shown), "ours", bold))
    columns = ("Rule", CLEAN, *(f"{snr:g} dB" for snr in snrs), "gain in noise, 95 %")
    note = (
        "Accuracy or mAP in %, the mean over noises and mixings. The gain is over plain cosine on "
        "the same mixes, all SNRs pooled: a paired bootstrap over event clips. Bold: the best of "
        "a column; oracles that know the background of each clip are not compared."
    )
    return Table("overview", "Every rule by SNR", columns, lines, note)


def gain_table(results: Results) -> Table:
    """Return the gain of DAS over cosine at each SNR, with intervals."""
    das = results.das()
    gains = [r for r in results.all if r.scoring == das]
    snrs = sorted({s for r in gains if (s := r.condition.snr_db) is not None}, reverse=True)
    lines = []
    for scene in dict.fromkeys(r.scene for r in gains):
        here = {(r.condition.noise, r.condition.mixing, r.condition.snr_db): r
                for r in gains if r.scene == scene}  # fmt: skip
        metric = next(iter(here.values())).metric
        lines.append(Line((f"{scene[0]} ({metric}), {scene[1]}",), "heading"))
        kinds = dict.fromkeys((noise, mixing) for noise, mixing, snr in here if snr is not None)
        for kind in kinds or {(None, None): None}:
            row = [here.get((None, None, None)), *(here.get((*kind, snr)) for snr in snrs)]
            cells = [interval(r.gain, digits=1) if r else "" for r in row]
            bold = tuple(i for i, r in enumerate(row, start=1) if r is not None and r.gain.clear)
            lines.append(Line((f"{kind[0]}, {kind[1]}", *cells), "ours", bold))
    columns = ("", "clean", *(f"{snr:g} dB" for snr in snrs))
    note = (
        "Points over cosine with 95 % intervals: paired bootstrap over event clips, all mixes of a "
        "clip together. Bold: the interval excludes zero. Clean clips have no mixing."
    )
    return Table("gains", "DAS over cosine at each SNR", columns, lines, note)


def failure_tables(results: Results) -> list[Table]:
    """Return the clips and rows that failed as a table; none if there are none."""
    cells = [(condition.title, clip, why) for condition, clip, why in results.store.failures()]
    cells += [(r.cell.condition.title, r.cell.scoring.name, r.error) for r in results.errors]
    title = f"{len(cells):,} clips or rules that could not be used"
    columns = ("Condition", "Clip or rule", "Reason")
    lines = [Line(entry) for entry in cells]
    return [Table("failures", title, columns, lines, collapsed=True)] if lines else []
