"""Embed on this machine: readers decode ahead, workers compute features and run the network.

    recordings -> [readers: decode, resample, cut] -> [workers: features, network] -> in order

Each window goes through the model alone: its shape is always the same, and its bits depend on
nothing else. The windows (slots) and recordings in work are bounded, so memory grows neither with
the number of recordings nor with their length; of a long recording only its embeddings are kept.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from os import PathLike, getpid
from pathlib import Path
from threading import Event, Semaphore

import numpy as np

from driftscore.audio.decoding import check_file
from driftscore.audio.recordings import Recording, Window, describe, sounding_windows
from driftscore.backbones.protocol import Features
from driftscore.backbones.vectors import Vector
from driftscore.engines.audio_cache import (
    BLOCK,
    AudioCache,
    CachedBlock,
    CacheEntry,
    Packed,
    packed,
    unchanged,
    unpacked,
)
from driftscore.engines.protocol import (
    Embedded,
    EmbeddedBlock,
    EngineSettings,
    check_finite,
    failed,
    thread_count,
)
from driftscore.errors import AudioError, UsageError
from driftscore.storage.files import is_url
from driftscore.system.process import check_process

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
        # Workers compute the features of the next windows while others use the network; on a GPU
        # those that wait are its next batch.
        self.turns = Semaphore(min(threads, self.backbone.parallel))
        self.pending: deque[tuple[Features, Future[Vector]]] = deque()
        self.slots = 2 * max(threads, self.backbone.batch) + 1
        self.readers = threads + _MORE_READERS
        self.closed = Event()
        self._threads, self._runs = threads, 0
        self._open_pools()

    def _open_pools(self) -> None:
        # A pool starts a thread only when a task finds none idle: one short clip starts two.
        self.reader_pool = ThreadPoolExecutor(self.readers, "driftscore-reader")
        self.worker_pool = ThreadPoolExecutor(self._threads, "driftscore-worker")

    def embed(self, recordings: Iterable[Recording]) -> Iterator[EmbeddedBlock]:
        """Yield the results of all recordings in the order given, in blocks as they are ready.

        Recordings are taken a little ahead of the results, with a cache a block of them.
        """
        cache = AudioCache(self.backbone.cache_key) if self.audio_cache else None
        run = _Run(self, cache)
        rest = iter(recordings)
        self._runs += 1
        abandoned = False
        try:
            while block := list(islice(rest, BLOCK if cache else 1)):
                yield from run.process(block)
            while run.waiting:
                yield run.take()
        except GeneratorExit:
            abandoned = True
            raise
        except (CancelledError, RuntimeError) as error:  # of a pool that was shut down
            if not self.closed.is_set():
                raise
            raise UsageError("The embedder was closed while it was embedding") from error
        finally:
            run.stop()
            self._runs -= 1
            if abandoned and not self._runs and not self.closed.is_set():
                # Nobody may come back for the threads: a later run starts new ones.
                pools = self.reader_pool, self.worker_pool
                self._open_pools()
                for pool in pools:
                    pool.shutdown(wait=False)

    def submit(self, window: Window) -> "Future[Vector]":
        """Return what will be the embedding of a window."""
        row: Future[Vector] = Future()
        task = self.worker_pool.submit(self._encode, window, row)
        task.add_done_callback(lambda done: done.cancelled() and row.cancel())
        return row

    def _encode(self, window: Window, row: "Future[Vector]") -> None:
        """Compute features, then encode all windows that wait, unless others are doing that."""
        if row.cancelled():
            return
        try:
            self.pending.append((self.backbone.features(window.samples), row))
        except Exception as error:
            row.set_exception(error)
        while self.pending and self.turns.acquire(blocking=False):
            some: list[tuple[Features, Future[Vector]]] = []
            try:
                while self.pending and len(some) < self.backbone.batch:
                    with suppress(IndexError):  # another thread was faster
                        some.append(self.pending.popleft())
                some = [one for one in some if one[1].set_running_or_notify_cancel()]
                if some:
                    rows = self.backbone.encode_batch([features for features, _ in some])
                    for (_, done), vector in zip(some, rows, strict=True):
                        done.set_result(vector)
            except Exception as error:
                for _, done in some:
                    done.set_exception(error)
            finally:
                self.turns.release()

    def close(self) -> None:
        """End the threads; a run that is still in work fails at its next result."""
        self.closed.set()
        self.reader_pool.shutdown(cancel_futures=True)
        self.worker_pool.shutdown(cancel_futures=True)


open_engine = LocalEngine


@dataclass(eq=False, slots=True)
class _Task:
    """A recording in work: what the cache knows about it, and its windows so far."""

    recording: Recording
    entry: CacheEntry
    reading: Future[None] | None = None
    spans: list[tuple[float, float]] = field(default_factory=list)
    rows: list[Future[Vector]] = field(default_factory=list)


class _Run:
    """One call of `embed`: its recordings in work, in order."""

    def __init__(self, engine: LocalEngine, cache: AudioCache | None) -> None:
        self.waiting: deque[_Task] = deque()
        self._engine = engine
        self._cache = cache
        self._pid = getpid()
        self._slots = Semaphore(engine.slots)
        self._in_work = 0
        self._stopped = Event()
        self._new: list[CacheEntry] = []
        self._stored_at = time.monotonic()

    @property
    def ready(self) -> bool:
        """Whether the next result is ready."""
        check_process(self._pid)  # before a lock that a thread of the parent may hold
        if not self.waiting:
            return False
        task = self.waiting[0]
        if task.reading is None:
            return True
        return task.reading.done() and all(row.done() for row in reversed(task.rows))

    def process(self, recordings: list[Recording]) -> Iterator[EmbeddedBlock]:
        """Start some recordings, and yield the results that are ready."""
        check_process(self._pid)
        entries = [CacheEntry()] * len(recordings)
        if self._cache:
            entries = self._cache.look_up(recordings)
        cached: list[Packed] = []
        for entry in entries:
            if self.waiting or entry.windows is None:
                break
            cached.append(entry.windows)
        if cached:
            yield CachedBlock([describe(one) for one in recordings[: len(cached)]], cached)
        for number in range(len(cached), len(recordings)):
            # Those from the cache cost little, but need memory.
            while self._in_work >= 2 * self._engine.readers or len(self.waiting) >= 2 * BLOCK:
                yield self.take()
            check_process(self._pid)
            task = _Task(recordings[number], entries[number])
            if task.entry.windows is None:
                self._in_work += 1
                task.reading = self._engine.reader_pool.submit(self._read, task)
            self.waiting.append(task)
        while self.ready:
            yield self.take()

    def take(self) -> EmbeddedBlock:
        """Return the next results; wait for the first of them if necessary."""
        check_process(self._pid)
        results = [self._embedded(self.waiting.popleft())]
        while self.ready and len(results) < BLOCK:
            results.append(self._embedded(self.waiting.popleft()))
        return EmbeddedBlock(results)

    def stop(self) -> None:
        """End what is still in work, also in the middle of a recording; store what is new."""
        if self._pid != getpid():
            return  # a forked process has none of the threads, and would wait for ever
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

    def _read(self, task: _Task) -> None:
        """Cut a recording into windows and pass them to the workers, unless it is cached."""
        if self._stopped.is_set():
            return
        recording, model = task.recording, self._engine.backbone
        if self._cache:
            if isinstance(recording, (str, PathLike)) and not is_url(recording):
                check_file(Path(describe(recording)))  # the cache would wait for a pipe
            task.entry = self._cache.read(recording, task.entry)
            if task.entry.windows is not None:
                return
        for window in sounding_windows(recording, rate=model.rate, seconds=model.seconds):
            self._slots.acquire()
            if self._stopped.is_set():
                return
            if self._engine.closed.is_set():
                raise CancelledError  # not a return: the rest of the recording is missing
            row = self._engine.submit(window)
            row.add_done_callback(lambda _: self._slots.release())
            task.spans.append((window.start_s, window.end_s))
            task.rows.append(row)
        if self._cache and not unchanged(recording, task.entry):
            task.entry = CacheEntry()  # it was written to meanwhile: which content was embedded?

    def _embedded(self, task: _Task) -> Embedded:
        """Wait for the windows of a recording; those that are new are stored in the cache."""
        name = describe(task.recording)
        try:
            if task.reading is not None:
                self._in_work -= 1
                task.reading.result()
            if task.entry.windows is not None:
                spans, rows = unpacked(task.entry.windows)
            else:
                spans, rows = np.array(task.spans), np.stack([row.result() for row in task.rows])
                check_finite(name, rows)
        except AudioError as error:
            for row in task.rows:
                row.cancel()
            return failed(name, str(error), dim=self._engine.backbone.dim)
        if self._cache and task.reading is not None:
            windows = task.entry.windows or packed(spans, rows)
            self._new.append(task.entry._replace(windows=windows))
            if len(self._new) >= BLOCK or time.monotonic() - self._stored_at > _STORE_SECONDS:
                self._cache.put(self._new)
                self._new, self._stored_at = [], time.monotonic()
        return Embedded(name, spans, rows)
