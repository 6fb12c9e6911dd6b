"""Labels of recordings as decisions of an audit log."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from driftscore.audio import Recording
from driftscore.audit.decided import LABEL, DecidedBy, Decision
from driftscore.audit.log import AuditLog
from driftscore.classifier import Classifier
from driftscore.detector import Detector
from driftscore.embedder import Embedded
from driftscore.errors import FormatError, UsageError
from driftscore.eventstream import Search
from driftscore.result import Result
from driftscore.thresholds import fitting
from driftscore.vectors import Vector


def label_decision(result: Result, threshold: float | None = None) -> Decision:
    """Return the decision about a recording: its best label, or all labels above a threshold."""
    if result.scores is None:
        raise UsageError(f"{result.source} was not decided: {result.error}")
    scores = dict(zip(result.labels, result.scores.tolist(), strict=True))
    evidence = {"scores": scores, "threshold": threshold, "fitting": False}
    return Decision(LABEL, result.source, label_outcome(evidence), evidence)


def judged_decision(
    detector: Detector, source: str, embedding: Vector, *, every: bool = False
) -> Decision:
    """Return the decision of `Detector.judge`: the best label that fits, or every one."""
    scores = detector.head.scores(embedding)[0].tolist()
    evidence = {
        "scores": dict(zip(detector.head.labels, scores, strict=True)),
        "threshold": None,
        "fitting": True,
        "every": every,
    }
    return Decision(LABEL, source, label_outcome(evidence, detector.search), evidence)


def label_outcome(
    evidence: Mapping[str, object], search: Search | None = None
) -> dict[str, object]:
    """Return what follows from the scores of a recording; a search says which labels fit."""
    scores, threshold = evidence["scores"], evidence["threshold"]
    assert isinstance(scores, dict)  # noqa: S101 (made here, or checked when it was read)
    names = list(scores)
    if evidence["fitting"]:
        names = _fitting_labels(scores, search)
    ranked = sorted(names, key=lambda name: -scores[name])
    if isinstance(threshold, (int, float)):
        return {"labels": [name for name in ranked if scores[name] >= threshold]}
    return {"labels": ranked if evidence.get("every") else ranked[:1]}


def _fitting_labels(scores: Mapping[str, float], search: Search | None) -> list[str]:
    if search is None or search.prior is None or search.spreads is None:
        raise FormatError("Whether a label fits follows from a calibration, which is not recorded")
    criteria = search.criteria
    words = (*criteria.labels, *criteria.negatives)
    if tuple(scores) != words:
        raise FormatError("The recorded scores are not those of the labels and negative words")
    values = np.array([scores[word] for word in words])
    fits = fitting(values, search.prior, search.spreads, criteria.opposed)
    return [name for name, fit in zip(criteria.labels, fits, strict=True) if fit]


def audited_results(
    log: AuditLog,
    classifier: Classifier,
    recordings: Sequence[Recording],
    results: Iterable[Result] | None = None,
) -> Iterator[Result]:
    """Yield the result of each recording, and record the decision; one that failed has none.

    `results` are those of `classifier.classify`, if the caller has them already.
    """
    by = DecidedBy.of(classifier)
    given = classifier.classify(recordings) if results is None else results
    for recording, result in zip(recordings, given, strict=True):
        if not result.error:
            log.record(label_decision(result, classifier.threshold), by, recording)
        yield result


def audited_judgements(
    log: AuditLog, detector: Detector, recordings: Sequence[Recording], embedded: Iterable[Embedded]
) -> Iterator[Embedded]:
    """Yield embedded recordings, and record which label fits each, if one does."""
    by = DecidedBy.of(detector)
    for recording, one in zip(recordings, embedded, strict=True):
        if not one.error:
            log.record(judged_decision(detector, one.source, one.embedding), by, recording)
        yield one
