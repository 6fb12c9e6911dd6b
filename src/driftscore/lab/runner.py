"""Run a grid: embed what is missing, score what is missing, and say how long it will take.

Work goes model by model and dataset by dataset: first the chunks of embeddings, then the
rows of each condition, which share them. With several workers each is a process of its own
that loads a model once. Every draw comes from the cell's own key, so workers, order and
interruptions change no number. A clip that cannot be used is a failure in the store.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import lru_cache, partial

from driftscore.backbones import Backbone, load_backbone
from driftscore.errors import DriftscoreError, UsageError
from driftscore.lab import listening, scoring
from driftscore.lab.corpora import Clip
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
from driftscore.lab.scoring import Bench, Truth, clean_twin
from driftscore.lab.store import Store, StoreError, set_name
from driftscore.lab.validation import check, chosen_clips
from driftscore.progress import progress_bar

Tell = Callable[[str], None]
_TELL_S = 60.0


@dataclass(frozen=True)
class Job:
    """A piece of work that a process can be sent: embed a chunk, embed anchors, or score."""

    kind: str
    store: str
    condition: Condition
    homes: tuple[tuple[str, str], ...]
    chunk: int = 0
    backgrounds: bool = False
    anchors: tuple[str, str] = ("", "")
    scorings: tuple[Scoring, ...] = ()
    weight: int = 1

    @property
    def claim(self) -> str:
        """The name under which the job is claimed."""
        return f"{self.kind} {self.condition.key} {self.chunk} {self.anchors}"


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
    retry: bool = False,
    facts: Facts | None = None,
    show: bool | None = None,
    tell: Tell = lambda text: None,
) -> Outcome:
    """Fill every cell of a grid that has no row yet; `retry` also fills those with an error."""
    if workers < 1:
        raise UsageError(f"A run needs at least one worker, not {workers}")
    started = time.monotonic()
    for kept in (_store, _clips, _loaded):  # folders and models may have changed since the last run
        kept.cache_clear()
    known = check(grid) if facts is None else facts
    outcome = Outcome()
    batches = _batches(grid, known, store, outcome, retry=retry)
    with _hands(workers) as hands:
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
    homes = tuple(sorted(grid.homes.items()))
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
        job = partial(Job, store=str(store.home), homes=homes)
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

    def work(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, "Answer"]]:
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

    def work(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, "Answer"]]:
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


def _hands(workers: int) -> _Here:
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
    told = started
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
            if (now := time.monotonic()) - told > _TELL_S and not sys.stderr.isatty():
                left = (now - started) * (total - done) / done
                tell(f"{title}: {done} of {total}, about {_words(left)} left")
                told = now


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


@dataclass
class Answer:
    """What a job came to."""

    rows: int = 0
    errors: int = 0
    busy: int = 0
    fatal: str = ""
    notes: list[str] = field(default_factory=list)


def perform(job: Job) -> Answer:
    """Do one job, unless another run is at it."""
    try:
        store = _store(job.store)
        if not store.claim(job.claim):
            return Answer(busy=1)
        try:
            return _KINDS[job.kind](job, store)
        finally:
            store.release(job.claim)
    except StoreError as error:
        return Answer(fatal=str(error))


def _embed(job: Job, store: Store) -> Answer:
    condition, homes = job.condition, dict(job.homes)
    clips, _ = _clips(condition.dataset, homes.get(condition.dataset), condition.limit)
    listening.embed_chunk(
        store,
        condition,
        clips,
        job.chunk,
        _model(condition),
        noise_home=homes.get(condition.noise or ""),
        backgrounds=job.backgrounds,
    )
    return Answer()


def _anchors(job: Job, store: Store) -> Answer:
    noise, data = job.anchors
    name = listening.anchors_name(noise, data, job.condition)
    try:
        home = dict(job.homes).get(noise)
        listening.embed_anchors(store, name, noise, _model(job.condition), home=home)
    except StoreError:
        raise
    except DriftscoreError as error:
        return Answer(notes=[f"The noise {noise} has no anchors: {error}"])
    return Answer()


def _score(job: Job, store: Store) -> Answer:
    condition = job.condition
    home = dict(job.homes).get(condition.dataset)
    clips, labels = _clips(condition.dataset, home, condition.limit)
    truth = Truth.of(clips, labels)
    backgrounds = any("background" in needs_of(s.rule) for s in job.scorings)
    try:
        bench = Bench.of(store, condition, truth, _model(condition), backgrounds=backgrounds)
    except StoreError:
        raise
    except UsageError as error:  # another run holds its embeddings
        return Answer(busy=len(job.scorings), notes=[str(error)])
    store.put_json("sets", (set_name(condition),), truth.content)
    for key, content in scoring.drift_reports(bench, job.scorings):
        store.put_json("drifts", (condition.key, key), content)
    rows = list(scoring.score_condition(bench, job.scorings))
    store.put_rows(rows)
    return Answer(rows=len(rows), errors=sum(bool(row.error) for row in rows))


_KINDS: dict[str, Callable[[Job, Store], Answer]] = {
    "embed": _embed,
    "anchors": _anchors,
    "score": _score,
}


@lru_cache(maxsize=4)
def _store(home: str) -> Store:
    return Store(home)


@lru_cache(maxsize=4)
def _clips(dataset: str, home: str | None, limit: int) -> tuple[list[Clip], tuple[str, ...]]:
    module = find_dataset(dataset)
    return chosen_clips(dataset, home, limit), module.labels(home_of(module, home))


def _model(condition: Condition) -> Backbone:
    """Return the condition's model, loaded once a process, and no other than was planned."""
    model = _loaded(condition.backbone)
    if model.fingerprint != condition.model:
        raise StoreError(
            f"The model {condition.backbone} has changed since the run was planned; run it again"
        )
    return model


@lru_cache(maxsize=2)
def _loaded(spec: str) -> Backbone:
    return load_backbone(spec)


def missing(grid: Grid, facts: Facts, store: Store) -> Iterable[tuple[Condition, int, int]]:
    """Yield each condition with its number of cells and of rows that are there."""
    for condition, scorings in groups(grid, facts):
        done = store.done(condition)
        first = condition.key
        yield condition, len(scorings), sum(join_keys(first, s.key) in done for s in scorings)
