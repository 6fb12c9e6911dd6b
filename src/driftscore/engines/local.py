"""Hear on this machine: readers decode ahead, workers take the mel and run the network.

    sources -> [readers: decode, resample, cut] -> slots -> [workers: mel, network] -> in order

A window goes through the model alone: its shape is always the same and its bits depend on
nothing else. What is in flight is bounded, in windows (slots) and in recordings, so memory
grows neither with the number of files nor with their length; of a long recording only its
embeddings are kept.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import compress, islice
from threading import Event, Semaphore

import numpy as np

from driftscore.audio import Source, Window, describe, sounding_windows
from driftscore.audiocache import BLOCK, AudioCache, Entry, Found, on_disk, unchanged
from driftscore.backbones import Backbone, Staged, cache_key
from driftscore.engines import Heard, failed, thread_count
from driftscore.errors import AudioError
from driftscore.vectors import Vector

_MORE_READERS = 3
"""Readers beyond one a worker: some of them wait, for a disk or for a store far away."""
_KEEP_SECONDS = 10.0
"""The longest that new embeddings wait to be written, while others come."""


def hear(
    sources: Iterable[Source],
    backbone: Backbone,
    *,
    spec: str = "",
    cache: bool = False,
    address: str | None = None,
    threads: int | None = None,
) -> Iterator[Heard]:
    """Yield what each recording came to, in the order given.

    Sources are asked for a little ahead of the results, with a cache a block of them.
    `spec` and `address` are for engines of many machines.
    """
    store = AudioCache(cache_key(backbone)) if cache else None
    line = _Line(backbone, thread_count(threads), store)
    try:
        for block in _looked_up(sources, store):
            for (source, found), (_, after) in zip(block, [*block[1:], (None, None)], strict=True):
                if found is not None and found.entry is not None and not line.waiting:
                    known = after is not None and after.entry is not None
                    yield Heard(describe(source), *found.entry, followed=known)
                    continue
                while line.full:
                    yield line.take()
                line.start(source, found)
            while line.ready:
                yield line.take()
        while line.waiting:
            yield line.take()
    finally:
        line.stop()


def _looked_up(
    sources: Iterable[Source], store: AudioCache | None
) -> Iterator[list[tuple[Source, Found | None]]]:
    """Yield sources with what the cache knows of them; without one, one by one."""
    if store is None:
        for source in sources:
            yield [(source, None)]
        return
    rest = iter(sources)
    while block := list(islice(rest, BLOCK)):
        here = [on_disk(source) for source in block]  # what is far away its reader looks up
        found = iter(store.look_up(list(compress(block, here))))
        yield [(s, next(found) if near else None) for s, near in zip(block, here, strict=True)]


@dataclass(eq=False, slots=True)
class _Recording:
    """A recording on its way: what is known of it, and its windows so far."""

    source: Source
    found: Found | None
    reading: Future[None] | None = None
    spans: list[tuple[float, float]] = field(default_factory=list)
    rows: list[Future[Vector]] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether nothing has to be waited for."""
        if self.reading is None:
            return True
        return self.reading.done() and all(row.done() for row in reversed(self.rows))


class _Line:
    """The readers, the workers and the recordings between them."""

    def __init__(self, backbone: Backbone, threads: int, store: AudioCache | None) -> None:
        self.waiting: deque[_Recording] = deque()
        self._backbone = backbone
        self._staged = backbone if isinstance(backbone, Staged) else None
        self._store = store
        workers = threads if self._staged else 1
        # A worker takes the next window's mel while others have their turn at the network.
        self._turns = Semaphore(min(threads, self._staged.encoders) if self._staged else 1)
        self._slots = Semaphore(2 * workers + 1)
        self._number_of_readers = threads + _MORE_READERS
        self._underway = 0
        self._stopped = Event()
        # A pool starts a thread only when a task finds none idle: one short clip starts two.
        self._readers = ThreadPoolExecutor(self._number_of_readers, "driftscore-reader")
        self._workers = ThreadPoolExecutor(workers, "driftscore-worker")
        self._fresh: list[Found] = []
        self._kept_at = time.monotonic()

    @property
    def full(self) -> bool:
        """Whether as many recordings are on their way as may be; known ones weigh little."""
        return self._underway >= 2 * self._number_of_readers or len(self.waiting) >= 2 * BLOCK

    @property
    def ready(self) -> bool:
        """Whether the next result is there."""
        return bool(self.waiting) and self.waiting[0].done

    def start(self, source: Source, found: Found | None) -> None:
        """Put a recording on the line; one from the cache has arrived already."""
        recording = _Recording(source, found)
        if found is None or found.entry is None:
            self._underway += 1
            recording.reading = self._readers.submit(self._read, recording)
        self.waiting.append(recording)

    def take(self) -> Heard:
        """Return the next result, once it is there."""
        recording = self.waiting.popleft()
        name = describe(recording.source)
        try:
            spans, rows = self._result(recording)
        except AudioError as error:
            for row in recording.rows:
                row.cancel()
            return failed(name, str(error), dim=self._backbone.dim, followed=self.ready)
        return Heard(name, spans, rows, followed=self.ready)

    def stop(self) -> None:
        """End the threads, soon even in the middle of a recording, and keep what is new."""
        self._stopped.set()
        self._slots.release(self._number_of_readers)  # none waits for a slot: it sees the end
        self._readers.shutdown(cancel_futures=True)
        self._workers.shutdown(cancel_futures=True)
        if self._store:
            self._store.put(self._fresh)
            self._store.close()

    def _read(self, recording: _Recording) -> None:
        """Cut a recording into windows and hand them to the workers, unless it is known."""
        source, found = recording.source, recording.found
        if self._store:
            found = self._store.read(source, found or self._store.look_up([source])[0])
            recording.found = found
            if found.entry is not None:
                return
        model = self._backbone
        for window in sounding_windows(source, rate=model.rate, seconds=model.seconds):
            self._slots.acquire()
            if self._stopped.is_set():
                return
            row = self._workers.submit(self._embed, window)
            row.add_done_callback(lambda _: self._slots.release())
            recording.spans.append((window.start_s, window.end_s))
            recording.rows.append(row)
        if found and not unchanged(source, found):
            recording.found = Found()  # it was written to meanwhile: which content was heard?

    def _embed(self, window: Window) -> Vector:
        if self._staged is None:
            row: Vector = self._backbone.embed_audio([window.audio])[0]
            return row
        features = self._staged.features(window.audio.samples)
        with self._turns:
            return self._staged.encode(features)

    def _result(self, recording: _Recording) -> Entry:
        """Wait for a recording's windows, and keep those that are new to the cache."""
        if recording.reading is not None:
            self._underway -= 1
            recording.reading.result()
        found = recording.found or Found()
        entry = found.entry or (
            np.array(recording.spans),
            np.stack([row.result() for row in recording.rows]),
        )
        if self._store and recording.reading is not None:
            self._keep(self._store, found._replace(entry=entry))
        return entry

    def _keep(self, store: AudioCache, found: Found) -> None:
        self._fresh.append(found)
        if len(self._fresh) >= BLOCK or time.monotonic() - self._kept_at > _KEEP_SECONDS:
            store.put(self._fresh)
            self._fresh, self._kept_at = [], time.monotonic()
