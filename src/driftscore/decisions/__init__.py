"""The one store: decisions, events, verdicts, sources and levels; and decisions made again.

In come decisions with what decided them, and the reports of a listener; out go rows, lines of JSON
and replays. May import the classifier, the detector and every room below them.
"""

from driftscore.decisions.records import (
    Decider,
    Decision,
    RecordedDecision,
    judged_decision,
    label_decision,
)
from driftscore.decisions.replay import Replay, Replayer
from driftscore.decisions.store import (
    DecisionStore,
    audited_events,
    audited_judgements,
    audited_results,
    open_store,
)

__all__ = [
    "Decider",
    "Decision",
    "DecisionStore",
    "RecordedDecision",
    "Replay",
    "Replayer",
    "audited_events",
    "audited_judgements",
    "audited_results",
    "judged_decision",
    "label_decision",
    "open_store",
]
