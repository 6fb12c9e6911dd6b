"""Scenes with known sounds, sources that follow a script, and an output that keeps everything."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from driftscore import Event
from driftscore.audio.recordings import Audio, Samples, read
from driftscore.decisions.records import (
    LevelReport,
    LiveReport,
    OutputStatus,
    Present,
    SourceStatus,
    Started,
    StoredEvent,
    Words,
)
from driftscore.live.blocks import AudioBlock, SourceError
from tests.conftest import PROJECT

RATE = 32_000
LABELS = ("siren", "alarm clock")
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def stored(
    id: int = 1,
    label: str = "dog bark",
    source: str = "mic1",
    *,
    start: datetime = NOON,
    seconds: float = 4.5,
    score: float = 4.1234,
    rejected: str = "",
    clip: str = "",
    snr_db: float | None = 3.21,
) -> StoredEvent:
    """Return an event as a listener reports it."""
    start_s, offset = start.timestamp(), start.utcoffset()
    return StoredEvent(
        id, source, label, score, 3.0, start_s, start_s + seconds,
        round(offset.total_seconds()) if offset else 0, -30.04, snr_db, rejected, clip,
    )  # fmt: skip


def facts(event: Event | StoredEvent) -> tuple[object, ...]:
    """Return everything of an event but when it was."""
    seconds = round(event.end_s - event.start_s, 3)
    return (event.label, seconds, event.score, event.threshold, event.level_db, event.snr_db,
            event.rejected)  # fmt: skip


def scene(seconds: float, sounds: Sequence[tuple[float, str]], *, seed: int = 0) -> Audio:
    """Return quiet noise with sounds of the demo, five seconds each, at some times."""
    rng = np.random.default_rng(seed)
    samples = 0.01 * rng.standard_normal(round(seconds * RATE))
    for at_s, name in sounds:
        sound = read(PROJECT / "demo" / "sounds" / f"{name}.flac", rate=RATE, seconds=5).samples
        first = round(at_s * RATE)
        part = sound[: len(samples) - first]
        samples[first : first + len(part)] += 0.5 * part / np.abs(sound).max()
    return Audio((samples / max(1.0, np.abs(samples).max())).astype(np.float32), RATE)


class ScriptedSource:
    """Gives parts of audio one after another; an error takes the place of a part."""

    def __init__(
        self,
        *runs: Samples | str,
        waits: bool = True,
        endless: bool = True,
        idles: bool = False,
        block_s: float = 0.1,
    ) -> None:
        self._idles = idles  # stay open after the last part
        self.waits = waits
        self.endless = endless
        self._runs = list(runs)
        self._step = round(block_s * RATE)
        self.opened = 0

    def describe(self) -> str:
        return "the script"

    def blocks(self, stop: threading.Event) -> Iterator[AudioBlock]:
        self.opened += 1
        if not self._runs:
            stop.wait()
            return
        run = self._runs.pop(0)
        if isinstance(run, str):
            raise SourceError(run)
        begun = time.monotonic()
        for first in range(0, len(run), self._step):
            if stop.is_set():
                return
            yield AudioBlock(run[first : first + self._step], RATE, begun + first / RATE)
        if self._idles and not self._runs:
            stop.wait()


class Kept:
    """An output that keeps everything."""

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []
        self.levels: list[LevelReport] = []
        self.statuses: list[SourceStatus] = []
        self.watched: list[tuple[str, tuple[str, ...]]] = []
        self.present: list[frozenset[str]] = []
        self.starts: list[Started] = []
        self.problems: list[OutputStatus] = []
        self.closed = False

    def send(self, report: LiveReport) -> None:
        if isinstance(report, StoredEvent):
            self.events.append(report)
        elif isinstance(report, LevelReport):
            self.levels.append(report)
        elif isinstance(report, SourceStatus):
            self.statuses.append(report)
        elif isinstance(report, Words):
            self.watched.append((report.source, report.watch.names))
        elif isinstance(report, Started):
            self.starts.append(report)
        elif isinstance(report, OutputStatus):
            self.problems.append(report)
        elif isinstance(report, Present):
            self.present.append(frozenset(report.labels))

    def close(self) -> None:
        self.closed = True

    @property
    def reported(self) -> list[StoredEvent]:
        return [event for event in self.events if not event.rejected]


def eventually(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until a condition holds; fail if it does not in time."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def write(path: Path, audio: Audio) -> str:
    import soundfile

    soundfile.write(path, audio.samples, audio.rate, subtype="PCM_16")
    return str(path)
