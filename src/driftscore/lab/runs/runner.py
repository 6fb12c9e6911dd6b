"""Run a grid: embed what is missing, score what is missing, and say how long it will take.

Work goes model by model and dataset by dataset: first the chunks of embeddings, then the
rows of each condition, which share them. With several workers each is a process of its own
that loads a model once; on Ray it is one of the cluster's, and the run itself claims the
jobs and writes the database. Every draw comes from the cell's own key, so workers, machines,
order and interruptions change no number. A clip that cannot be used is a failure in the store.
"""

import multiprocessing
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from driftscore.engines._ray_work import Lost, connected, work
from driftscore.errors import DriftscoreError, StoreError, UsageError, unknown
from driftscore.lab import listening
from driftscore.lab.datasets import find_dataset, home_of
from driftscore.lab.grid import (
    Condition,
    Facts,
    Grid,
    Scoring,
    groups,
    join_keys,
    needs_of,
)
from driftscore.lab.jobs import Answer, Job, forget, perform, perform_away
from driftscore.lab.noises import find_noise
from driftscore.lab.scoring import clean_twin
from driftscore.lab.store import Store
from driftscore.lab.validation import check
from driftscore.progress import progress_bar

Tell = Callable[[str], None]
_TELL_S = 60.0


@dataclass
class Outcome:
    """What a run did."""

    cells: int = 0
    already: int = 0
    computed: int = 0
    errors: int = 0
    busy: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


@dataclass
class _Batch:
    """All that is missing for one model on one dataset."""

    embed: dict[str, Job] = field(default_factory=dict)
    score: list[Job] = field(default_factory=list)


def run(
    grid: Grid,
    store: Store,
    *,
    workers: int = 1,
    engine: str = "local",
    address: str | None = None,
    retry: bool = False,
    facts: Facts | None = None,
    show: bool | None = None,
    tell: Tell = lambda text: None,
) -> Outcome:
    """Fill every cell of a grid that has no row yet; `retry` also fills those with an error.

    `engine` is where the work is done: "local", with so many `workers`, or "ray", on the
    cluster at `address`, with a store in a folder that every node sees.
    """
    started = time.monotonic()
    hands = _hands(engine, workers, store, address)
    forget(secrets.token_hex(8))
    known = check(grid) if facts is None else facts
    outcome = Outcome()
    batches = _batches(grid, known, store, outcome, retry=retry)
    with hands:
        for (backbone, dataset), batch in batches.items():
            for what, jobs in (("Embedding", list(batch.embed.values())), ("Scoring", batch.score)):
                title = f"{what} {dataset}, {backbone}"
                _do(jobs, hands, title, outcome, show=show, tell=tell)
    outcome.seconds = time.monotonic() - started
    return outcome


def _batches(
    grid: Grid, facts: Facts, store: Store, outcome: Outcome, *, retry: bool
) -> dict[tuple[str, str], _Batch]:
    """Return what is missing, by model and dataset, in the grid's order."""
    batches: dict[tuple[str, str], _Batch] = {}
    homes = _homes(grid)
    for condition, scorings in groups(grid, facts):
        done = store.done(condition, failed_too=not retry)
        first = condition.key
        todo = tuple(s for s in scorings if join_keys(first, s.key) not in done)
        outcome.cells += len(scorings)
        outcome.already += len(scorings) - len(todo)
        if not todo:
            continue
        batch = batches.setdefault((condition.backbone, condition.dataset), _Batch())
        clips = facts.clips[f"{condition.dataset}/{condition.limit}"]
        job = partial(Job, store=str(store.home.absolute()), homes=homes)
        for needed, backgrounds in _needed(condition, todo):
            for new in _chunks(job, store, needed, clips, backgrounds=backgrounds):
                batch.embed[new.claim] = _fuller(batch.embed.get(new.claim), new)
        for name, data in {(s.anchors, s.anchors_data) for s in todo if s.anchors}:
            file = listening.anchors_name(str(name), data, condition)
            if not store.path("embeddings", file).is_file():
                owner = clean_twin(condition)
                anchors = job("anchors", condition=owner, anchors=(str(name), data), weight=100)
                batch.embed[anchors.claim] = anchors
        batch.score.append(job("score", condition=condition, scorings=todo))
    return batches


def _homes(grid: Grid) -> tuple[tuple[str, str], ...]:
    """Return where every corpus lies, so that each worker looks in the very same folder."""
    kinds = ((find_dataset, grid.names("datasets")), (find_noise, grid.names("noises")))
    homes = {
        name: str(home_of(find(name), grid.homes.get(name)).absolute())
        for find, names in kinds
        for name in names
    }
    return tuple(sorted((dict(grid.homes) | homes).items()))


def _needed(condition: Condition, todo: Sequence[Scoring]) -> Iterator[tuple[Condition, bool]]:
    """Yield the conditions whose embeddings the scorings read, and whether with backgrounds."""
    needs = [needs_of(s.rule) for s in todo]
    yield condition, any("background" in need for need in needs)
    pool = any("pool" in need and not s.variant for need, s in zip(needs, todo, strict=True))
    if not condition.clean and (pool or any(s.direction for s in todo)):
        yield clean_twin(condition), False


def _chunks(
    job: Callable[..., Job], store: Store, condition: Condition, clips: int, *, backgrounds: bool
) -> Iterator[Job]:
    for chunk in range(listening.chunk_count(clips)):
        if not listening.has_chunk(store, condition, chunk, backgrounds=backgrounds):
            size = min(listening.CHUNK, clips - chunk * listening.CHUNK)
            yield job(
                "embed", condition=condition, chunk=chunk, backgrounds=backgrounds, weight=size
            )


def _fuller(had: Job | None, new: Job) -> Job:
    return had if had is not None and had.backgrounds else new


class _Here:
    """Hands that work in this process, one job at a time."""

    def __enter__(self) -> "_Here":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def work(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Answer]]:
        """Yield each job with its answer."""
        for job in jobs:
            yield job, perform(job)


class _Processes(_Here):
    """Hands that are processes, started afresh so that no thread or generator is inherited."""

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(workers, mp_context=context)

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)

    def work(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Answer]]:
        """Yield each job with its answer as they come."""
        waiting: dict[Future[Answer], Job] = {self.pool.submit(perform, job): job for job in jobs}
        try:
            while waiting:
                finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield waiting.pop(future), future.result()
        except BrokenProcessPool as error:
            raise DriftscoreError(
                "A worker ended without a word (killed, or out of memory); what it finished is "
                "kept. Run the same command again, perhaps with fewer workers"
            ) from error


class _Cluster(_Here):
    """Hands that are a Ray cluster's; here are the claims and the database, for them to share."""

    def __init__(self, store: Store, address: str | None) -> None:
        self.store = store
        self.connection: AbstractContextManager[object] = connected(address)
        self.run = secrets.token_hex(8)

    def __enter__(self) -> "_Cluster":
        self.connection.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.connection.__exit__(*error)

    def work(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Answer]]:
        """Yield each job with its answer as they come; what it found is in the store by then."""
        taken: list[Job] = []

        def free() -> Iterator[Job]:
            for job in jobs:
                if self.store.claim(job.claim):
                    yield job
                else:
                    taken.append(job)

        for job, found in work(partial(perform_away, run=self.run), free()):
            if isinstance(found, Lost):
                why = f"{job.condition.title}: every worker at it was lost ({found.reason})"
                answer = Answer(errors=1, notes=[why])
            else:
                answer, tables = found
                self.store.merge(tables)
            self.store.release(job.claim)
            yield job, answer
        for job in taken:
            yield job, Answer(busy=1)


def _hands(engine: str, workers: int, store: Store, address: str | None) -> _Here:
    if workers < 1:
        raise UsageError(f"A run needs at least one worker, not {workers}")
    if engine == "ray":
        if workers > 1:
            raise UsageError("A Ray cluster has as many workers as cores; leave out the number")
        return _Cluster(store, address)
    if engine != "local":
        raise unknown("engine", engine, ("local", "ray"))
    return _Here() if workers == 1 else _Processes(workers)


def _do(
    jobs: Sequence[Job],
    hands: _Here,
    title: str,
    outcome: Outcome,
    *,
    show: bool | None,
    tell: Tell,
) -> None:
    """Do jobs and count; a store that cannot be written ends it."""
    total, done, started = sum(job.weight for job in jobs), 0, time.monotonic()
    told, counted = started, 0
    with progress_bar(title, total, show=show) as advance:
        for job, answer in hands.work(jobs):
            if answer.fatal:
                raise StoreError(answer.fatal)
            outcome.computed += answer.rows
            outcome.errors += answer.errors
            outcome.busy += answer.busy
            outcome.notes += answer.notes
            advance(job.weight)
            done += job.weight
            if not counted:  # the first job also loads a model and encodes its texts
                started, counted = time.monotonic(), done
            if (now := time.monotonic()) - told > _TELL_S and not sys.stderr.isatty():
                left = (now - started) * (total - done) / max(done - counted, 1)
                sure = f", about {_words(left)} left" if done > counted else ""
                tell(f"{title}: {done} of {total}{sure}")
                told = now


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def missing(grid: Grid, facts: Facts, store: Store) -> Iterable[tuple[Condition, int, int]]:
    """Yield each condition with its number of cells and of rows that are there."""
    for condition, scorings in groups(grid, facts):
        done = store.done(condition)
        first = condition.key
        yield condition, len(scorings), sum(join_keys(first, s.key) in done for s in scorings)
