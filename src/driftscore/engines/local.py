"""Embed on this machine: readers decode ahead, workers compute features and run the network.

    recordings -> [readers: decode, resample, cut] -> [workers: features, network] -> in order

Each window goes through the model alone: its shape is always the same, and its bits depend on
nothing else. The windows (slots) and recordings in work are bounded, so memory grows neither with
the number of recordings nor with their length; of a long recording only its embeddings are kept.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import compress, islice, takewhile
from pathlib import Path
from threading import Event, Semaphore

import numpy as np

from driftscore.audio import Recording, Window, describe, sounding_windows
from driftscore.audiocache import (
    BLOCK,
    AudioCache,
    Found,
    WindowEmbeddings,
    embeddings_of,
    is_local_file,
    packed,
    seconds_of,
    unchanged,
    unpacked,
)
from driftscore.decoding import check_file
from driftscore.engines.protocol import (
    Embedded,
    EmbeddedBlock,
    EngineSettings,
    check_finite,
    failed,
    thread_count,
)
from driftscore.errors import AudioError, UsageError
from driftscore.vectors import Matrix, Vector

_MORE_READERS = 3
"""Readers beyond one per worker: some of them wait for a disk or for a remote store."""
_STORE_SECONDS = 10.0
"""The longest that new embeddings wait to be written to the cache."""


class LocalEngine:
    """Reader and worker threads that live as long as the engine; several runs may share them."""

    def __init__(self, settings: EngineSettings) -> None:
        self.backbone = settings.backbone
        self.audio_cache = settings.audio_cache
        threads = thread_count(settings.threads)
        # A worker computes the features of the next window while others use the network.
        self.turns = Semaphore(min(threads, self.backbone.parallel))
        self.slots = 2 * threads + 1
        self.readers = threads + _MORE_READERS
        self.closed = Event()
        # A pool starts a thread only when a task finds none idle: one short clip starts two.
        self.reader_pool = ThreadPoolExecutor(self.readers, "driftscore-reader")
        self.worker_pool = ThreadPoolExecutor(threads, "driftscore-worker")

    def embed(self, recordings: Iterable[Recording]) -> Iterator[EmbeddedBlock]:
        """Yield the results of all recordings in the order given, in blocks as they are ready.

        Recordings are taken a little ahead of the results, with a cache a block of them.
        """
        cache = AudioCache(self.backbone.cache_key) if self.audio_cache else None
        run = _Run(self, cache)
        try:
            for block, followed in _looked_up(recordings, cache):
                yield from run.process(block, followed=followed)
            while run.waiting:
                yield run.take()
        except (CancelledError, RuntimeError) as error:  # of a pool that was shut down
            if not self.closed.is_set():
                raise
            raise UsageError("The embedder was closed while it was embedding") from error
        finally:
            run.stop()

    def encode(self, window: Window) -> Vector:
        """Return the embedding of one window."""
        features = self.backbone.features(window.audio.samples)
        with self.turns:
            return self.backbone.encode(features)

    def close(self) -> None:
        """End the threads; a run that is still in work fails at its next result."""
        self.closed.set()
        self.reader_pool.shutdown(cancel_futures=True)
        self.worker_pool.shutdown(cancel_futures=True)


def open_engine(settings: EngineSettings) -> LocalEngine:
    """Return an engine that embeds in threads of this process."""
    return LocalEngine(settings)


_Block = list[tuple[Recording, Found | None]]


def _looked_up(
    recordings: Iterable[Recording], cache: AudioCache | None
) -> Iterator[tuple[_Block, bool]]:
    """Yield recordings with what the cache knows about them, and whether the next one is known.

    Without a cache they come one by one. A list is looked up a block ahead while all of it is
    known. Otherwise the next block is looked up when it is due: files may change meanwhile, and
    recordings that are still being found are not waited for.
    """
    if cache is None:
        for recording in recordings:
            yield [(recording, None)], False
        return
    rest = iter(recordings)
    block = _look_up(rest, cache)
    while block:
        quick = isinstance(recordings, Sequence) and all(map(_is_known, block))
        after = _look_up(rest, cache) if quick else []
        yield block, bool(after) and _is_known(after[0])
        block = after or _look_up(rest, cache)


def _look_up(rest: Iterator[Recording], cache: AudioCache) -> _Block:
    block = list(islice(rest, BLOCK))
    local = [is_local_file(recording) for recording in block]
    if all(local):
        return list(zip(block, cache.look_up(block), strict=True))
    found = iter(cache.look_up(list(compress(block, local))))  # a reader looks up the others
    return [(r, next(found) if near else None) for r, near in zip(block, local, strict=True)]


def _is_known(one: tuple[Recording, Found | None]) -> bool:
    return one[1] is not None and one[1].entry is not None


class _KnownBlock(EmbeddedBlock):
    """Recordings whose embeddings are in the cache; they stay packed until they are needed."""

    def __init__(self, block: _Block, *, followed: bool) -> None:
        self.sources = [describe(recording) for recording, _ in block]
        self.errors = [""] * len(block)
        self.followed = followed
        self._entries = [found.entry for _, found in block if found and found.entry]

    def __iter__(self) -> Iterator[Embedded]:
        for source, entry in zip(self.sources, self._entries, strict=True):
            yield Embedded(source, *unpacked(entry))

    @property
    def seconds(self) -> list[float]:
        return [seconds_of(entry) for entry in self._entries]

    def embeddings(self) -> Matrix:
        return embeddings_of(self._entries)


@dataclass(eq=False, slots=True)
class _Task:
    """A recording in work: what is known about it, and its windows so far."""

    recording: Recording
    found: Found | None
    reading: Future[None] | None = None
    spans: list[tuple[float, float]] = field(default_factory=list)
    rows: list[Future[Vector]] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether its result is ready."""
        if self.reading is None:
            return True
        return self.reading.done() and all(row.done() for row in reversed(self.rows))


class _Run:
    """One call of `embed`: its recordings in work, in order."""

    def __init__(self, engine: LocalEngine, cache: AudioCache | None) -> None:
        self.waiting: deque[_Task] = deque()
        self._engine = engine
        self._cache = cache
        self._slots = Semaphore(engine.slots)
        self._in_work = 0
        self._stopped = Event()
        self._new: list[Found] = []
        self._stored_at = time.monotonic()

    @property
    def full(self) -> bool:
        """Whether no further recording may be started; those from the cache cost little."""
        return self._in_work >= 2 * self._engine.readers or len(self.waiting) >= 2 * BLOCK

    @property
    def ready(self) -> bool:
        """Whether the next result is ready."""
        return bool(self.waiting) and self.waiting[0].done

    def process(self, block: _Block, *, followed: bool) -> Iterator[EmbeddedBlock]:
        """Start the recordings of a block, and yield the results that are ready.

        `followed` tells whether the recording after the block is known.
        """
        known = [] if self.waiting else list(takewhile(_is_known, block))
        if known:
            more = followed and len(known) == len(block)
            yield _KnownBlock(known, followed=more)
        for recording, found in block[len(known) :]:
            while self.full:
                yield self.take()
            self._start(recording, found)
        while self.ready:
            yield self.take()

    def take(self) -> EmbeddedBlock:
        """Return the next results; wait for the first of them if necessary."""
        found = [self._embedded(self.waiting.popleft())]
        while self.ready and len(found) < BLOCK:
            found.append(self._embedded(self.waiting.popleft()))
        return EmbeddedBlock(found)

    def stop(self) -> None:
        """End what is still in work, also in the middle of a recording; store what is new."""
        self._stopped.set()
        self._slots.release(self._engine.readers)  # readers that wait for a slot see the end
        for task in self.waiting:
            for row in task.rows:
                row.cancel()
        readings = [task.reading for task in self.waiting if task.reading is not None]
        # Only for those that run: `wait` never ends for one that a closed pool has cancelled.
        wait([reading for reading in readings if not reading.cancel()])
        if self._cache:
            self._cache.put(self._new)
            self._cache.close()

    def _embedded(self, task: _Task) -> Embedded:
        name = describe(task.recording)
        try:
            return Embedded(name, *self._result(task))
        except AudioError as error:
            for row in task.rows:
                row.cancel()
            return failed(name, str(error), dim=self._engine.backbone.dim)

    def _start(self, recording: Recording, found: Found | None) -> None:
        """Put a recording in work; one from the cache is done already."""
        task = _Task(recording, found)
        if found is None or found.entry is None:
            self._in_work += 1
            task.reading = self._engine.reader_pool.submit(self._read, task)
        self.waiting.append(task)

    def _read(self, task: _Task) -> None:
        """Cut a recording into windows and pass them to the workers, unless it is cached."""
        if self._stopped.is_set():
            return
        recording, found = task.recording, task.found
        if self._cache:
            if is_local_file(recording):
                check_file(Path(describe(recording)))  # the cache would wait for a pipe
            found = self._cache.read(recording, found or self._cache.look_up([recording])[0])
            task.found = found
            if found.entry is not None:
                return
        model = self._engine.backbone
        for window in sounding_windows(recording, rate=model.rate, seconds=model.seconds):
            self._slots.acquire()
            if self._stopped.is_set():
                return
            if self._engine.closed.is_set():
                raise CancelledError  # not a return: the rest of the recording is missing
            row = self._engine.worker_pool.submit(self._engine.encode, window)
            row.add_done_callback(lambda _: self._slots.release())
            task.spans.append((window.start_s, window.end_s))
            task.rows.append(row)
        if found and not unchanged(recording, found):
            task.found = Found()  # it was written to meanwhile: which content was embedded?

    def _result(self, task: _Task) -> WindowEmbeddings:
        """Wait for the windows of a recording, and keep those that are new for the cache."""
        if task.reading is not None:
            self._in_work -= 1
            task.reading.result()
        found = task.found or Found()
        if found.entry is None:
            spans, rows = np.array(task.spans), np.stack([row.result() for row in task.rows])
            check_finite(describe(task.recording), rows)
        else:
            spans, rows = unpacked(found.entry)
        if self._cache and task.reading is not None:
            self._store(self._cache, found._replace(entry=found.entry or packed(spans, rows)))
        return spans, rows

    def _store(self, cache: AudioCache, found: Found) -> None:
        self._new.append(found)
        if len(self._new) >= BLOCK or time.monotonic() - self._stored_at > _STORE_SECONDS:
            cache.put(self._new)
            self._new, self._stored_at = [], time.monotonic()
