"""A run's pieces of work, each a process can be sent: embed a chunk, embed anchors, or score.

On this machine a job claims its name and writes the store by itself (`perform`); on another
one it writes files only, and sends home what the database is to be told (`perform_away`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from driftscore.backbones import Backbone, load_backbone
from driftscore.engines._ray_work import node
from driftscore.errors import DriftscoreError, StoreError, UsageError
from driftscore.lab import listening, scoring
from driftscore.lab.corpora import Clip
from driftscore.lab.datasets import find_dataset, home_of
from driftscore.lab.grid import Condition, Scoring, needs_of
from driftscore.lab.scoring import Bench, Truth
from driftscore.lab.store import Store, Tables, set_name
from driftscore.lab.validation import chosen_clips


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


def perform_away(job: Job, *, run: str) -> tuple[Answer, Tables]:
    """Do one job on another machine: return what it came to, and what the store is to be told."""
    forget(run)
    try:
        with Store.aside(job.store) as store:
            return _KINDS[job.kind](job, store), store.drain()
    except StoreError as error:
        return Answer(fatal=f"On the node {node()}: {error}"), {}


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


@lru_cache(maxsize=1)
def forget(run: str) -> None:
    """Forget, once a run, what was kept: folders and models may have changed since the last."""
    for kept in (_store, _clips, _loaded):
        kept.cache_clear()


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
