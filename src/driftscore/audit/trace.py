"""The scores of the last windows of a search: what an event was decided from."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypedDict

import numpy as np

from driftscore.events import Criteria, Detection, Event, Tracker
from driftscore.eventstream import Search
from driftscore.vectors import Scores

KEPT_S = 300.0
FIELDS = ("label", "start_s", "end_s", "score", "threshold", "rejected")
"""What of an event follows from the scores of its windows."""
_BEFORE = 2  # windows
TracedWindow = tuple[float, float, Scores, Scores]
"""Start, end, scores above the background and what they are divided by."""


class EventEvidence(TypedDict):
    """The scores of a label and its negative words in the windows that decided an event.

    `windows` (start and end), `above` (scores above the background) and `spreads` (what they are
    divided by; one row if it is the same for all) have a row per window; they are None where the
    first windows are gone.
    """

    label: str
    multiple: float
    """The threshold, as a multiple of the spread."""
    min_duration_s: float
    negatives: list[str]
    settings: dict[str, float]
    hop_s: float
    windows: list[list[float]] | None
    above: list[list[float]] | None
    spreads: list[list[float]] | None
    finished_s: float | None
    """The end of the recording, if it ended the event."""


class ScoreTrace:
    """Follows a search: keeps the scores of some minutes, and what each event followed from."""

    search: Search

    def __init__(self, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._windows: deque[TracedWindow] = deque()
        self._cut = False
        self._evidence: dict[Event, EventEvidence] = {}

    def begin(self, search: Search) -> None:
        """Take what decides."""
        self.search = search
        self._windows = deque(maxlen=max(2, round(self._kept_s / search.hop_s)))

    def window(self, start_s: float, end_s: float, above: Scores, spreads: Scores | float) -> None:
        """Add the next window."""
        self._cut = self._cut or len(self._windows) == self._windows.maxlen
        scale = np.broadcast_to(np.asarray(spreads, np.float64), above.shape)
        self._windows.append((start_s, end_s, above.copy(), scale.copy()))

    def decided(self, events: Sequence[Event], end_s: float | None) -> None:
        """Keep what these events were decided from, until it is taken."""
        for event in events:
            windows = self._since(event.start_s)
            self._evidence[event] = event_evidence(event, self.search, windows, end_s)

    def take(self, event: Event) -> EventEvidence:
        """Return what an event was decided from, once."""
        return self._evidence.pop(event)

    def _since(self, start_s: float) -> list[TracedWindow] | None:
        """Return the windows of an event and some before them; None if those are gone.

        Windows before the event change nothing: it was not joined to anything in them.
        """
        windows = list(self._windows)
        first = next((n for n, window in enumerate(windows) if window[1] >= start_s), 0) - _BEFORE
        if first < 0 and self._cut:
            return None
        return windows[max(0, first) :]


def event_evidence(
    event: Event, search: Search, windows: list[TracedWindow] | None, end_s: float | None
) -> EventEvidence:
    """Return the scores of a label and its negative words in the windows that decided an event."""
    criteria, settings = search.criteria, search.settings
    c, count = criteria.labels.index(event.label), len(criteria.labels)
    opposed = criteria.opposed[c] if criteria.opposed.size else np.ones(len(criteria.negatives))
    against = np.flatnonzero(opposed).tolist()
    columns = [c, *(count + n for n in against)]
    kept = None if windows is None else [window[3][columns].tolist() for window in windows]
    constant = kept is not None and all(row == kept[0] for row in kept)
    evidence = EventEvidence(
        label=event.label,
        multiple=float(criteria.thresholds[c]),
        min_duration_s=float(criteria.min_durations_s[c]),
        negatives=[criteria.negatives[n] for n in against],
        settings={"gap_s": settings.gap_s, "leave": settings.leave, "hold_s": settings.hold_s},
        hop_s=search.hop_s,
        windows=None if windows is None else [[window[0], window[1]] for window in windows],
        above=None if windows is None else [window[2][columns].tolist() for window in windows],
        spreads=kept[:1] if kept is not None and constant else kept,
        finished_s=end_s,
    )
    return _shortened(evidence, event)


def decided_again(evidence: EventEvidence) -> Iterator[tuple[int, Event]]:
    """Yield the events that follow from recorded scores, each after how many windows.

    Events at the end of the recording come after one more than there are.
    """
    criteria = Criteria(
        (evidence["label"],),
        np.array([evidence["multiple"]]),
        np.array([evidence["min_duration_s"]]),
        tuple(evidence["negatives"]),
    )
    settings = Detection().changed(**evidence["settings"])
    tracker = Tracker(criteria, settings, hop_s=evidence["hop_s"])
    windows, scales = evidence["windows"] or [], evidence["spreads"] or []
    if len(scales) == 1:  # the same for all
        scales = scales * len(windows)
    for number, ((start_s, end_s), above, scale) in enumerate(
        zip(windows, evidence["above"] or [], scales, strict=True), start=1
    ):
        for event in tracker.feed(start_s, end_s, np.array(above), np.array(scale)):
            yield number, event
    if evidence["finished_s"] is not None:
        for event in tracker.finish(evidence["finished_s"]):
            yield len(windows) + 1, event


def event_fields(event: Event) -> dict[str, object]:
    """Return what of an event follows from the scores of its windows."""
    return {name: getattr(event, name) for name in FIELDS}


def _shortened(evidence: EventEvidence, event: Event) -> EventEvidence:
    """Return evidence without the windows after the one that decided."""
    windows, above, spreads = evidence["windows"], evidence["above"], evidence["spreads"]
    if windows is None or above is None or spreads is None:
        return evidence
    wanted = event_fields(event)
    for count, found in decided_again(evidence):
        if event_fields(found) == wanted and count <= len(windows):
            shorter = EventEvidence(**evidence)
            shorter["windows"], shorter["above"] = windows[:count], above[:count]
            shorter["spreads"], shorter["finished_s"] = spreads[:count], None
            return shorter
    return evidence
