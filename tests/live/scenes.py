"""Scenes with known sounds, sources that follow a script, and an output that keeps everything."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path

import numpy as np

from driftscore.audio import Audio, Samples, read
from driftscore.live.blocks import AudioBlock
from driftscore.live.records import EventRecord, LevelRecord, SourceStatus
from driftscore.live.sources.protocol import SourceError
from driftscore.watchlist import WatchList
from tests.conftest import PROJECT

RATE = 32_000
LABELS = ("siren", "alarm clock")
Found = tuple[str, float, float, str]
"""Label, duration, score and why it was rejected."""


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
        self.events: list[EventRecord] = []
        self.levels: list[LevelRecord] = []
        self.statuses: list[SourceStatus] = []
        self.watched: list[tuple[str, tuple[str, ...]]] = []
        self.present: list[frozenset[str]] = []
        self.closed = False

    def words(self, source: str, watch: WatchList) -> None:
        self.watched.append((source, watch.names))

    def event(self, record: EventRecord) -> None:
        self.events.append(record)

    def active(self, source: str, labels: Set[str]) -> None:
        self.present.append(frozenset(labels))

    def level(self, record: LevelRecord) -> None:
        self.levels.append(record)

    def status(self, status: SourceStatus) -> None:
        self.statuses.append(status)

    def close(self) -> None:
        self.closed = True

    @property
    def reported(self) -> list[EventRecord]:
        return [record for record in self.events if not record.event.rejected]


def eventually(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until a condition holds; fail if it does not in time."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def write(path: Path, audio: Audio) -> str:
    import soundfile

    soundfile.write(path, audio.samples, audio.rate, subtype="PCM_16")
    return str(path)
