"""One table: every rule at every SNR on each dataset and model, and its gain in noise."""

import math
from collections.abc import Sequence

from driftscore.lab.conditions import CLEAN, COSINE
from driftscore.lab.report.headings import heading, ordered
from driftscore.lab.report.numbers import mean, plain, points
from driftscore.lab.report.parts import Line, Table
from driftscore.lab.report.results import PooledResult, Results
from driftscore.lab.report.tables import main_results


def overview_table(results: Results) -> Table:
    """Return the value of each rule by SNR, the mean over noises and mixings."""
    main = main_results(results)
    snrs = sorted({r.snr_db for r in main if r.snr_db is not None}, reverse=True)
    lines: list[Line] = []
    for scene in dict.fromkeys((r.dataset, r.backbone) for r in main):
        here = [r for r in main if (r.dataset, r.backbone) == scene]
        lines.append(Line((f"{scene[0]} ({here[0].metric}), {scene[1]}",), "heading"))
        lines += _scene_lines(results, here, [None, *snrs])
    columns = ("Rule", CLEAN, *(f"{snr:g} dB" for snr in snrs), "gain in noise, 95 %")
    note = (
        "Accuracy or mAP in %, the mean over noises and mixings. The gain is over plain cosine on "
        "the same mixes, all SNRs pooled: a paired bootstrap over event clips. Bold: the best of "
        "a column; oracles that know the background of each clip are not compared."
    )
    return Table("overview", "Every rule by SNR", columns, tuple(lines), note)


def _scene_lines(
    results: Results, here: Sequence[PooledResult], snrs: Sequence[float | None]
) -> list[Line]:
    """Return one line per rule of a dataset and model."""
    names = ordered(r.scoring.name for r in here)
    values = {
        name: [mean(r.value for r in here if (r.scoring.name, r.snr_db) == (name, snr))
               for snr in snrs]
        for name in names
    }  # fmt: skip
    fair = [name for name in names if "oracle" not in name and "matched" not in name]
    known = [
        [v for v in column if not math.isnan(v)]
        for column in zip(*(values[name] for name in fair), strict=True)
    ]
    best = [max(column, default=math.nan) for column in known]
    lines = []
    for name in names:
        noisy = [r for r in here if r.scoring.name == name and r.snr_db is not None]
        found = results.difference([(r.place, r.scoring, COSINE) for r in noisy])
        gain = points(found) if found and name != COSINE.name else ""
        bold = tuple(
            column + 1
            for column, value in enumerate(values[name])
            if name in fair and value == best[column]
        )
        cells = (heading(name), *(plain(value) for value in values[name]), gain)
        lines.append(Line(cells, "ours", bold))
    return lines
