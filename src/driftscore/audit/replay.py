"""Decide again what an audit log recorded: the same inputs must give the same decision.

A decision is made again twice: from the recorded scores and thresholds, by the code that decided;
and from the audio through the model, if the audio is there: the copy in the log, or the recording
itself if its content is still the same. The model must have the fingerprint that it had, and the
head must be the one that was recorded. The audio of a listener's event is not enough to decide it
again, since the background of the minutes before is part of the decision.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import soundfile

from driftscore.audio import Audio, Recording
from driftscore.audit.decided import EVENT
from driftscore.audit.entries import is_intact
from driftscore.audit.keeping import (
    AUDIO,
    BYTES_SUFFIX,
    HEADS,
    SAMPLES_SUFFIX,
    SEARCHES,
    recording_digest,
    samples_digest,
)
from driftscore.audit.labels import label_outcome
from driftscore.audit.log import head_digest
from driftscore.audit.searches import search_of
from driftscore.audit.trace import decided_again, event_fields
from driftscore.backbones import DEFAULT_BACKBONE
from driftscore.detector import event_batches
from driftscore.embedder import Embedder
from driftscore.errors import DriftscoreError, FormatError
from driftscore.eventstream import Search
from driftscore.files import sha256
from driftscore.head import Head
from driftscore.reading import is_file, read_text, reading

TOLERANCE = 1e-4
"""How far a score may be from the recorded one: the last bits differ between processors."""
_OWN = (DEFAULT_BACKBONE, "fake")  # models without files of others
_MOST_SEARCH = 50_000_000  # bytes
_COPY = re.compile(AUDIO + r"/[0-9a-f]{64}(\.[A-Za-z0-9]{1,8})")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Replay:
    """What became of an entry: decided again as before, differently, or not at all."""

    same: bool | None
    """None if it could not be decided again."""
    note: str
    from_audio: bool = False
    """Whether it was decided again from the audio, through the model."""


@dataclass(frozen=True)
class _Inputs:
    """What a decision followed from."""

    audio: Recording
    head: Head
    embedder: Embedder


class Replayer:
    """Decides the entries of one audit folder again; models are loaded once.

    Parameters
    ----------
        folder: where the log is.
        backbone: the model, by its name or path or as an embedder; None for those of the log, of
            which only models that come with driftscore are loaded: a log may come from anyone, and
            names no path that is opened, no module that is imported and nothing to download.

    """

    def __init__(self, folder: str | Path, *, backbone: str | Embedder | None = None) -> None:
        self._home = Path(folder)
        self._given = Embedder(backbone) if isinstance(backbone, str) else backbone
        if self._given is not None:
            self._given.start()  # a model that cannot be loaded is an error of the caller
        self._embedders: dict[str, Embedder] = {}
        self._searched: tuple[object, list[dict[str, object]]] = (None, [])

    def replay(self, entry: Mapping[str, object]) -> Replay:
        """Decide one entry again."""
        given = cast(dict[str, Any], entry)
        try:
            found = self._event(given) if entry["kind"] == EVENT else self._label(given)
        except DriftscoreError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise FormatError(f"An entry of the audit log is damaged: {error!r}") from error
        if not is_intact(entry):
            return Replay(False, f"its line was changed after it was written; {found.note}")
        return found

    def _label(self, entry: dict[str, Any]) -> Replay:
        evidence, recorded = entry["evidence"], entry["evidence"]["scores"]
        search = None
        if evidence["fitting"]:
            head = self._head(entry["head_sha256"])
            search = None if head is None else self._search(entry["search_sha256"], head)
            if search is None:
                return Replay(None, "what labels had to reach was deleted")
        if label_outcome(evidence, search) != entry["outcome"]:
            return Replay(False, "the recorded scores do not give the recorded labels")
        inputs = self._inputs(entry)
        if isinstance(inputs, Replay):
            return inputs
        embedded = next(iter(inputs.embedder.embed([inputs.audio])))
        if embedded.error:
            return Replay(False, str(embedded.error))
        values = inputs.head.scores(embedded.embedding)[0].tolist()
        scores = dict(zip(inputs.head.labels, values, strict=True))
        off = max(abs(scores[name] - value) for name, value in recorded.items())
        outcome = label_outcome({**evidence, "scores": scores}, search)
        if outcome != entry["outcome"] or off > TOLERANCE:
            return Replay(False, f"{outcome['labels']} now; scores differ by up to {off:.2g}")
        return _SAME_AUDIO

    def _event(self, entry: dict[str, Any]) -> Replay:
        evidence, wanted = entry["evidence"], entry["outcome"]["decided"]
        scored = evidence["windows"] is not None
        if scored:
            found = [event_fields(event) for _, event in decided_again(evidence)]
            if wanted not in found:
                return Replay(False, f"the scores of its windows give {found or 'no event'}")
        inputs = self._inputs(entry)
        if isinstance(inputs, Replay):
            if scored or not inputs.same:
                return inputs
            return Replay(None, "it was longer than the scores that are kept, " + inputs.note)
        search = self._search(entry["search_sha256"], inputs.head)
        if search is None:
            return _from_scores("what its label had to reach was deleted")
        key = entry["recording"]["sha256"], entry["search_sha256"], entry["head_sha256"]
        if self._searched[0] != key:
            batches = event_batches(inputs.audio, search, inputs.embedder.backbone)
            self._searched = key, [event_fields(one) for batch, _ in batches for one in batch]
        if any(_alike(one, wanted) for one in self._searched[1]):
            return _SAME_AUDIO
        of_label = [one for one in self._searched[1] if one["label"] == wanted["label"]]
        return Replay(False, f"the audio gives {of_label[:3] or 'no event of this label'} now")

    def _inputs(self, entry: dict[str, Any]) -> _Inputs | Replay:
        """Return audio, head and model of an entry, or what follows if one of them is missing."""
        head = self._head(entry["head_sha256"])
        if head is None:
            return _from_scores("its head was deleted")
        if not entry["recording"]["complete"]:
            return _from_scores("the sound before it is part of the decision")
        audio = self._audio(entry["recording"])
        if audio is None:
            return _from_scores("its audio was not kept, and the recording is gone or has changed")
        name = entry["backbone"]
        if self._given is None and name not in _OWN:
            return _from_scores(f"its model {name!r} does not come with driftscore: --backbone")
        try:
            embedder = self._embedder(name)
            fingerprint = embedder.backbone.fingerprint
        except DriftscoreError as error:
            return _from_scores(f"its model cannot be loaded: {error}")
        if fingerprint != entry["fingerprint"]:
            return Replay(
                False,
                f"the model {name} is another one now: its fingerprint is {fingerprint[:24]}, not "
                f"{entry['fingerprint'][:24]}",
            )
        return _Inputs(audio, head, embedder)

    def _audio(self, recording: dict[str, Any]) -> Recording | None:
        """Return the audio of an entry: its copy, or the recording if it has not changed."""
        kept, name, digest = recording["audio"], recording["name"], recording["sha256"]
        if kept is not None:
            if not isinstance(kept, str) or not _COPY.fullmatch(kept):
                raise FormatError(f"{kept!r} is not the name of a copy in an audit")
            path = self._home / kept
            if path.is_file():
                if digest not in (sha256(path), _samples_digest(path)):
                    raise FormatError(f"{path} is not the audio that was recorded: it has changed")
                return path.read_bytes() if path.suffix == BYTES_SUFFIX else str(path)
        if isinstance(name, str) and is_file(name) and Path(name).stat().st_size:
            return name if recording_digest(name) == digest else None
        return None

    def _head(self, digest: str) -> Head | None:
        path = self._stored(HEADS, digest, ".safetensors")
        if not path.is_file():
            return None
        head = Head.load(path)
        if head_digest(head) != digest:
            raise FormatError(f"{path} is not the head that was recorded: it has changed")
        return head

    def _search(self, digest: str, head: Head) -> Search | None:
        path = self._stored(SEARCHES, digest, ".json")
        if not path.is_file():
            return None
        if sha256(path) != digest:
            raise FormatError(f"{path} is not the search that was recorded: it has changed")
        return search_of(read_text(path, "search of an audit", most=_MOST_SEARCH), head, path)

    def _stored(self, folder: str, digest: str, suffix: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise FormatError(f"{digest[:80]!r} is not a sha256")
        return self._home / folder / f"{digest}{suffix}"

    def _embedder(self, name: str) -> Embedder:
        if self._given is not None:
            return self._given
        if name not in self._embedders:
            self._embedders[name] = Embedder(name)
        return self._embedders[name]


_SAME_AUDIO = Replay(True, "decided again from the audio", from_audio=True)


def _from_scores(why: str) -> Replay:
    return Replay(True, f"decided again from its scores; not from the audio: {why}")


def _alike(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether two events are the same, but for the last bits of their scores."""
    same = all(found[name] == wanted[name] for name in ("label", "rejected"))
    numbers = ("start_s", "end_s", "score", "threshold")
    return same and all(abs(found[name] - wanted[name]) <= TOLERANCE for name in numbers)


def _samples_digest(path: Path) -> str | None:
    """Return the digest of samples that were kept as a wav file."""
    if path.suffix != SAMPLES_SUFFIX:
        return None
    with reading(path, "copy of samples"):
        samples, rate = soundfile.read(path, dtype="float32")
        return samples_digest(Audio(samples, rate))
