"""The pieces of work of a run: embed a chunk, embed anchors, score a condition, detect events.

On this machine a job claims its name and writes the store itself (`perform`); on another one it
writes files only, and returns what is to be put into the database (`perform_remotely`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from driftscore.embedder import Embedder
from driftscore.engines._ray_tasks import node
from driftscore.errors import DriftscoreError, StoreError
from driftscore.lab.conditions import Condition, Scoring
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.datasets import find_dataset
from driftscore.lab.runs import detecting, embedding, scoring
from driftscore.lab.runs.mixes import forget_meter
from driftscore.lab.runs.scorings import needs_of
from driftscore.lab.runs.store import Store, Tables
from driftscore.lab.runs.truth import Truth
from driftscore.lab.runs.validation import chosen_clips
from driftscore.rules import Needs


@dataclass(frozen=True)
class Job:
    """A piece of work that can be sent to a process: embed, embed anchors, score, or detect."""

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
        scorings = [s.key for s in self.scorings] if self.kind == "detect" else ""
        return f"{self.kind} {self.condition.key} {self.chunk} {self.anchors}{scorings}"

    def home(self, corpus: str | None) -> str | None:
        """Return the folder of a corpus."""
        return dict(self.homes).get(corpus or "")


@dataclass
class JobResult:
    """What a job did: rows, rows with an error, work that another run has claimed, notes."""

    rows: int = 0
    errors: int = 0
    busy: int = 0
    fatal: str = ""
    notes: list[str] = field(default_factory=list)


def perform(job: Job) -> JobResult:
    """Do one job, unless another run has claimed it."""
    try:
        store = _store(job.store)
        if not store.claim(job.claim):
            return JobResult(busy=1)
        try:
            return _KINDS[job.kind](job, store)
        finally:
            store.release(job.claim)
    except StoreError as error:
        return JobResult(fatal=str(error))


def perform_remotely(job: Job, *, run: str) -> tuple[JobResult, Tables]:
    """Do one job on another machine; return its result and what to put into the database."""
    start_run(run)
    try:
        with Store.for_worker(job.store) as store:
            return _KINDS[job.kind](job, store), store.drain()
    except StoreError as error:
        return JobResult(fatal=f"On the node {node()}: {error}"), {}


def _embed(job: Job, store: Store) -> JobResult:
    condition = job.condition
    clips, _ = clips_of(condition.dataset, job.home(condition.dataset), condition.limit)
    chunk = embedding.ChunkId(condition, job.chunk, job.backgrounds)
    noise_home = job.home(condition.noise)
    embedding.embed_chunk(store, chunk, clips, embedder_of(condition), noise_home=noise_home)
    return JobResult()


def _anchors(job: Job, store: Store) -> JobResult:
    noise, data = job.anchors
    name = embedding.anchors_name(noise, data, job.condition)
    try:
        embedder = embedder_of(job.condition)
        embedding.embed_anchors(store, name, noise, embedder, home=job.home(noise))
    except StoreError:
        raise
    except DriftscoreError as error:
        return JobResult(notes=[f"The noise {noise} has no anchors: {error}"])
    return JobResult()


def _score(job: Job, store: Store) -> JobResult:
    condition = job.condition
    clips, labels = clips_of(condition.dataset, job.home(condition.dataset), condition.limit)
    truth = Truth.of(clips, labels)
    backgrounds = any(needs_of(s) & Needs.BACKGROUND for s in job.scorings)
    embeddings = embedding.load_embeddings(store, condition, truth.ids, backgrounds=backgrounds)
    if embeddings is None:  # another run is computing them
        note = f"{condition.title}: embeddings are missing; run the grid again"
        return JobResult(busy=len(job.scorings), notes=[note])
    model = embedder_of(condition).backbone
    data = scoring.ConditionData(store, condition, truth, model, embeddings)
    store.put_json("sets", (condition.set_name,), truth.content)
    for key, content in scoring.drift_reports(data, job.scorings):
        store.put_json("drifts", (condition.key, key), content)
    rows = list(scoring.score_condition(data, job.scorings))
    store.put_rows(rows)
    return JobResult(rows=len(rows), errors=sum(bool(row.error) for row in rows))


def _detect(job: Job, store: Store) -> JobResult:
    condition = job.condition
    clips, _ = clips_of(condition.dataset, job.home(condition.dataset), condition.limit)
    rows = detecting.detect_condition(store, condition, job.scorings, clips, embedder_of(condition))
    store.put_rows(rows)
    return JobResult(rows=len(rows), errors=sum(bool(row.error) for row in rows))


_KINDS: dict[str, Callable[[Job, Store], JobResult]] = {
    "embed": _embed,
    "anchors": _anchors,
    "score": _score,
    "detect": _detect,
}


@lru_cache(maxsize=1)
def start_run(run: str) -> None:
    """Clear the per-process caches when a new run starts: folders and models may have changed."""
    for kept in (_store, clips_of, _embedder):
        kept.cache_clear()
    forget_meter()


@lru_cache(maxsize=4)
def _store(home: str) -> Store:
    return Store(home)


@lru_cache(maxsize=4)
def clips_of(dataset: str, home: str | None, limit: int) -> tuple[list[Clip], tuple[str, ...]]:
    """Return the clips and labels of a dataset, listed once per run."""
    return chosen_clips(dataset, home, limit), find_dataset(dataset).labels(home)


def embedder_of(condition: Condition) -> Embedder:
    """Return the embedder of a condition's model, loaded once per process."""
    embedder = _embedder(condition.backbone)
    if embedder.backbone.fingerprint != condition.model:
        raise StoreError(
            f"The model {condition.backbone} has changed since the run was planned; run it again"
        )
    return embedder


@lru_cache(maxsize=2)
def _embedder(spec: str) -> Embedder:
    # One thread: a run is parallel by its workers, each of which has a core.
    return Embedder(spec, threads=1)
