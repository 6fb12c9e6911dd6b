"""The library's detector with a scoring of the lab: a recording and words -> found events."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from driftscore.classifier import Classifier
from driftscore.embedder import Embedder
from driftscore.errors import UsageError
from driftscore.events import Detection
from driftscore.lab.conditions import Scoring
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.soundscapes.rendering import truth_path
from driftscore.lab.corpora.soundscapes.truth import read_soundscape
from driftscore.lab.detection import DetectedEvent
from driftscore.lab.runs.scorings import needs_of, supplied_setting, uses_calibration
from driftscore.rules import Needs
from driftscore.settings import load_preset

PROTOCOL = 2
"""Part of the key of every cell about events; raise it whenever the detector changes a number."""

MANY = 6.0
"""False alarms per hour and label that are asked for where unlikely events are wanted as well."""

_GIVEN = Needs.NOISE | Needs.POOL | Needs.BACKGROUND


def detection_settings() -> dict[str, object]:
    """Return everything that can change what is found, apart from the model and the scoring."""
    return {"protocol": PROTOCOL, "many": MANY, **asdict(Detection())}


def find_events(
    embedder: Embedder, words: Sequence[str], scoring: Scoring, path: str, unlikely: bool
) -> Iterator[DetectedEvent]:
    """Yield the events of a recording with default settings, or `unlikely` ones as well.

    Their scores are multiples of their thresholds.
    """
    check_detectable(scoring)
    classifier = Classifier(
        words,
        backbone=embedder,
        rule=scoring.rule,
        settings=_settings(scoring),
        prompts=load_preset().prompts.changed(
            pack=scoring.pack, direction=scoring.direction, reference=scoring.reference
        ),
        progress=False,
    )
    settings = Detection(false_alarms=MANY) if unlikely else Detection()
    for event in classifier.events(path, settings=settings):
        score = event.score / event.threshold if event.threshold else event.score
        yield DetectedEvent(event.label, event.start_s, event.end_s, score)


def hours_of(clip: Clip) -> float:
    """Return the length of a soundscape in hours, by its truth."""
    return read_soundscape(truth_path(clip.path)).seconds / 3600


def check_detectable(scoring: Scoring) -> None:
    """Raise an error for a scoring that must be given something that a detector has not."""
    if needs_of(scoring) & _GIVEN or supplied_setting(scoring) not in ("", "calibration"):
        raise UsageError(
            f"{scoring.name} needs recordings or the place of each clip, which a detector has not; "
            "leave it out of the grid"
        )


def _settings(scoring: Scoring) -> dict[str, object]:
    settings: dict[str, object] = {} if scoring.beta is None else {"beta": scoring.beta}
    return settings | {"standardised": uses_calibration(scoring)}
