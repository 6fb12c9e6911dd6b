"""Decide again what an audit log recorded: the same inputs must give the same decision.

A label is decided again from the audio: the copy in the log, or the recording itself if its
content is still the same. An event is decided again from the scores of its windows, by the code
that decided it. The model must have the fingerprint that it had, and the head must be the one that
was recorded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from driftscore.audit import EVENT, LABEL, head_digest, label_outcome, recording_digest
from driftscore.embedder import Embedder
from driftscore.errors import DriftscoreError, FormatError
from driftscore.events import Criteria, Detection, Event, Tracker
from driftscore.head import Head

TOLERANCE = 1e-4
"""How far a score may be from the recorded one: the last bits differ between processors."""
EVENT_FIELDS = ("label", "start_s", "end_s", "score", "threshold", "rejected")


@dataclass(frozen=True)
class Replay:
    """What became of an entry: decided again as before, differently, or not at all."""

    same: bool | None
    """None if it could not be decided again."""
    note: str


class Replayer:
    """Decides the entries of one audit folder again; models are loaded once."""

    def __init__(self, folder: str | Path) -> None:
        self._home = Path(folder)
        self._embedders: dict[str, Embedder] = {}

    def replay(self, entry: Mapping[str, object]) -> Replay:
        """Decide one entry again."""
        try:
            if entry["kind"] == LABEL:
                return self._label(cast(dict[str, Any], entry))
            if entry["kind"] == EVENT:
                return self._event(cast(dict[str, Any], entry))
            return Replay(None, f"unknown kind {entry['kind']!r}")
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise FormatError(f"An entry of the audit log is damaged: {error!r}") from error

    def _label(self, entry: dict[str, Any]) -> Replay:
        evidence = entry["evidence"]
        recorded: dict[str, float] = evidence["scores"]
        if label_outcome(recorded, evidence["threshold"]) != entry["outcome"]:
            return Replay(False, "the recorded scores do not give the recorded labels")
        audio = self._audio(entry["recording"])
        if audio is None:
            return Replay(None, "its audio was not kept, and the recording is gone or has changed")
        head = self._head(entry["head_sha256"])
        embedder = self._embedder(entry["backbone"])
        if embedder.backbone.fingerprint != entry["fingerprint"]:
            return Replay(False, f"the model {entry['backbone']} is another one now")
        embedded = next(iter(embedder.embed([audio])))
        if embedded.error:
            return Replay(False, str(embedded.error))
        scores = dict(zip(head.labels, head.scores(embedded.embedding)[0].tolist(), strict=True))
        off = max(abs(scores[name] - value) for name, value in recorded.items())
        outcome = label_outcome(scores, evidence["threshold"])
        if outcome != entry["outcome"] or off > TOLERANCE:
            return Replay(False, f"{outcome['labels']} now; scores differ by up to {off:.2g}")
        return Replay(True, "decided again from the audio")

    def _event(self, entry: dict[str, Any]) -> Replay:
        evidence, outcome = entry["evidence"], entry["outcome"]
        if evidence["windows"] is None:
            return Replay(None, "it was longer than the scores that are kept")
        self._head(entry["head_sha256"])
        found = [{f: getattr(event, f) for f in EVENT_FIELDS} for event in _replayed(evidence)]
        wanted = {f: outcome["decided"][f] for f in EVENT_FIELDS}
        if wanted in found:
            return Replay(True, "decided again from the scores of its windows")
        return Replay(False, f"the scores of its windows give {found or 'no event'}")

    def _audio(self, recording: dict[str, str | None]) -> str | None:
        kept, name, digest = recording["audio"], recording["name"], recording["sha256"]
        for path in ((self._home / kept) if kept else None, Path(name) if name else None):
            if path is not None and path.is_file():
                if path.suffix == ".wav" and kept and path == self._home / kept:
                    return str(path)  # samples of an array, whose digest is of the samples
                if recording_digest(str(path))[0] == digest:
                    return str(path)
        return None

    def _head(self, digest: str) -> Head:
        path = self._home / "heads" / f"{Path(digest).name}.safetensors"
        head = Head.load(path)
        if head_digest(head) != digest:
            raise FormatError(f"{path} is not the head that was recorded: it has changed")
        return head

    def _embedder(self, name: str) -> Embedder:
        if name not in self._embedders:
            self._embedders[name] = Embedder(name)
        return self._embedders[name]


def _replayed(evidence: Mapping[str, Any]) -> list[Event]:
    """Return the events that follow from the recorded scores of windows."""
    criteria = Criteria(
        (evidence["label"],),
        np.array([evidence["multiple"]]),
        np.array([evidence["min_duration_s"]]),
        tuple(evidence["negatives"]),
    )
    settings = Detection(**evidence["settings"])
    tracker = Tracker(criteria, settings, hop_s=evidence["hop_s"])
    found: list[Event] = []
    for (start_s, end_s), above, spreads in zip(
        evidence["windows"], evidence["above"], evidence["spreads"], strict=True
    ):
        found += tracker.feed(start_s, end_s, np.array(above), np.array(spreads))
    if evidence["finished_s"] is not None:
        found += tracker.finish(evidence["finished_s"])
    return found


def replay_error(error: DriftscoreError) -> Replay:
    """Return the outcome for an entry that cannot be used."""
    return Replay(False, str(error))
