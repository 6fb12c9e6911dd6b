"""Rows about events: a table, and what is said about it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from driftscore.lab.conditions import COSINE, Row
from driftscore.lab.detection import ONSET, f1_values, resampled
from driftscore.lab.metrics import Interval
from driftscore.lab.report.headings import heading, ordered
from driftscore.lab.report.numbers import points
from driftscore.lab.report.parts import Line, Table
from driftscore.lab.report.results import newest_rows
from driftscore.lab.runs.detecting import FEW, SOME
from driftscore.lab.runs.found import METRIC, CurveColumns, MinuteCounts, find_detections
from driftscore.lab.runs.store import Store
from driftscore.lab.seeds import generator

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

    def percent(self, name: str) -> str:
        """Return a share among the details as a percentage; empty if it is not defined."""
        value = self.row.details.get(name)
        return "" if value is None else f"{100 * value:.1f}"

    def plain(self, name: str, digits: int) -> str:
        """Return a number among the details; empty if it is not defined."""
        value = self.row.details.get(name)
        return "" if value is None else f"{value:.{digits}f}"


def read_detections(store: Store, *, only: Collection[str] | None = None) -> list[DetectionResult]:
    """Return the rows about events of a store, ordered by dataset, model and rule."""
    rows = newest_rows(row for row in store.rows() if row.metric == METRIC)
    found = []
    for row in rows:
        if row.error or (only is not None and row.cell.key not in only):
            continue
        arrays = find_detections(store, row)
        if arrays is not None:
            found.append(DetectionResult(row, *arrays))
    order = {name: n for n, name in enumerate(ordered(result.name for result in found))}
    return sorted(found, key=lambda result: (result.scene, order[result.name]))


def failed_detections(store: Store, *, only: Collection[str] | None = None) -> list[str]:
    """Return the cells about events that have an error, each with it."""
    rows = newest_rows(row for row in store.rows() if row.metric == METRIC)
    return [
        f"{row.cell.condition.title}, {heading(row.cell.scoring.name)}: {row.error}"
        for row in rows
        if row.error and (only is None or row.cell.key in only)
    ]


def detection_table(results: Sequence[DetectionResult]) -> Table:
    """Return one line per rule and model."""
    lines: list[Line] = []
    for scene in dict.fromkeys(result.scene for result in results):
        here = [result for result in results if result.scene == scene]
        size = f"{here[0].row.n} events in {here[0].plain('hours', 0)} hours"
        lines.append(Line((f"{scene[0]} ({size}), {scene[1]}",), "heading"))
        cosine = next((r for r in here if r.row.cell.scoring == COSINE), None)
        best = max(float(result.row.value or 0) for result in here)
        for result in here:
            bold = (1,) if result.row.value == best else ()
            lines.append(Line(_cells(result, cosine), "ours", bold))
    return Table("events", "Events in long recordings", _COLUMNS, tuple(lines), _NOTE)


def _cells(result: DetectionResult, cosine: DetectionResult | None) -> tuple[str, ...]:
    value, low, high = (result.percent(name) for name in ("f1", "low", "high"))
    gain = None if cosine is None or cosine is result else _gain(result, cosine)
    return (
        heading(result.name), f"{value} [{low}, {high}]", points(gain),
        *(result.percent(name) for name in ("precision", "recall", "onset_f1")),
        result.plain("onset_error_s", 2), result.plain("quiet", 0),
        f"{result.plain('words_found', 0)} of {result.plain('words', 0)}",
        result.plain("false_alarms_per_hour", 1),
        *(result.percent(name) for name in ("recall_at_few", "recall_at_some")),
        result.plain("psds", 3),
    )  # fmt: skip


def _gain(result: DetectionResult, cosine: DetectionResult) -> Interval | None:
    """Return how much higher the F1 of a rule is than that of cosine, with a paired interval."""
    if result.blocks.shape != cosine.blocks.shape:
        return None
    rng = generator("event gain", result.row.cell.key)
    ours, theirs = (
        f1_values(drawn) for drawn in resampled([result.blocks, cosine.blocks], rng=rng)
    )
    low, high = np.quantile(ours - theirs, [0.025, 0.975])
    return Interval(
        float(result.row.value or 0) - float(cosine.row.value or 0), float(low), float(high)
    )
