"""The one store: decisions, events, verdicts, sources and levels; and decisions made again.

In come decisions with what decided them, and the reports of a listener; out go rows, lines of JSON
and replays. May import the classifier, the detector and every room below them.
"""

from driftscore.decisions.records import Decider as Decider
from driftscore.decisions.records import Decision as Decision
from driftscore.decisions.records import RecordedDecision as RecordedDecision
from driftscore.decisions.records import judged_decision as judged_decision
from driftscore.decisions.records import label_decision as label_decision
from driftscore.decisions.replay import Replay as Replay
from driftscore.decisions.replay import Replayer as Replayer
from driftscore.decisions.store import DecisionStore as DecisionStore
from driftscore.decisions.store import audited_events as audited_events
from driftscore.decisions.store import audited_judgements as audited_judgements
from driftscore.decisions.store import audited_results as audited_results
from driftscore.decisions.store import open_store as open_store
