"""Rows about events: a table, and what is said about it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from driftscore.lab.conditions import COSINE, Row, generator
from driftscore.lab.detection import ONSET, f1_values, resampled
from driftscore.lab.metrics import Interval
from driftscore.lab.report.headings import heading, ordered
from driftscore.lab.report.page import Line, Table, interval
from driftscore.lab.report.results import in_points, newest_rows
from driftscore.lab.runs.events import FEW, SOME
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.truth import METRIC, CurveColumns, MinuteCounts, find_detections

HOW = (
    "The detector of the library with its default settings, in soundscapes of recorded places with "
    "known events, other sounds, and a part without any event. A found event is right if it has "
    "the label of a true event and overlaps it; matches are one to one, so that a second detection "
    f"of the same event is a false alarm. With the stricter rule it must start within "
    f"{ONSET.onset_s:g} s of the true event instead (as sed_eval counts, without offsets)."
)
_COLUMNS = (
    "Rule", "F1, 95 %", "over cosine, 95 %", "Precision", "Recall", "F1, onset",
    "Onset error (s)", "In quiet part", "Words found", "False alarms / h", f"Recall at {FEW:g} / h",
    f"Recall at {SOME:g} / h", "PSDS",
)  # fmt: skip
_NOTE = (
    "Percentages, matches by overlap unless it says onset. The onset error is the median over "
    "matches. In quiet part: how many events were found where there is none. Words found: how many "
    "words have at least one event that was found, counted per soundscape. Recall at so many "
    "false alarms per hour, over all words, and PSDS (DCASE's scenario 2) rank what is found with "
    "a budget of many false alarms by its score. Intervals resample minutes."
)


@dataclass(frozen=True, eq=False)
class DetectionResult:
    """A row about events with its curve (thresholds, precision, recall, false alarms per hour)."""

    row: Row
    blocks: MinuteCounts
    curve: CurveColumns

    @property
    def scene(self) -> tuple[str, str]:
        """The dataset and the model."""
        condition = self.row.cell.condition
        return condition.dataset, condition.backbone

    @property
    def name(self) -> str:
        """The rule with its variant."""
        return self.row.cell.scoring.name

    def detail(self, name: str, digits: int = 1, *, factor: int = 1) -> str:
        """Return a number among the details; empty if it is not defined."""
        value = self.row.details.get(name)
        return "" if value is None else f"{factor * value:.{digits}f}"

    def percent(self, *names: str) -> list[str]:
        """Return shares among the details as percentages."""
        return [self.detail(name, factor=100) for name in names]


def read_detections(
    store: Store, *, only: Collection[str] | None = None
) -> tuple[list[DetectionResult], list[str]]:
    """Return the rows about events, ordered by dataset, model and rule, and those with an error."""
    results, failed = [], []
    for row in newest_rows(row for row in store.rows() if row.metric == METRIC):
        if only is not None and row.cell.key not in only:
            continue
        if row.error:
            title = f"{row.cell.condition.title}, {heading(row.cell.scoring.name)}"
            failed.append(f"{title}: {row.error}")
        elif (arrays := find_detections(store, row)) is not None:
            results.append(DetectionResult(row, *arrays))
    order = {name: n for n, name in enumerate(ordered(result.name for result in results))}
    return sorted(results, key=lambda result: (result.scene, order[result.name])), failed


def detection_table(results: Sequence[DetectionResult]) -> Table:
    """Return one line per rule and model."""
    lines: list[Line] = []
    for scene in dict.fromkeys(result.scene for result in results):
        here = [result for result in results if result.scene == scene]
        size = f"{here[0].row.n} events in {here[0].detail('hours', 0)} hours"
        lines.append(Line((f"{scene[0]} ({size}), {scene[1]}",), "heading"))
        cosine = next((r for r in here if r.row.cell.scoring == COSINE), None)
        best = max(float(result.row.value or 0) for result in here)
        for result in here:
            gain = None
            if cosine not in (None, result) and result.blocks.shape == cosine.blocks.shape:
                rng = generator("event gain", result.row.cell.key)
                drawn = resampled([result.blocks, cosine.blocks], rng=rng)
                ours, theirs = map(f1_values, drawn)
                low, high = np.quantile(ours - theirs, [0.025, 0.975])
                difference = float(result.row.value or 0) - float(cosine.row.value or 0)
                gain = in_points(Interval(difference, float(low), float(high)))
            f1, f1_low, f1_high = result.percent("f1", "low", "high")
            cells = (
                heading(result.name), f"{f1} [{f1_low}, {f1_high}]", interval(gain),
                *result.percent("precision", "recall", "onset_f1"),
                result.detail("onset_error_s", 2), result.detail("quiet", 0),
                f"{result.detail('words_found', 0)} of {result.detail('words', 0)}",
                result.detail("false_alarms_per_hour"),
                *result.percent("recall_at_few", "recall_at_some"), result.detail("psds", 3),
            )  # fmt: skip
            lines.append(Line(cells, "ours", (1,) if result.row.value == best else ()))
    return Table("events", "Events in long recordings", _COLUMNS, lines, _NOTE)
