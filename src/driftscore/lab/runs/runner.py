"""Run a grid: embed what is missing, score what is missing, and estimate the remaining time.

Work goes model by model and dataset by dataset: first the chunks of embeddings, then the rows of
each condition, which share them. With several workers each is a process of its own that loads a
model once; on Ray it is a worker of the cluster, and the run itself claims the jobs and writes the
database. Every random draw comes from the cell's own key, so workers, machines, order and
interruptions change no number. A clip that cannot be used is a failure in the store.
"""

import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from driftscore.errors import StoreError
from driftscore.lab.conditions import Condition, Scoring, join_keys
from driftscore.lab.corpora.datasets import find_dataset
from driftscore.lab.corpora.noises import find_noise
from driftscore.lab.runs import embedding
from driftscore.lab.runs.embedding import ChunkId
from driftscore.lab.runs.executors import Executor, open_executor
from driftscore.lab.runs.grid import Grid, groups
from driftscore.lab.runs.jobs import Job, start_run
from driftscore.lab.runs.mixes import SavedMix, saved_mix, without_model
from driftscore.lab.runs.scorings import Facts, needs_clean_pool, needs_of
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.validation import check, chosen_clips
from driftscore.progress import progress_bar
from driftscore.rules import Needs

Report = Callable[[str], None]
_REPORT_S = 60.0


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
    """Everything that is missing for one model on one dataset."""

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
    report: Report = lambda text: None,
) -> Outcome:
    """Compute every cell of a grid that has no row yet; with `retry` also those with an error.

    `engine` is where the work is done: "local", with so many `workers`, or "ray", on the cluster at
    `address`, with a store in a folder that every node has.
    """
    started = time.monotonic()
    executor = open_executor(engine, workers, store, address)
    start_run(secrets.token_hex(8))
    known = check(grid) if facts is None else facts
    outcome = Outcome()
    batches = _batches(grid, known, store, outcome, retry=retry)
    with executor:
        for (backbone, dataset), batch in batches.items():
            for what, jobs in (("Embedding", list(batch.embed.values())), ("Scoring", batch.score)):
                watch = _Watch(f"{what} {dataset}, {backbone}", jobs, report)
                _perform(jobs, executor, watch, outcome, show=show)
    outcome.seconds = time.monotonic() - started
    return outcome


def missing(grid: Grid, facts: Facts, store: Store) -> Iterable[tuple[Condition, int, int]]:
    """Yield each condition with its number of cells and of rows that are stored."""
    for condition, scorings in groups(grid, facts):
        done = store.done(condition)
        first = condition.key
        yield condition, len(scorings), sum(join_keys(first, s.key) in done for s in scorings)


def mixes(grid: Grid, facts: Facts, rates: Callable[[str], int]) -> Iterator[SavedMix]:
    """Yield the mix of every clip in every noisy condition of a grid, each mix once.

    `rates` returns the sample rate of a backbone; models of one rate share their mixes.
    """
    homes, done = dict(_homes(grid)), set()
    for condition, _ in groups(grid, facts):
        rate = rates(condition.backbone)
        key = (without_model(condition).key, rate)
        if condition.clean or key in done:
            continue
        done.add(key)
        home = homes.get(str(condition.noise))
        for clip in chosen_clips(condition.dataset, homes[condition.dataset], condition.limit):
            yield saved_mix(condition, clip, rate, home)


def _batches(
    grid: Grid, facts: Facts, store: Store, outcome: Outcome, *, retry: bool
) -> dict[tuple[str, str], _Batch]:
    """Return what is missing, by model and dataset, in the grid's order."""
    batches: dict[tuple[str, str], _Batch] = {}
    job = partial(Job, store=str(store.home.absolute()), homes=_homes(grid))
    for condition, scorings in groups(grid, facts):
        done = store.done(condition, failed_too=not retry)
        first = condition.key
        todo = tuple(s for s in scorings if join_keys(first, s.key) not in done)
        outcome.cells += len(scorings)
        outcome.already += len(scorings) - len(todo)
        if not todo:
            continue
        batch = batches.setdefault((condition.backbone, condition.dataset), _Batch())
        if find_dataset(condition.dataset).about.timed:  # one job each: it takes minutes
            batch.score += [job("detect", condition=condition, scorings=(s,)) for s in todo]
            continue
        clips = facts.clips[f"{condition.dataset}/{condition.limit}"]
        for needed, backgrounds in _needed(condition, todo):
            for new in _chunk_jobs(job, store, needed, clips, backgrounds=backgrounds):
                had = batch.embed.get(new.claim)
                batch.embed[new.claim] = had if had is not None and had.backgrounds else new
        for new in _anchor_jobs(job, store, condition, todo):
            batch.embed[new.claim] = new
        batch.score.append(job("score", condition=condition, scorings=todo))
    return batches


def _homes(grid: Grid) -> tuple[tuple[str, str], ...]:
    """Return where every corpus is stored, so that each worker uses the same folder."""
    homes = dict(grid.homes)
    for name in grid.names("datasets"):
        homes[name] = str(find_dataset(name).home(grid.homes.get(name)).absolute())
    for name in grid.names("noises"):
        homes[name] = str(find_noise(name).home(grid.homes.get(name)).absolute())
    return tuple(sorted(homes.items()))


def _needed(condition: Condition, todo: Sequence[Scoring]) -> Iterator[tuple[Condition, bool]]:
    """Yield the conditions whose embeddings the scorings read, and whether with backgrounds."""
    yield condition, any(needs_of(s) & Needs.BACKGROUND for s in todo)
    if not condition.clean and any(needs_clean_pool(s) or s.direction for s in todo):
        yield condition.without_noise, False


def _chunk_jobs(
    job: Callable[..., Job], store: Store, condition: Condition, clips: int, *, backgrounds: bool
) -> Iterator[Job]:
    for chunk in range(embedding.chunk_count(clips)):
        if not embedding.has_chunk(store, ChunkId(condition, chunk, backgrounds)):
            size = min(embedding.CHUNK, clips - chunk * embedding.CHUNK)
            yield job(
                "embed", condition=condition, chunk=chunk, backgrounds=backgrounds, weight=size
            )


def _anchor_jobs(
    job: Callable[..., Job], store: Store, condition: Condition, todo: Sequence[Scoring]
) -> Iterator[Job]:
    for name, data in {(s.anchors, s.anchors_data) for s in todo if s.anchors}:
        file = embedding.anchors_name(str(name), data, condition)
        if not store.path("embeddings", file).is_file():
            owner = condition.without_noise
            yield job("anchors", condition=owner, anchors=(str(name), data), weight=100)


class _Watch:
    """Reports how far some jobs are, once per minute if there is no progress bar."""

    def __init__(self, title: str, jobs: Sequence[Job], report: Report) -> None:
        self.title, self.report = title, report
        self.total, self.done, self.counted = sum(job.weight for job in jobs), 0, 0
        self.started = self.reported = time.monotonic()

    def advance(self, weight: int) -> None:
        """Count a job that is done."""
        self.done += weight
        now = time.monotonic()
        if not self.counted:  # the first job also loads a model and encodes its texts
            self.started, self.counted = now, self.done
        if now - self.reported > _REPORT_S and not sys.stderr.isatty():
            left = (
                (now - self.started) * (self.total - self.done) / max(self.done - self.counted, 1)
            )
            estimate = f", about {_words(left)} left" if self.done > self.counted else ""
            self.report(f"{self.title}: {self.done} of {self.total}{estimate}")
            self.reported = now


def _perform(
    jobs: Sequence[Job], executor: Executor, watch: _Watch, outcome: Outcome, *, show: bool | None
) -> None:
    """Perform jobs and count; a store that cannot be written ends the run."""
    with progress_bar(watch.title, watch.total, show=show) as advance:
        for job, result in executor.perform(jobs):
            if result.fatal:
                raise StoreError(result.fatal)
            outcome.computed += result.rows
            outcome.errors += result.errors
            outcome.busy += result.busy
            outcome.notes += result.notes
            advance(job.weight)
            watch.advance(job.weight)


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
