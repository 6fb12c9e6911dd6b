"""Decisions and what decided them, as lines of JSON hold them, and what a listener reports.

The names of the JSON fields are a contract with users: they do not change.
"""

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, Literal, get_args

import msgspec
import numpy as np

from driftscore.backbones.vectors import Scores, Vector
from driftscore.classifier import Classifier
from driftscore.detector import Detector
from driftscore.errors import DriftscoreError, FormatError, UsageError
from driftscore.events.stream import EventRules
from driftscore.events.thresholds import fitting_labels
from driftscore.events.tracking import Detection, Event, LabelRules
from driftscore.events.watchlist import WatchList
from driftscore.scoring.head import Head, Result
from driftscore.system.lazy import lazy_property

FORMAT = 1
LABEL, EVENT = "label", "event"
START, END, WITHDRAWN = "start", "end", "withdrawn"
"""The phases of an event in messages."""
RIGHT, WRONG, UNSURE = "right", "wrong", "unsure"
LIVE_DIGITS = {"score": 3, "threshold": 3, "snr_db": 1, "level_db": 1}
EVENT_FIELDS = ("id", "source", "label", "score", "threshold", "start", "end", "duration_s",
                "snr_db", "level_db", "rejected", "clip", "withheld")  # fmt: skip
DECIDED = ("label", "start_s", "end_s", "score", "threshold", "rejected")
"""What of an event follows from the scores of its windows."""
JsonFields = dict[str, str | float | int | bool | None]
_Seconds = Annotated[float, msgspec.Meta(ge=1e-3, le=1e6)]


@dataclass(frozen=True)
class Decision:
    """One decision: its kind, the recording, source or request, what came out, and from what."""

    kind: str
    source: str
    outcome: Mapping[str, object]
    evidence: Mapping[str, object]


@dataclass(frozen=True, eq=False)
class Decider:
    """What decides: a head, its model, and what both were made of."""

    head: Head
    search: EventRules | None
    """How events are found and whether a label fits at all; None if the head alone decides."""
    fields: Mapping[str, object]
    """What a line of JSON says of the head, of its model and of what both were made of."""

    @staticmethod
    def of(decider: Classifier | Detector, search: EventRules | None = None) -> "Decider":
        """Return what a classifier or a detector decides by; `search` replaces the detector's."""
        if isinstance(decider, Detector):
            head, search, calibration = decider.head, search or decider.rules, decider.calibration
            embedder = decider.embedder
        else:
            fitted = decider if hasattr(decider, "head_") else decider.fit()
            head, calibration, embedder = fitted.head_, fitted.calibration_, fitted.embedder_
        fields = {
            "labels": list(head.labels),
            "prompts_sha256": head.made_by.get("prompts_sha256"),
            "backbone": embedder.spec or embedder.backbone.name,
            "fingerprint": embedder.backbone.fingerprint,
            "rule": head.made_by.get("rule", ""),
            "calibration": None if calibration is None else calibration.digest,
        }
        return Decider(head, search, fields)

    @lazy_property
    def contents(self) -> list[tuple[str, bytes]]:
        """The head and, if there is one, the search: their digests and bytes."""
        contents = [packed(one) for one in (self.head, self.search) if one is not None]
        return [(hashlib.sha256(content).hexdigest(), content) for content in contents]


class _Search(msgspec.Struct):
    """Everything that decides which events there are, besides the head."""

    criteria: LabelRules
    settings: Detection
    window_s: _Seconds
    hop_s: _Seconds
    prior: Scores | None
    spreads: Scores | None


def packed(decider: Head | EventRules) -> bytes:
    """Return a head or a search as bytes: the same for the same content."""
    if isinstance(decider, Head):
        labels = json.dumps(decider.labels).encode()
        return labels + decider.weights.tobytes() + decider.offsets.tobytes()
    search = msgspec.convert(decider, _Search, from_attributes=True)
    return msgspec.json.encode(search, enc_hook=lambda array: array.tolist(), order="sorted")


def unpacked_head(content: bytes) -> Head:
    """Return a head from its bytes."""
    try:
        labels, end = json.JSONDecoder().raw_decode(content.decode("latin-1"))
        numbers = np.frombuffer(content[end:], np.float32)
        weights, offsets = numbers[: -len(labels)], numbers[-len(labels) :]
        return Head(tuple(labels), weights.reshape(len(labels), -1), offsets)
    except (ValueError, TypeError, RecursionError, DriftscoreError) as error:
        raise FormatError(f"The head of a decision is damaged: {error}") from error


def unpacked_search(content: bytes, head: Head) -> EventRules:
    """Return a search with its head from its bytes."""

    def array(kind: Any, values: object) -> object:
        return np.array(values, get_args(get_args(kind)[1])[0])

    try:
        search = msgspec.json.decode(content, type=_Search, dec_hook=array)
        criteria, words = search.criteria, (*search.criteria.labels, *search.criteria.negatives)
        count, columns = len(criteria.labels), [search.prior, search.spreads]
        if not (
            head.labels == words
            and criteria.thresholds.shape == criteria.min_durations_s.shape == (count,)
            and criteria.opposed.shape == (count, len(criteria.negatives))
            and criteria.low.shape in ((0,), (count,))
            and all(one is None or one.shape == (len(words),) for one in columns)
        ):
            raise ValueError("its labels are not those of the head")
    except (ValueError, TypeError, LookupError, DriftscoreError) as error:
        raise FormatError(f"The search of a decision is damaged: {error}") from error
    return EventRules(head, **msgspec.structs.asdict(search))


def label_decision(result: Result, threshold: float | None = None) -> Decision:
    """Return the decision about a recording: its best label, or all labels above a threshold."""
    if result.scores is None:
        raise UsageError(f"{result.source} was not decided: {result.error}")
    scores = dict(zip(result.labels, result.scores.tolist(), strict=True))
    labels = decided_labels(scores, threshold)
    evidence = {"scores": scores, "threshold": threshold, "fitting": False}
    return Decision(LABEL, result.source, {"labels": labels}, evidence)


def judged_decision(
    detector: Detector, source: str, embedding: Vector, *, every: bool = False
) -> Decision:
    """Return the decision of `Detector.label_or_none`: the best label that fits, or every one."""
    values = detector.head.scores(embedding)[0].tolist()
    scores = dict(zip(detector.head.labels, values, strict=True))
    labels = decided_labels(scores, search=detector.rules, every=every)
    evidence = {"scores": scores, "threshold": None, "fitting": True, "every": every}
    return Decision(LABEL, source, {"labels": labels}, evidence)


def event_decision(source: str, event: Event, search: EventRules) -> Decision:
    """Return the decision about an event, also about one that is rejected."""
    criteria, settings = search.criteria, search.settings
    c = criteria.labels.index(event.label)
    decided = {name: getattr(event, name) for name in DECIDED}
    outcome = {"decided": decided, "reported": not event.rejected, "rejected": event.rejected}
    evidence = {
        "label": event.label,
        "multiple": float(criteria.thresholds[c]),
        "min_duration_s": float(criteria.min_durations_s[c]),
        "negatives": [criteria.negatives[n] for n in np.flatnonzero(criteria.opposed[c])],
        "settings": {"gap_s": settings.gap_s, "leave": settings.leave, "hold_s": settings.hold_s},
        "hop_s": search.hop_s,
    }
    return Decision(EVENT, source, outcome, evidence)


def decided_labels(
    scores: Mapping[str, float],
    threshold: float | None = None,
    *,
    search: EventRules | None = None,
    every: bool = False,
) -> list[str]:
    """Return the labels that follow from scores, best first; with a search only those that fit."""
    names = list(scores)
    if search is not None:
        criteria = search.criteria
        words = (*criteria.labels, *criteria.negatives)
        if search.prior is None or search.spreads is None or tuple(scores) != words:
            raise FormatError("Whether a label fits does not follow from what is recorded")
        values = np.array([scores[word] for word in words])
        fits = fitting_labels(values, search.prior, search.spreads, criteria.opposed)
        names = [name for name, fit in zip(criteria.labels, fits, strict=True) if fit]
    ranked = sorted(names, key=lambda name: -scores[name])
    if threshold is not None:
        return [name for name in ranked if scores[name] >= threshold]
    return ranked if every else ranked[:1]


class RecordingRef(msgspec.Struct, frozen=True):
    """Which recording a decision is about, and where its copy is.

    Attributes:
        name: its path; None for samples and the body of a request.
        sha256: the digest of its content; None for a stream or a URL.
        audio: the copy in the store's folder of copies; None if there is none.
        complete: whether the decision followed from this audio alone.

    """

    name: str | None = None
    sha256: str | None = None
    audio: str | None = None
    complete: bool = True


class DecisionOutcome(msgspec.Struct):
    """What was decided: labels of a recording, or an event, and how a listener reported it."""

    labels: list[str] = []
    decided: Event | None = None
    rejected: str = ""
    start: str = ""
    end: str = ""


class DecisionEvidence(msgspec.Struct):
    """What the labels of a recording followed from; of an event only what is read again."""

    scores: dict[str, float] = {}
    threshold: float | None = None
    fitting: bool = False
    every: bool = False


class RecordedDecision(msgspec.Struct, kw_only=True):
    """A decision of a store, as its line of JSON says."""

    id: int
    line: str
    intact: bool
    """Whether the line is as it was written."""
    time: str
    kind: Literal["label", "event"]
    source: str
    outcome: DecisionOutcome
    evidence: DecisionEvidence
    prompts_sha256: str | None
    backbone: str
    fingerprint: str
    rule: str
    calibration: str | None
    head_sha256: str
    search_sha256: str | None
    recording: RecordingRef

    @staticmethod
    def of(id: int, line: str) -> "RecordedDecision":
        """Check a line and return what it says."""
        try:
            fields = json.loads(line)
            needed = "decided" if fields["kind"] == EVENT else "labels"
            if fields["format"] != FORMAT or needed not in fields["outcome"]:
                raise ValueError(f"it is not a decision of the format {FORMAT}")
            intact = fields.get("sha256") == content_digest(fields)
            values = {**fields, "id": id, "line": line, "intact": intact}
            return msgspec.convert(values, RecordedDecision)
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise FormatError(f"Decision {id} is damaged: {error}") from error

    @property
    def labels(self) -> list[str]:
        """The labels that were decided for, also that of a rejected event."""
        event = self.outcome.decided
        return self.outcome.labels if event is None else [event.label]


def json_line(fields: Mapping[str, object]) -> str:
    """Return a line of JSON with its digest."""
    signed = {**fields, "sha256": content_digest(fields)}
    return escaped(json.dumps(signed, ensure_ascii=False, allow_nan=False))


def escaped(text: str) -> str:
    """Return a text in which what is not Unicode, as in names of files, is escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def content_digest(fields: Mapping[str, object], without: tuple[str, ...] = ("sha256",)) -> str:
    """Return the sha256 of the content of a line, however it was written.

    It finds a line that was damaged or edited, not someone who computes it again.
    """
    content = {key: value for key, value in fields.items() if key not in without}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class StoredEvent:
    """An event of a source or a file, what became of it, and what a person said of it.

    Attributes:
        id: rises with every event of a store.
        source: the name of the source, or the path of the file.
        label, score, threshold, level_db, snr_db: as in `Event`.
        start_s, end_s: seconds since 1970 for a source, from the start for a file.
        offset_s: seconds that the local zone of a source was ahead of UTC; None for a file.
        rejected: why it is not reported; empty for an event that is.
        clip: the file with its audio; empty if there is none.
        withheld: why there is no clip although clips are written.
        verdict: right, wrong, unsure, or empty.
        cooling: whether no message is sent of it, within the cool-down of its label.
        start_id: the id of the message that said that it has begun; None if there was none.

    """

    id: int
    source: str
    label: str
    score: float
    threshold: float | None
    start_s: float
    end_s: float
    offset_s: int | None = None
    level_db: float | None = None
    snr_db: float | None = None
    rejected: str = ""
    clip: str = ""
    withheld: str = ""
    verdict: str = ""
    cooling: bool = False
    start_id: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies an event of a file: path, label and start in hundredths of a second."""
        return self.source, self.label, f"{self.start_s:.2f}"

    @property
    def start(self) -> datetime:
        """When it began, in the zone of its source."""
        return datetime.fromtimestamp(self.start_s, timezone(timedelta(seconds=self.offset_s or 0)))

    @property
    def end(self) -> datetime:
        """When it ended, in the zone of its source."""
        return datetime.fromtimestamp(self.end_s, self.start.tzinfo)

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return round(self.end_s - self.start_s, 3)

    def rounded(self) -> "StoredEvent":
        """Return the event with the digits of a listener's report."""
        return replace(self, **{
            name: round(value, digits) for name, digits in LIVE_DIGITS.items()
            if (value := getattr(self, name)) is not None
        })  # fmt: skip

    def fields(self) -> JsonFields:
        """Return what a line of JSON has of an event."""
        event = self.rounded()
        fields = {name: getattr(event, name) for name in EVENT_FIELDS}
        return {**fields, "id": str(self.id), "start": iso(self.start), "end": iso(self.end)}

    @property
    def is_sent(self) -> bool:
        """Whether a message is sent of it."""
        return not self.rejected and not self.cooling

    def message(self) -> JsonFields:
        """Return what a message says of it."""
        names = ("rejected", "withheld")
        fields = {name: value for name, value in self.fields().items() if name not in names}
        return {"phase": END, "start_id": self.start_id and str(self.start_id), **fields}

    def summary(self) -> JsonFields:
        """Return what the service tells of an event."""
        names = ("source", "label", "score", "start", "end", "duration_s", "snr_db", "clip")
        fields = {name: value for name, value in self.fields().items() if name in names}
        return {"id": self.id, **fields, "verdict": self.verdict, "threshold": self.threshold}


@dataclass(frozen=True)
class Started:
    """An event that has begun: its end is reported as a `StoredEvent` with this `start_id`.

    `withdrawn` says why there is no event after all; it follows a report without it. `start_s` is
    in seconds since 1970, `offset_s` as in `StoredEvent`.
    """

    id: int
    source: str
    label: str
    score: float
    start_s: float
    offset_s: int
    cooling: bool = False
    withdrawn: str = ""

    @property
    def is_sent(self) -> bool:
        """Whether a message is sent of it."""
        return not self.cooling

    def message(self) -> JsonFields:
        """Return what a message says of it."""
        why: JsonFields = {"withdrawn": self.withdrawn} if self.withdrawn else {}
        return {
            "phase": WITHDRAWN if self.withdrawn else START,
            "start_id": str(self.id),
            "id": str(self.id),
            "source": self.source,
            "label": self.label,
            "score": round(self.score, LIVE_DIGITS["score"]),
            "start": iso(
                datetime.fromtimestamp(self.start_s, timezone(timedelta(seconds=self.offset_s)))
            ),
            **why,
        }


@dataclass(frozen=True)
class OutputStatus:
    """What is wrong with an output; empty when it works again."""

    output: str
    problem: str


@dataclass(frozen=True)
class LevelReport:
    """The A-weighted level of a source over some seconds that ended at a time (ISO 8601).

    `l10` and `l90` are exceeded for 10 % and for 90 % of the time; `unit` is dBA, or dBFS for
    levels relative to full scale.
    """

    source: str
    laeq: float
    l10: float
    l90: float
    unit: str
    seconds: float
    end: str


@dataclass(frozen=True)
class SourceStatus:
    """Whether a source gives audio, since when (ISO 8601), and if not, why."""

    source: str
    online: bool
    since: str
    why: str = ""


@dataclass(frozen=True)
class Words:
    """What a source is searched for."""

    source: str
    watch: WatchList

    @property
    def text(self) -> str:
        """The labels, separated by commas."""
        return ", ".join(self.watch.names)


@dataclass(frozen=True)
class Present:
    """The labels that are present now."""

    source: str
    labels: Set[str]


LiveReport = StoredEvent | Started | LevelReport | SourceStatus | Words | Present | OutputStatus
"""Everything that a listener reports."""


@dataclass(frozen=True)
class StoredSource:
    """A source of a store: its last status, what it is searched for, what is present, its level."""

    name: str
    online: bool
    since: str
    why: str
    words: str
    present: tuple[str, ...]
    level: Mapping[str, str | float] | None
    """The last `LevelReport`, without its source."""


def iso(time: datetime) -> str:
    """Return a time as ISO 8601 with milliseconds and the zone."""
    return time.isoformat(timespec="milliseconds")


def local_now() -> datetime:
    """Return the time of day in the local zone."""
    return datetime.now(UTC).astimezone()
