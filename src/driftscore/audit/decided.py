"""A decision, and what decided: the values that an audit log records."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from driftscore.classifier import Classifier
from driftscore.detector import Detector
from driftscore.eventstream import Search
from driftscore.head import Head

LABEL, EVENT = "label", "event"


@dataclass(frozen=True)
class Decision:
    """One decision: its kind, what came out, and what it followed from.

    Attributes:
        kind: "label" (of a recording) or "event" (of a recording or a stream).
        source: the name of the recording, the source or the request.
        outcome: what was decided.
        evidence: scores and thresholds from which the same outcome follows.

    """

    kind: str
    source: str
    outcome: Mapping[str, object]
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class DecidedBy:
    """What decides: a head, its model, and what both were made of."""

    head: Head
    backbone: str
    """How the model is named where it is loaded again."""
    fingerprint: str
    prompts_sha256: str | None
    """A digest of the texts that the head was made of; None if the head does not state it."""
    rule: str
    calibration: str | None
    """The digest of the calibration; None if there is none."""
    search: Search | None = None
    """How events are found and whether a label fits at all; None if the head alone decides."""

    @staticmethod
    def of(decider: Classifier | Detector) -> "DecidedBy":
        """Return what a classifier or a detector decides by."""
        if isinstance(decider, Detector):
            head, search, calibration = decider.head, decider.search, decider.calibration
            embedder = decider.embedder
        else:
            fitted = decider if hasattr(decider, "head_") else decider.fit()
            head, search, calibration = fitted.head_, None, fitted.calibration_
            embedder = fitted.embedder_
        prompts = head.made_by.get("prompts_sha256")
        return DecidedBy(
            head,
            embedder.spec or embedder.backbone.name,
            embedder.backbone.fingerprint,
            None if prompts is None else str(prompts),
            str(head.made_by.get("rule", "")),
            None if calibration is None else calibration.digest,
            search,
        )
