"""Run a grid: embed what is missing, score what is missing, and estimate the remaining time.

Work goes model by model and dataset by dataset: first the chunks of embeddings, then the rows of
each condition, which share them. With several workers each is a process of its own that loads a
model once; on Ray it is a worker of the cluster, and the run itself claims the jobs and writes the
database. Every random draw comes from the cell's own key, so workers, machines, order and
interruptions change no number. A clip that cannot be used is a failure in the store.

Several runs may share a store. What another run has claimed is left to the end; then this run waits
until it is done, or until that run has ended, and computes what is still missing.
"""

import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from driftscore.errors import StoreError
from driftscore.lab.conditions import Condition, join_keys
from driftscore.lab.corpora.datasets import find_dataset
from driftscore.lab.corpora.noises import find_noise
from driftscore.lab.runs.executors import Executor, open_executor
from driftscore.lab.runs.grid import Grid, groups
from driftscore.lab.runs.jobs import Job, done_rows, is_stored, parts_of, start_run, truth_of
from driftscore.lab.runs.mixes import SavedMix, saved_mix, without_model
from driftscore.lab.runs.scorings import Facts
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.validation import check, chosen_clips, is_timed
from driftscore.progress import progress_bar

Report = Callable[[str], None]
_REPORT_S = 60.0
POLL_S = 1.0
"""How often a run looks whether another one has finished what it waits for."""


@dataclass
class Outcome:
    """What a run did."""

    cells: int = 0
    already: int = 0
    computed: int = 0
    errors: int = 0
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
        blocked: list[_Blocked] = []
        for (backbone, dataset), batch in batches.items():
            for what, jobs in (("Embedding", list(batch.embed.values())), ("Scoring", batch.score)):
                watch = _Watch(f"{what} {dataset}, {backbone}", jobs, report)
                left = _perform(jobs, executor, watch, outcome, show=show)
                # What is not embedded yet is looked at again by the jobs that score it.
                blocked += left if what == "Scoring" else []
        _finish(blocked, executor, store, outcome, report=report, show=show)
    outcome.seconds = time.monotonic() - started
    return outcome


def missing(grid: Grid, facts: Facts, store: Store) -> Iterable[tuple[Condition, int, int]]:
    """Yield each condition with its number of cells and of rows that are stored."""
    homes = dict(_homes(grid))
    for condition, scorings in groups(grid, facts):
        truth = truth_of(condition, homes.get(condition.dataset))
        done = done_rows(store, condition, truth)
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
    listed = _homes(grid)
    homes = dict(listed)
    job = partial(Job, store=str(store.home.absolute()), homes=listed, retry=retry)
    for condition, scorings in groups(grid, facts):
        truth = truth_of(condition, homes.get(condition.dataset))
        done = done_rows(store, condition, truth, retry=retry)
        first = condition.key
        todo = tuple(s for s in scorings if join_keys(first, s.key) not in done)
        outcome.cells += len(scorings)
        outcome.already += len(scorings) - len(todo)
        if not todo:
            continue
        batch = batches.setdefault((condition.backbone, condition.dataset), _Batch())
        if is_timed(condition.dataset, homes[condition.dataset]):  # one job each: it takes minutes
            batch.score += [job("detect", condition=condition, scorings=(s,)) for s in todo]
            continue
        score = job("score", condition=condition, scorings=todo)
        batch.score.append(score)
        for part in parts_of(score, len(truth.ids)):
            had = batch.embed.get(part.claim)
            if not is_stored(part, store) and (had is None or not had.backgrounds):
                batch.embed[part.claim] = part
    return batches


def _homes(grid: Grid) -> tuple[tuple[str, str], ...]:
    """Return where every corpus is stored, so that each worker uses the same folder."""
    homes = dict(grid.homes)
    for name in grid.names("datasets"):
        homes[name] = str(find_dataset(name, homes.get(name)).home(homes.get(name)).absolute())
    for name in grid.names("noises"):
        homes[name] = str(find_noise(name, homes.get(name)).home(homes.get(name)).absolute())
    return tuple(sorted(homes.items()))


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


_Blocked = tuple[Job, str]
"""A job, and the claim of another run that prevented it."""


def _perform(
    jobs: Sequence[Job], executor: Executor, watch: _Watch, outcome: Outcome, *, show: bool | None
) -> list[_Blocked]:
    """Perform jobs and count; return those that another run prevented.

    A store that cannot be written ends the run.
    """
    blocked = []
    with progress_bar(watch.title, watch.total, show=show) as advance:
        for job, result in executor.perform(jobs):
            if result.fatal:
                raise StoreError(result.fatal)
            if result.blocked:
                blocked.append((job, result.blocked))
            outcome.computed += result.rows
            outcome.errors += result.errors
            outcome.already += result.already
            outcome.notes += result.notes
            advance(job.weight)
            watch.advance(job.weight)
    return blocked


def _finish(
    blocked: list[_Blocked],
    executor: Executor,
    store: Store,
    outcome: Outcome,
    *,
    report: Report,
    show: bool | None,
) -> None:
    """Perform the jobs that another run prevented, each as soon as its claim is free."""
    if blocked:
        report(f"Waiting for another run, which has {len(blocked):,} jobs of this grid in work")
    while blocked:
        held = {claim for _, claim in set(blocked) if store.is_claimed(claim)}
        ready = [job for job, claim in blocked if claim not in held]
        blocked = [(job, claim) for job, claim in blocked if claim in held]
        if ready:
            watch = _Watch("What another run had in work", ready, report)
            blocked += _perform(ready, executor, watch, outcome, show=show)
        if blocked:
            time.sleep(POLL_S)


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
