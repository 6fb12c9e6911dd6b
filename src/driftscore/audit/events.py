"""Events as decisions of an audit log."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from driftscore.audio import Recording, describe
from driftscore.audit.decided import EVENT, DecidedBy, Decision
from driftscore.audit.keeping import KeptRecording
from driftscore.audit.log import AuditLog
from driftscore.audit.trace import EventEvidence, ScoreTrace, event_fields
from driftscore.detector import Detector
from driftscore.events import Event, Watcher
from driftscore.sliding import WindowStore


def event_decision(source: str, event: Event, evidence: EventEvidence) -> Decision:
    """Return the decision about an event, also about one that is rejected."""
    outcome = {
        "decided": event_fields(event),
        "reported": not event.rejected,
        "rejected": event.rejected,
    }
    return Decision(EVENT, source, outcome, dict(evidence))


class EventAudit:
    """Finds the events of recordings, and records each with the scores that it followed from."""

    def __init__(self, log: AuditLog, detector: Detector) -> None:
        self.log = log
        self._detector = detector
        self._by = DecidedBy.of(detector)

    def events(
        self,
        recording: Recording,
        *,
        source: str = "",
        kept: KeptRecording | None = None,
        seconds: Callable[[float], None] | None = None,
        watcher: Watcher | None = None,
        store: WindowStore | None = None,
    ) -> Iterator[Event]:
        """Yield the events of a recording, also rejected ones, and record each before.

        `kept` stands for the recording where this is not what was given, such as the samples of an
        upload. The other options are those of `Detector.events`.
        """
        trace, about = ScoreTrace(), kept
        for event in self._detector.events(
            recording, rejected=True, seconds=seconds, watcher=watcher, store=store, follower=trace
        ):
            about = about or self.log.keep(recording)
            decision = event_decision(source or describe(recording), event, trace.take(event))
            self.log.record(decision, replace(self._by, search=trace.search), about)
            yield event
