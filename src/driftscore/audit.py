"""Audit: what was decided, from what, by what; and the same decision made again.

A folder holds one file of JSON lines per day (UTC), the heads that decided, and, if asked for, the
audio:

    2026-11-16.jsonl     one line per decision, only ever appended to
    heads/<sha256>.safetensors
    audio/<sha256>.flac  (or what the recording was)

Each line is written by one call. The file is synchronised with the disk at most once a second, and
when the log is closed: after a power cut the lines of the last second may be missing, and a line
that is cut is left out when the log is read. Files can be read by their owner only.
"""

import hashlib
import json
import os
import platform
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import soundfile

from driftscore.audio import Audio, Recording, describe
from driftscore.classifier import Classifier
from driftscore.errors import FormatError, UsageError
from driftscore.files import sha256, writing_to
from driftscore.head import Head
from driftscore.reading import is_folder, read_text
from driftscore.result import Result
from driftscore.version import __version__

LABEL, EVENT = "label", "event"
FORMAT = 1
_SYNC_S = 1.0
_PARTS = ("numpy", "onnxruntime", "soxr", "soundfile")


@dataclass(frozen=True)
class DecidedBy:
    """What decides: a head, its model, and what both were made of."""

    head: Head
    backbone: str
    """How the model is named where it is loaded again."""
    fingerprint: str
    labels: tuple[str, ...]
    prompts_sha256: str
    rule: str
    calibration: str | None
    """The digest of the calibration; None if there is none."""

    @staticmethod
    def of(classifier: Classifier, head: Head | None = None) -> "DecidedBy":
        """Return what a fitted classifier decides by, with another head of it if one is given."""
        own = classifier.head_
        model = classifier.embedder_.backbone
        texts = classifier.texts() if classifier.head is None else list(own.labels)
        calibration = classifier.calibration_
        return DecidedBy(
            head or own,
            classifier.embedder_.spec or model.name,
            model.fingerprint,
            (head or own).labels,
            hashlib.sha256("\n".join(texts).encode()).hexdigest(),
            str(own.made_by.get("rule", "")),
            None if calibration is None else calibration.digest,
        )


@dataclass(frozen=True)
class Decision:
    """One decision: its kind, what came out, and what it followed from.

    Attributes:
        kind: "label" (of a recording) or "event" (of a stream).
        source: the name of the recording or of the source.
        outcome: what was decided.
        evidence: scores and thresholds from which the same outcome follows.

    """

    kind: str
    source: str
    outcome: Mapping[str, object]
    evidence: Mapping[str, object] = field(default_factory=dict)


def label_decision(result: Result, threshold: float | None = None) -> Decision:
    """Return the decision about a recording: its best label, or all labels above a threshold."""
    if result.scores is None:
        raise UsageError(f"{result.source} was not decided: {result.error}")
    scores = dict(zip(result.labels, result.scores.tolist(), strict=True))
    evidence = {"scores": scores, "threshold": threshold}
    return Decision(LABEL, result.source, label_outcome(scores, threshold), evidence)


def label_outcome(scores: Mapping[str, float], threshold: float | None) -> dict[str, object]:
    """Return what follows from the scores of a recording."""
    ranked = sorted(scores, key=lambda name: -scores[name])
    if threshold is None:
        return {"labels": ranked[:1]}
    return {"labels": [name for name in ranked if scores[name] >= threshold]}


class AuditLog:
    """Records decisions in a folder; several threads may use it.

    Parameters
    ----------
        folder: where it is kept; it is made if it does not exist.
        keep_audio: keep the audio of each decision as well.

    """

    def __init__(self, folder: str | os.PathLike[str], *, keep_audio: bool = False) -> None:
        self.keep_audio = keep_audio
        self._home = Path(folder)
        self._lock = threading.Lock()
        self._day = ""
        self._file = -1
        self._synced = 0.0
        self._heads: dict[int, tuple[Head, str]] = {}
        self._versions = _versions()
        with writing_to(folder):
            for inner in (self._home, self._home / "heads"):
                inner.mkdir(mode=0o700, parents=True, exist_ok=True)

    def record(self, decision: Decision, by: DecidedBy, recording: Recording | None = None) -> None:
        """Append a decision; the audio is hashed, and kept only if that was asked for."""
        entry = {
            "format": FORMAT,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "kind": decision.kind,
            "source": decision.source,
            "outcome": decision.outcome,
            "evidence": decision.evidence,
            "labels": by.labels,
            "prompts_sha256": by.prompts_sha256,
            "backbone": by.backbone,
            "fingerprint": by.fingerprint,
            "rule": by.rule,
            "calibration": by.calibration,
            "head_sha256": self._head(by.head),
            "recording": self._recording(recording),
            "versions": self._versions,
        }
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False, default=list) + "\n"
        with self._lock, writing_to(self._home):
            self._append(line.encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Write everything to the disk."""
        with self._lock:
            self._close()

    def __enter__(self) -> "AuditLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        day = f"{datetime.now(UTC):%Y-%m-%d}"
        if day != self._day:
            self._close()
            path = self._home / f"{day}.jsonl"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._day = day
        os.write(self._file, line)
        if time.monotonic() - self._synced > _SYNC_S:
            os.fsync(self._file)
            self._synced = time.monotonic()

    def _close(self) -> None:
        if self._file >= 0:
            os.fsync(self._file)
            os.close(self._file)
        self._file, self._day = -1, ""

    def _head(self, head: Head) -> str:
        """Store a head once; return its digest."""
        with self._lock:
            known = self._heads.get(id(head))
            if known is not None and known[0] is head:
                return known[1]
            digest = head_digest(head)
            path = self._home / "heads" / f"{digest}.safetensors"
            if not path.exists():
                head.save(path)
                path.chmod(0o600)
            if len(self._heads) > 100:
                self._heads.clear()
            self._heads[id(head)] = head, digest
            return digest

    def _recording(self, recording: Recording | None) -> dict[str, str | None]:
        """Return the name and the digest of a recording, and where its copy is."""
        if recording is None:
            return {"name": None, "sha256": None, "audio": None}
        digest, suffix = recording_digest(recording)
        kept = None
        if digest and self.keep_audio:
            kept = f"audio/{digest}{suffix}"
            self._keep(recording, self._home / kept)
        return {"name": describe(recording), "sha256": digest, "audio": kept}

    def _keep(self, recording: Recording, path: Path) -> None:
        if path.exists():
            return
        with writing_to(path):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            if isinstance(recording, (str, os.PathLike)):
                path.write_bytes(Path(recording).read_bytes())
            elif isinstance(recording, bytes):
                path.write_bytes(recording)
            else:
                audio = Audio.of(recording)
                soundfile.write(path, audio.samples, audio.rate, format="WAV", subtype="FLOAT")
            path.chmod(0o600)


def recording_digest(recording: Recording) -> tuple[str | None, str]:
    """Return the sha256 of a recording and the suffix of a copy; None for a stream or a URL."""
    if isinstance(recording, (str, os.PathLike)):
        path = Path(recording)
        return (sha256(path), path.suffix) if path.is_file() else (None, "")
    if isinstance(recording, bytes):
        return hashlib.sha256(recording).hexdigest(), ".bin"
    if hasattr(recording, "read"):
        return None, ""
    audio = Audio.of(recording)
    return hashlib.sha256(audio.samples.tobytes() + str(audio.rate).encode()).hexdigest(), ".wav"


def head_digest(head: Head) -> str:
    """Return a digest of everything in a head that can change a score."""
    digest = hashlib.sha256(json.dumps(head.labels).encode())
    digest.update(head.weights.tobytes())
    digest.update(head.offsets.tobytes())
    return digest.hexdigest()


def read_entries(
    folder: str | os.PathLike[str], days: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield where each entry is (file:line) and its content, in order of time."""
    files = sorted(Path(folder).glob("????-??-??.jsonl")) if is_folder(Path(folder)) else []
    if not files:
        raise UsageError(
            f"{folder} is not an audit folder: it has no file such as 2026-11-16.jsonl"
        )
    for path in files:
        if days and path.stem not in days:
            continue
        lines = read_text(path, "audit log").split("\n")
        for number, line in enumerate(lines, start=1):
            last = number == len(lines)  # a line without its end was cut by a power failure
            if line and not last:
                yield f"{path.name}:{number}", _parsed(line, f"{path}:{number}")


def _parsed(line: str, where: str) -> dict[str, object]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise FormatError(f"{where} is not JSON: {error}") from error
    if not isinstance(entry, dict) or entry.get("format") != FORMAT:
        raise FormatError(f"{where} is not an entry of an audit log of format {FORMAT}")
    return entry


def _versions() -> dict[str, str]:
    found = {"driftscore": __version__, "python": platform.python_version()}
    for name in _PARTS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
