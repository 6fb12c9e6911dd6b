"""Detect the events of soundscapes with a scoring -> its row, and what was found.

A cell is a rule and a model on a timed dataset: the detector of the library, with its default
settings, looks for the words of every soundscape. It is run twice: as it is, which gives precision,
recall, F1 and the errors of the times; and with a budget of many false alarms, which gives recall
against false alarms per hour and PSDS. There the events are ranked by their score as a multiple of
their threshold, since labels have thresholds of their own.

The value of the row is F1 with matches by any overlap; all other numbers are in its details.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from driftscore.classifier import Classifier
from driftscore.embedder import Embedder
from driftscore.errors import DriftscoreError, StoreError, UsageError
from driftscore.events.tracking import Detection, Event
from driftscore.lab import detection
from driftscore.lab.conditions import Cell, Row, Scoring, generator
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.soundscapes.truth import Soundscape, read_soundscape, truth_path
from driftscore.lab.detection import ONSET, OVERLAP
from driftscore.lab.psds import by_threshold, psds
from driftscore.lab.runs.scoring import stamped
from driftscore.lab.runs.scorings import (
    needs_of,
    prompts_of,
    settings_of,
    supplied_setting,
    uses_calibration,
)
from driftscore.lab.runs.store import ArrayFiles, Arrays
from driftscore.lab.runs.truth import METRIC
from driftscore.scoring.rules import Needs

PROTOCOL = 3
"""Part of the key of every cell about events; raise it whenever the detector changes a number."""

MANY = 6.0
"""False alarms per hour and label that are asked for where unlikely events are wanted as well."""

FEW, SOME = 1.0, 6.0
"""False alarms per hour, over all words, at which recall is reported."""

_SUPPLIED = Needs.NOISE | Needs.POOL | Needs.BACKGROUND


@dataclass(frozen=True)
class Detected:
    """A soundscape and its detected events, with default settings and with a large budget."""

    soundscape: Soundscape
    events: tuple[Event, ...]
    many: tuple[Event, ...]

    @property
    def truth(self) -> list[Event]:
        """The true events of the words."""
        return [Event(e.label, e.start_s, e.end_s, 0.0) for e in self.soundscape.wanted]


def detection_settings() -> dict[str, object]:
    """Return everything that can change what is found, apart from the model and the scoring."""
    return {"protocol": PROTOCOL, "many": MANY, **asdict(Detection())}


def check_detectable(scoring: Scoring) -> None:
    """Raise an error for a scoring that must be given something that a detector has not."""
    if needs_of(scoring) & _SUPPLIED or supplied_setting(scoring) not in ("", "calibration"):
        raise UsageError(
            f"{scoring.name} needs recordings or the place of each clip, which a detector has not; "
            "leave it out of the grid"
        )


def find_events(
    embedder: Embedder, words: Sequence[str], scoring: Scoring, path: str, unlikely: bool
) -> Iterator[Event]:
    """Yield the events of a recording with default settings, or `unlikely` ones as well.

    Their scores are multiples of their thresholds.
    """
    check_detectable(scoring)
    classifier = Classifier(
        words,
        backbone=embedder,
        rule=scoring.rule,
        settings=settings_of(scoring),
        standardised=uses_calibration(scoring),
        prompts=prompts_of(scoring),
        progress=False,
    )
    detect = Detection(false_alarms=MANY) if unlikely else Detection()
    for event in classifier.events(path, settings=detect):
        score = event.score / event.threshold if event.threshold else event.score
        yield Event(event.label, event.start_s, event.end_s, score)


def detect(files: ArrayFiles, cell: Cell, clips: Sequence[Clip], embedder: Embedder) -> Row:
    """Return the row of a cell, and store what was found; an error is in the row."""
    started, detected = time.monotonic(), list[Detected]()
    try:
        for clip in clips:
            soundscape = read_soundscape(truth_path(clip.path))
            file, words = str(clip.path), soundscape.words
            events, many = (
                tuple(find_events(embedder, words, cell.scoring, file, unlikely))
                for unlikely in (False, True)
            )
            detected.append(Detected(soundscape, events, many))
        row, arrays = measured(cell, detected)
        files.put_arrays("scores", cell.key, arrays)
    except StoreError:
        raise
    except DriftscoreError as error:
        row = Row(cell, METRIC, failed=len(clips), error=str(error))
    return stamped(row, time.monotonic() - started)


def measured(cell: Cell, detected: Sequence[Detected]) -> tuple[Row, Arrays]:
    """Return the row of a cell, and the arrays that the report draws."""
    truth, events, seconds = detection.joined(
        (one.truth, one.events, one.soundscape.seconds) for one in detected
    )
    _, many, _ = detection.joined((one.truth, one.many, one.soundscape.seconds) for one in detected)
    blocks = np.concatenate([
        detection.block_counts(one.truth, one.events, OVERLAP, seconds=one.soundscape.seconds)
        for one in detected
    ])  # fmt: skip
    [drawn] = detection.resampled([blocks], rng=generator("events", cell.key))
    low, high = np.quantile(detection.f1_values(drawn), [0.025, 0.975])
    overlap, onset = (detection.count(truth, events, m) for m in (OVERLAP, ONSET))
    errors = np.abs(detection.onset_errors(truth, events, OVERLAP))
    details = {
        "f1": overlap.f1,
        "precision": overlap.precision,
        "recall": overlap.recall,
        "onset_f1": onset.f1,
        "onset_precision": onset.precision,
        "onset_recall": onset.recall,
        "onset_error_s": float(np.median(errors)) if len(errors) else np.nan,
        "false_alarms_per_hour": overlap.false_alarms / (seconds / detection.HOUR_S),
        "found": float(len(events)),
        "hours": seconds / detection.HOUR_S,
    }
    details = {name: value for name, value in details.items() if not np.isnan(value)}
    curve = detection.detection_curve(truth, many, OVERLAP, seconds=seconds)
    details |= {"recall_at_few": curve.recall_at(FEW), "recall_at_some": curve.recall_at(SOME)}
    if len(curve.thresholds):
        details["best_f1"] = float(curve.f1[curve.best])
    quiet = words_found = 0  # events where there is none at all; words with an event that was found
    for one in detected:
        quiet += detection.count_within(one.events, *one.soundscape.quiet_s)
        pairs = detection.match(one.truth, one.events, OVERLAP)
        words_found += len({one.truth[pair.truth].label for pair in pairs})
    details |= {
        "low": float(low),
        "high": float(high),
        "quiet": float(quiet),
        "words": float(sum(len(one.soundscape.words) for one in detected)),
        "words_found": float(words_found),
        "psds": psds(truth, by_threshold(many), seconds=seconds),
    }
    numbered = [(number, event) for number, one in enumerate(detected) for event in one.events]
    columns = (curve.thresholds, curve.precision, curve.recall, curve.false_alarms_per_hour)
    arrays: Arrays = {
        "blocks": blocks,
        "recording": np.array([number for number, _ in numbered], np.int64),
        "label": np.array([event.label for _, event in numbered], np.str_),
        "times": np.array([(e.start_s, e.end_s, e.score) for _, e in numbered]).reshape(-1, 3),
        "curve": np.stack(columns),
    }
    return Row(cell, METRIC, details["f1"], n=len(truth), details=details), arrays
