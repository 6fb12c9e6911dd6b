"""Run a grid: embed what is missing, score what is missing, and estimate the remaining time.

Work goes model by model and dataset by dataset: first the chunks of embeddings, then the rows of
each condition, which share them. Workers (processes that each load a model once, or a Ray cluster)
return rows; the run itself writes them. Every random draw comes from the cell's own key, so
workers, machines, order and interruptions change no number. A clip that cannot be used is a failure
in the store.

Several runs may share a store: a run claims a job before it is performed. What another run has
claimed is left to the end; then this run waits until it is done, or until that run has ended, and
computes what is still missing.
"""

import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from driftscore.errors import DriftscoreError
from driftscore.lab.conditions import Condition, Scoring, join_keys
from driftscore.lab.corpora.datasets import find_dataset
from driftscore.lab.corpora.folders import Corpus, is_reference
from driftscore.lab.corpora.noises import find_noise
from driftscore.lab.runs.executors import Executor, open_executor
from driftscore.lab.runs.grid import Grid, groups
from driftscore.lab.runs.jobs import Job, is_stored, parts_of, start_run
from driftscore.lab.runs.mixes import SavedMix, record_of
from driftscore.lab.runs.scorings import Facts
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.truth import Truth, fits
from driftscore.lab.runs.validation import check, chosen_clips
from driftscore.system.progress import progress_bar

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


def run(
    grid: Grid,
    store: Store,
    *,
    workers: int = 1,
    engine: str = "local",
    address: str | None = None,
    retry: bool = False,
    facts: Facts | None = None,
    report: Report = lambda text: None,
) -> Outcome:
    """Compute every cell of a grid that has no row yet; with `retry` also those with an error.

    `engine` is where the work is done: "local", with so many `workers`, or "ray", on the cluster at
    `address`, with a store in a folder that every node has.
    """
    started = time.monotonic()
    outcome, blocked = Outcome(), list[Job]()
    with open_executor(engine, workers, address) as executor:
        work = _Work(store, executor, outcome, retry, report)
        try:
            batches = work.plan(grid, facts or check(grid))
            for (backbone, dataset), (embed, score) in batches.items():
                # What is not embedded yet is looked at again by the jobs that score it.
                work.perform(f"Embedding {dataset}, {backbone}", list(embed.values()))
                blocked += work.perform(f"Scoring {dataset}, {backbone}", score)
            if blocked:
                report(
                    f"Waiting for another run, which has {len(blocked):,} jobs of this grid in work"
                )
            while blocked:
                time.sleep(POLL_S)
                blocked = work.perform("What another run had in work", blocked, show=False)
        finally:
            work.release(*work.claims)
    outcome.seconds = time.monotonic() - started
    return outcome


def missing(grid: Grid, facts: Facts, store: Store) -> Iterator[tuple[Condition, int, int]]:
    """Yield each condition with its number of cells and of rows that are stored."""
    for condition, scorings in groups(grid, facts):
        job = Job("score", "", "", condition, grid.homes, scorings=tuple(scorings))
        yield condition, len(scorings), len(scorings) - len(_todo(job, store))


def mixes(grid: Grid, facts: Facts, rates: Callable[[str], int]) -> Iterator[SavedMix]:
    """Yield the mix of every clip in every noisy condition of a grid, each mix once.

    `rates` returns the sample rate of a backbone; models of one rate share their mixes.
    """
    done, homes = set(), _homes(grid)
    for condition, _ in groups(grid, facts):
        rate, name = rates(condition.backbone), condition.dataset
        key = (replace(condition, backbone="", model="").key, rate)
        if condition.clean or key in done:
            continue
        done.add(key)
        for clip in chosen_clips(name, homes[name], condition.limit):
            try:
                record = record_of(condition, clip, rate, homes[str(condition.noise)])
            except DriftscoreError as error:
                yield SavedMix(condition, clip.id, error=str(error))
            else:
                yield SavedMix(condition, clip.id, record)


def _homes(grid: Grid) -> dict[str, str]:
    """Return where every corpus is stored, so that each worker uses the same folder."""
    homes = dict(grid.homes)
    datasets = (*grid.names("datasets"), *grid.examples_from.values())
    corpora: list[Corpus] = [find_dataset(name, homes.get(name)) for name in datasets]
    corpora += [find_noise(name, homes.get(name)) for name in grid.names("noises")]
    for corpus in corpora:
        if not is_reference(corpus.home):  # module:attribute finds its folder itself
            homes[corpus.name] = str(corpus.folder.absolute())
    return homes


def _todo(job: Job, store: Store, *, retry: bool = False) -> tuple[Scoring, ...]:
    """Return the scorings of a job without a valid row; with `retry` also those with an error."""
    first, truth = job.condition.key, Truth.of(*job.clips())
    done = {
        key
        for key, row in store.done(job.condition).items()
        if (not retry if row.error else fits(store, row, truth))
    }
    return tuple(s for s in job.scorings if join_keys(first, s.key) not in done)


Batches = dict[tuple[str, str], tuple[dict[str, Job], list[Job]]]
"""The jobs that embed, by name, and those that score, by model and dataset."""


@dataclass
class _Work:
    """The work of a run: its jobs, which of them it has claimed, and what they return."""

    store: Store
    executor: Executor
    outcome: Outcome
    retry: bool
    report: Report
    claims: dict[str, list[str]] = field(default_factory=dict)
    """Everything that was claimed for a job, by its name."""

    def plan(self, grid: Grid, facts: Facts) -> Batches:
        """Return what is missing, in the grid's order."""
        batches: Batches = {}
        store, identity, homes = str(self.store.home.absolute()), secrets.token_hex(8), _homes(grid)
        start_run(identity)
        for condition, scorings in groups(grid, facts):
            name = condition.dataset
            job = Job("score", identity, store, condition, homes, scorings=tuple(scorings))
            todo = _todo(job, self.store, retry=self.retry)
            self.outcome.cells += len(scorings)
            self.outcome.already += len(scorings) - len(todo)
            if not todo:
                continue
            embed, score = batches.setdefault((condition.backbone, name), ({}, []))
            if find_dataset(name, homes.get(name)).about.timed:  # one job each: it takes minutes
                score += [replace(job, kind="detect", scorings=(s,)) for s in todo]
                continue
            score.append(replace(job, scorings=todo))
            for part in self._missing_parts(score[-1]):
                if part.backgrounds or part.name not in embed:
                    embed[part.name] = part
        return batches

    def perform(self, title: str, jobs: Sequence[Job], *, show: bool | None = None) -> list[Job]:
        """Perform jobs and store what they return; return those that another run has claimed.

        Without a progress bar, how far they are is reported once per minute.
        """
        blocked: list[Job] = []

        def claimed() -> Iterator[Job]:
            for job in jobs:
                names = [job.name]
                if job.kind == "score":  # a part that this run has claimed may be done twice
                    own = {name for names in self.claims.values() for name in names}
                    names += [p.name for p in self._missing_parts(job) if p.name not in own]
                if not self.store.claim(*names):
                    blocked.append(job)
                    continue
                self.claims[job.name] = names
                if not job.scorings:
                    yield job
                    continue
                todo = _todo(job, self.store, retry=self.retry)  # another run may have done some
                self.outcome.already += len(job.scorings) - len(todo)
                if todo:
                    yield replace(job, scorings=todo)
                else:
                    self.release(job.name)

        total, done, first = sum(job.weight for job in jobs), 0, 0
        started = reported = time.monotonic()
        with progress_bar(title, total, show=show) as advance:
            for job, entries in self.executor(claimed()):
                self.store.put(entries)
                self.release(job.name)
                self.outcome.computed += len(entries.rows)
                self.outcome.errors += sum(bool(row.error) for row in entries.rows) + entries.lost
                self.outcome.notes += entries.notes
                advance(job.weight)
                done += job.weight
                now = time.monotonic()
                if not first:  # the first job also loads a model and encodes its texts
                    started, first = now, done
                if now - reported > _REPORT_S and not sys.stderr.isatty():
                    reported, estimate = now, ""
                    if done > first:
                        left = (now - started) * (total - done) / (done - first)
                        estimate = f", about {duration(left)} left"
                    self.report(f"{title}: {done} of {total}{estimate}")
        return blocked

    def release(self, *jobs: str) -> None:
        """Give up the claims of some jobs."""
        for name in jobs:
            self.store.release(*self.claims.pop(name))

    def _missing_parts(self, job: Job) -> list[Job]:
        return [part for part in parts_of(job) if not is_stored(part, self.store)]


def duration(seconds: float) -> str:
    """Return a time in words, in a unit that fits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"
