"""Detect the events of soundscapes with a scoring -> its row, and what was found.

A cell is a rule and a model on a timed dataset: the detector of the library, with its default
settings, looks for the words of every soundscape. It is run twice: as it is, which gives precision,
recall, F1 and the errors of the times; and with a budget of many false alarms, which gives recall
against false alarms per hour and PSDS. There the events are ranked by their score as a multiple of
their threshold, since labels have thresholds of their own.

The value of the row is F1 with matches by any overlap; all other numbers are in its details.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from driftscore.embedder import Embedder
from driftscore.errors import DriftscoreError, StoreError
from driftscore.lab import detection
from driftscore.lab.conditions import Cell, Condition, Row, Scoring
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.soundscapes.rendering import truth_path
from driftscore.lab.corpora.soundscapes.truth import Soundscape, read_soundscape
from driftscore.lab.detection import ONSET, OVERLAP, DetectedEvent, DetectionCurve, ScoredSpan
from driftscore.lab.psds import by_threshold, psds
from driftscore.lab.runs.detectors import find_events
from driftscore.lab.runs.found import METRIC
from driftscore.lab.runs.scoring import stamp
from driftscore.lab.runs.store import Arrays, Store
from driftscore.lab.seeds import generator

FEW, SOME = 1.0, 6.0
"""False alarms per hour, over all words, at which recall is reported."""

Detect = Callable[[Embedder, Sequence[str], Scoring, str, bool], Iterable[ScoredSpan]]
"""Find the events of words in a recording; with the last argument true, also unlikely ones."""


@dataclass(frozen=True)
class Detected:
    """A soundscape and what was found in it, with default settings and with a large budget."""

    soundscape: Soundscape
    found: tuple[DetectedEvent, ...]
    many: tuple[DetectedEvent, ...]


def detect_condition(
    store: Store,
    condition: Condition,
    scorings: Sequence[Scoring],
    clips: Sequence[Clip],
    embedder: Embedder,
    *,
    detect: Detect = find_events,
) -> list[Row]:
    """Return the row of each scoring, and store what was found; an error is in its row."""
    rows = []
    for scoring in scorings:
        cell, started = Cell(condition, scoring), time.monotonic()
        try:
            detected = [_detected(clip, scoring, embedder, detect) for clip in clips]
            row, arrays = measured(cell, detected)
            store.put_arrays("scores", cell.key, arrays)
        except StoreError:
            raise
        except DriftscoreError as error:
            row = Row(cell, METRIC, failed=len(clips), error=str(error))
        rows.append(replace(row, stamp=stamp(time.monotonic() - started)))
    return rows


def measured(cell: Cell, detected: Sequence[Detected]) -> tuple[Row, Arrays]:
    """Return the row of a cell, and the arrays that the report draws."""
    truth, found, seconds = detection.joined(
        (one.soundscape.wanted, one.found, one.soundscape.seconds) for one in detected
    )
    _, many, _ = detection.joined(
        (one.soundscape.wanted, one.many, one.soundscape.seconds) for one in detected
    )
    curve = detection.detection_curve(truth, many, OVERLAP, seconds=seconds)
    blocks = np.concatenate([
        detection.block_counts(
            one.soundscape.wanted, one.found, OVERLAP, seconds=one.soundscape.seconds
        )
        for one in detected
    ])  # fmt: skip
    [drawn] = detection.resampled([blocks], rng=generator("events", cell.key))
    low, high = np.quantile(detection.f1_values(drawn), [0.025, 0.975])
    details = {
        **_numbers(truth, found, seconds),
        **_curve_numbers(curve),
        "low": float(low),
        "high": float(high),
        "quiet": float(sum(_in_quiet_part(one) for one in detected)),
        "words": float(sum(len(one.soundscape.words) for one in detected)),
        "words_found": float(sum(_words_found(one) for one in detected)),
        "psds": psds(truth, by_threshold(many), seconds=seconds),
    }
    row = Row(cell, METRIC, details["f1"], n=len(truth), details=details)
    arrays = {"blocks": blocks, **_columns(detected), "curve": np.stack(_curve_columns(curve))}
    return row, arrays


def _detected(clip: Clip, scoring: Scoring, embedder: Embedder, detect: Detect) -> Detected:
    made = read_soundscape(truth_path(clip.path))
    found, many = (
        tuple(
            DetectedEvent(event.label, event.start_s, event.end_s, event.score)
            for event in detect(embedder, made.words, scoring, str(clip.path), unlikely)
        )
        for unlikely in (False, True)
    )
    return Detected(made, found, many)


def _numbers(
    truth: Sequence[DetectedEvent], found: Sequence[DetectedEvent], seconds: float
) -> dict[str, float]:
    """Return the numbers of the default settings; what is not defined is left out."""
    overlap, onset = (detection.count(truth, found, m) for m in (OVERLAP, ONSET))
    errors = np.abs(detection.onset_errors(truth, found, OVERLAP))
    numbers = {
        "f1": overlap.f1,
        "precision": overlap.precision,
        "recall": overlap.recall,
        "onset_f1": onset.f1,
        "onset_precision": onset.precision,
        "onset_recall": onset.recall,
        "onset_error_s": float(np.median(errors)) if len(errors) else np.nan,
        "false_alarms_per_hour": overlap.false_alarms / (seconds / detection.HOUR_S),
        "found": float(len(found)),
        "hours": seconds / detection.HOUR_S,
    }
    return {name: value for name, value in numbers.items() if not np.isnan(value)}


def _curve_numbers(curve: DetectionCurve) -> dict[str, float]:
    numbers = {"recall_at_few": curve.recall_at(FEW), "recall_at_some": curve.recall_at(SOME)}
    if len(curve.thresholds):
        numbers["best_f1"] = float(curve.f1[curve.best])
    return numbers


def _in_quiet_part(one: Detected) -> int:
    """Return how many events were found where there is none at all."""
    return detection.count_within(one.found, *one.soundscape.quiet_s)


def _words_found(one: Detected) -> int:
    """Return how many words have at least one event that was found."""
    truth = one.soundscape.wanted
    pairs = detection.match(truth, one.found, OVERLAP)
    return len({truth[pair.truth].label for pair in pairs})


def _curve_columns(curve: DetectionCurve) -> tuple[detection.Floats, ...]:
    return (curve.thresholds, curve.precision, curve.recall, curve.false_alarms_per_hour)


def _columns(detected: Sequence[Detected]) -> Arrays:
    """Return everything that was found with default settings, as columns."""
    events = [(number, event) for number, one in enumerate(detected) for event in one.found]
    return {
        "recording": np.array([number for number, _ in events], np.int64),
        "label": np.array([event.label for _, event in events], np.str_),
        "times": np.array([(e.start_s, e.end_s, e.score) for _, e in events]).reshape(-1, 3),
    }
