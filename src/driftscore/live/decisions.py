"""The events of a listener as decisions of an audit log."""

from dataclasses import replace

from driftscore.audio import Audio
from driftscore.audit import AuditLog, DecidedBy, ScoreTrace, event_decision
from driftscore.events import Event
from driftscore.live.records import EventRecord


def record_event(
    log: AuditLog,
    record: EventRecord,
    decided: Event,
    trace: ScoreTrace,
    by: DecidedBy,
    audio: Audio | None = None,
) -> None:
    """Append an event: as the scores decided it, and as it was reported."""
    decision = event_decision(record.source, decided, trace.take(decided))
    reported = {
        "id": str(record.id),
        "reported": not record.event.rejected,
        "rejected": record.event.rejected,
        "start": record.fields()["start"],
        "end": record.fields()["end"],
        "clip": record.clip,
        "withheld": record.withheld,
    }
    kept = None if audio is None else log.keep(audio, complete=False)
    log.record(replace(decision, outcome={**decision.outcome, **reported}), by, kept)
