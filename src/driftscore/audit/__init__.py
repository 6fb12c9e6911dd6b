"""Audit: what was decided, from what, by what; and the same decision made again.

    with AuditLog("audit") as log:
        for result in audited_results(log, classifier, recordings):
            ...
        for event in EventAudit(log, classifier.detector()).events("night.wav"):
            ...
    replayer = Replayer("audit")
    for where, entry in read_entries("audit"):
        replayer.replay(entry)

`driftscore classify`, `serve` and `listen` record through the same objects.
"""

from driftscore.audit.decided import DecidedBy, Decision
from driftscore.audit.entries import read_entries
from driftscore.audit.events import EventAudit, event_decision
from driftscore.audit.keeping import Retention
from driftscore.audit.labels import (
    audited_judgements,
    audited_results,
    judged_decision,
    label_decision,
)
from driftscore.audit.log import AuditLog
from driftscore.audit.replay import Replay, Replayer
from driftscore.audit.trace import ScoreTrace

__all__ = [
    "AuditLog",
    "DecidedBy",
    "Decision",
    "EventAudit",
    "Replay",
    "Replayer",
    "Retention",
    "ScoreTrace",
    "audited_judgements",
    "audited_results",
    "event_decision",
    "judged_decision",
    "label_decision",
    "read_entries",
]
