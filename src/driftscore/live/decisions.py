"""The events of a listener as decisions of an audit log."""

from collections.abc import Mapping

import numpy as np

from driftscore.audio import Audio
from driftscore.audit import EVENT, AuditLog, DecidedBy, Decision
from driftscore.classifier import Classifier
from driftscore.detector import Detector
from driftscore.events import Event
from driftscore.live.records import EventRecord
from driftscore.live.trace import ScoreTrace, TracedWindow


class EventAudit:
    """Records each event, also rejected ones, with the scores that it was decided from."""

    def __init__(self, log: AuditLog, classifier: Classifier) -> None:
        self.log = log
        self._classifier = classifier
        self._by: tuple[Detector, DecidedBy] | None = None

    def record(
        self,
        record: EventRecord,
        decided: Event,
        detector: Detector,
        trace: ScoreTrace,
        *,
        finished_s: float | None = None,
        audio: Audio | None = None,
    ) -> None:
        """Append an event: as the scores decided it, and as it was reported."""
        outcome = {
            "id": str(record.id),
            "reported": not record.event.rejected,
            "rejected": record.event.rejected,
            "start": record.fields()["start"],
            "end": record.fields()["end"],
            "clip": record.clip,
            "withheld": record.withheld,
            "decided": {
                "label": decided.label,
                "start_s": decided.start_s,
                "end_s": decided.end_s,
                "score": decided.score,
                "threshold": decided.threshold,
                "rejected": decided.rejected,
            },
        }
        evidence = event_evidence(decided, detector, trace.since(decided.start_s), finished_s)
        self.log.record(
            Decision(EVENT, record.source, outcome, evidence), self._decided_by(detector), audio
        )

    def _decided_by(self, detector: Detector) -> DecidedBy:
        if self._by is None or self._by[0] is not detector:
            words = Classifier(
                **{  # type: ignore[arg-type]
                    **self._classifier.get_params(),
                    "labels": (*detector.watch.texts, *detector.watch.competing),
                    "backbone": detector.embedder,
                }
            ).fit()
            self._by = detector, DecidedBy.of(words, detector.head)
        return self._by[1]


def event_evidence(
    event: Event, detector: Detector, windows: list[TracedWindow] | None, finished_s: float | None
) -> Mapping[str, object]:
    """Return the scores of a label and its negative words in the windows of an event."""
    criteria, settings = detector.search.criteria, detector.settings
    c = criteria.labels.index(event.label)
    count = len(criteria.labels)
    opposed = criteria.opposed[c] if criteria.opposed.size else np.ones(len(criteria.negatives))
    columns = [c, *(count + n for n in np.flatnonzero(opposed).tolist())]
    return {
        "label": event.label,
        "multiple": float(criteria.thresholds[c]),
        "min_duration_s": float(criteria.min_durations_s[c]),
        "negatives": [criteria.negatives[n] for n in np.flatnonzero(opposed).tolist()],
        "settings": {"gap_s": settings.gap_s, "leave": settings.leave, "hold_s": settings.hold_s},
        "hop_s": detector.hop_s,
        "windows": None if windows is None else [[w[0], w[1]] for w in windows],
        "above": None if windows is None else [w[2][columns].tolist() for w in windows],
        "spreads": None if windows is None else [w[3][columns].tolist() for w in windows],
        "finished_s": finished_s,
    }
