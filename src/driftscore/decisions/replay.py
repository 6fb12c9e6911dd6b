"""Decide again what a store recorded: the same audio must give the same decision.

The audio is the copy in the store, or the recording itself if its content is still the same. The
model must have the fingerprint that it had, and the head must be the one that was recorded. The
audio of a listener's event is not enough to decide it again, since the background of the minutes
before is part of the decision.
"""

from dataclasses import dataclass
from pathlib import Path

import soundfile

from driftscore.audio.recordings import Audio, Recording
from driftscore.backbones import DEFAULT_BACKBONE
from driftscore.decisions.records import (
    DECIDED,
    RecordedDecision,
    RecordingRef,
    decided_labels,
    unpacked_head,
    unpacked_search,
)
from driftscore.decisions.store import DecisionStore, recording_digest
from driftscore.detector import event_batches
from driftscore.embedder import Embedder
from driftscore.errors import DriftscoreError, FormatError
from driftscore.events.tracking import Event
from driftscore.storage.files import is_file, reading

TOLERANCE = 1e-4
"""How far a score may be from the recorded one: the last bits differ between processors."""
OWN_MODELS = (DEFAULT_BACKBONE, "fake")  # without files of others


@dataclass(frozen=True)
class Replay:
    """What became of a decision: decided again as before, differently, or not at all (None)."""

    same: bool | None
    note: str


class Replayer:
    """Decides the decisions of a store again; models are loaded once.

    Parameters
    ----------
        store: where the decisions are.
        backbone: the model, by its name or path or as an embedder; None for those of the store, of
            which only models that come with driftscore are loaded: a store may come from anyone,
            and names no path that is opened, no module that is imported and nothing to download.

    """

    def __init__(self, store: DecisionStore, *, backbone: str | Embedder | None = None) -> None:
        self._store = store
        self._own = Embedder(backbone) if isinstance(backbone, str) else backbone
        if self._own is not None:
            self._own.start()  # a model that cannot be loaded is an error of the caller
        self._embedders: dict[str, Embedder] = {}
        self._events: tuple[object, list[Event]] = (None, [])

    def replay(self, decision: RecordedDecision) -> Replay:
        """Decide again; `FormatError` if what decided, or the copy of the audio, was changed."""
        if not decision.intact:
            return Replay(False, "its line was changed after it was written")
        if not decision.recording.complete:
            return Replay(None, "the sound before it is part of the decision")
        content = self._store.decider(decision.head_sha256)
        if content is None:
            return Replay(None, "its head was deleted")
        head, search, evidence = unpacked_head(content), None, decision.evidence
        decided = decision.outcome.decided
        if decided is not None or evidence.fitting:
            content = self._store.decider(decision.search_sha256 or "")
            if content is None:
                return Replay(None, "what its label had to reach was deleted")
            search = unpacked_search(content, head)
        audio = self._audio(decision.recording)
        if audio is None:
            return Replay(None, "its audio was not kept, and the recording is gone or has changed")
        if self._own is None and decision.backbone not in OWN_MODELS:
            return Replay(
                None, f"its model {decision.backbone!r} does not come with driftscore: --backbone"
            )
        try:
            embedder = self._own or self._embedders.setdefault(
                decision.backbone, Embedder(decision.backbone)
            )
            fingerprint = embedder.backbone.fingerprint
        except DriftscoreError as error:
            return Replay(None, f"its model cannot be loaded: {error}")
        if fingerprint != decision.fingerprint:
            return Replay(
                False,
                f"the model {decision.backbone} has changed: its fingerprint is "
                f"{fingerprint[:24]}, not {decision.fingerprint[:24]}",
            )
        if decided is not None and search is not None:
            key = decision.recording.sha256, decision.search_sha256, decision.head_sha256
            if self._events[0] != key:
                batches = event_batches(audio, search, embedder.backbone)
                self._events = key, [event for batch, _ in batches for event in batch]
            alike = [event for event in self._events[1] if event.label == decided.label]
            if not any(_same(event, decided) for event in alike):
                shown = [{name: getattr(event, name) for name in DECIDED} for event in alike[:3]]
                return Replay(False, f"the audio gives {shown or 'no event of this label'} now")
        else:
            embedded = next(iter(embedder.embed([audio])))
            if embedded.error:
                return Replay(False, str(embedded.error))
            values = head.scores(embedded.embedding)[0].tolist()
            scores = dict(zip(head.labels, values, strict=True))
            if scores.keys() != evidence.scores.keys():
                return Replay(False, "the recorded scores are not those of the head's labels")
            labels = decided_labels(scores, evidence.threshold, search=search, every=evidence.every)
            off = max(abs(scores[name] - value) for name, value in evidence.scores.items())
            if labels != decision.outcome.labels or not off <= TOLERANCE:
                return Replay(False, f"{labels} now; scores differ by up to {off:.2g}")
        return Replay(True, "decided again from the audio")

    def _audio(self, recording: RecordingRef) -> Recording | None:
        """Return the audio of a decision: its copy, or the recording if it has not changed."""
        path = None if recording.audio is None else self._store.copy_of(recording.audio)
        if path is not None:
            digests = {recording_digest(path)}
            if path.suffix == ".wav":  # of samples the digest is that of the samples
                with reading(path, "copy of samples"):
                    digests.add(recording_digest(Audio(*soundfile.read(path, dtype="float32"))))
            if recording.sha256 not in digests:
                raise FormatError(f"{path} is not the audio that was recorded: it has changed")
            return path.read_bytes() if path.suffix == ".bin" else str(path)
        name = recording.name
        if name is not None and is_file(name) and Path(name).stat().st_size:
            return name if recording_digest(name) == recording.sha256 else None
        return None


def _same(event: Event, decided: Event) -> bool:
    """Return whether two events are the same, but for the last bits of their scores."""
    names = ("start_s", "end_s", "score", "threshold")
    pairs = [(getattr(event, name) or 0.0, getattr(decided, name) or 0.0) for name in names]
    return event.rejected == decided.rejected and all(abs(a - b) <= TOLERANCE for a, b in pairs)
