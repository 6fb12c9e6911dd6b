"""The pieces of work of a run: embed a chunk, embed anchors, score a condition, detect events.

On this machine a job claims its name and writes the store itself (`perform`); on another one it
writes files only, and returns what is to be put into the database (`perform_remotely`). A job
never waits while it holds a claim: if another run has claimed it, or the embeddings that it reads,
it says so (`JobResult.blocked`) and is performed again when that claim is free.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from driftscore.embedder import Embedder
from driftscore.engines._ray_tasks import node
from driftscore.errors import DriftscoreError, StoreError
from driftscore.lab.conditions import Cell, Condition, Row, Scoring
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.datasets import find_dataset
from driftscore.lab.runs import detecting, embedding, scoring
from driftscore.lab.runs.mixes import forget_meter
from driftscore.lab.runs.scores import fits
from driftscore.lab.runs.scorings import needs_clean_pool, needs_of
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
    retry: bool = False

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
    """What a job did: rows, rows with an error, rows of another run, notes.

    `blocked` is the claim of another run that prevented it.
    """

    rows: int = 0
    errors: int = 0
    already: int = 0
    blocked: str = ""
    fatal: str = ""
    notes: list[str] = field(default_factory=list)


def perform(job: Job) -> JobResult:
    """Do one job, unless another run has claimed it."""
    try:
        return _claimed(job, _store(job.store))
    except StoreError as error:
        return JobResult(fatal=str(error))


def _claimed(job: Job, store: Store) -> JobResult:
    """Do one job under its claim."""
    if not store.claim(job.claim):
        return JobResult(blocked=job.claim)
    try:
        return _KINDS[job.kind](job, store)
    finally:
        store.release(job.claim)


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
    noise_home = job.home(condition.noise)
    embedder = embedder_of(condition)
    embedding.embed_chunk(store, _chunk_of(job), clips, embedder, noise_home=noise_home)
    return JobResult()


def _anchors(job: Job, store: Store) -> JobResult:
    noise, _ = job.anchors
    try:
        embedder = embedder_of(job.condition)
        embedding.embed_anchors(store, _anchors_of(job), noise, embedder, home=job.home(noise))
    except StoreError:
        raise
    except DriftscoreError as error:
        return JobResult(notes=[f"The noise {noise} has no anchors: {error}"])
    return JobResult()


def _score(job: Job, store: Store) -> JobResult:
    condition, result = job.condition, JobResult()
    truth = truth_of(condition, job.home(condition.dataset))
    done = done_rows(store, condition, truth, retry=job.retry)
    todo = tuple(s for s in job.scorings if Cell(condition, s).key not in done)
    result.already = len(job.scorings) - len(todo)
    if not todo:
        return result
    clips = len(truth.ids)
    model = embedder_of(condition).backbone
    for part in parts_of(replace(job, scorings=todo), clips):
        if not _is_complete(part, store, clips, model.dim):
            made = _claimed(part, store)
            if made.blocked:
                return made
            result.notes += made.notes
    backgrounds = any(needs_of(s) & Needs.BACKGROUND for s in todo)
    embeddings = embedding.load_embeddings(
        store, condition, truth.ids, backgrounds=backgrounds, dim=model.dim
    )
    if embeddings is None:
        raise StoreError(f"The embeddings of {condition.title} cannot be read from the store")
    data = scoring.ConditionData(store, condition, truth, model, embeddings)
    store.put_json("sets", (condition.set_name,), truth.content)
    for key, content in scoring.drift_reports(data, todo):
        store.put_json("drifts", (condition.key, key), content)
    rows = list(scoring.score_condition(data, todo))
    store.put_rows(rows)
    result.rows, result.errors = len(rows), sum(bool(row.error) for row in rows)
    return result


def done_rows(
    store: Store, condition: Condition, truth: Truth, *, retry: bool = False
) -> dict[str, Row]:
    """Return the rows of a condition that need not be computed: complete, with valid scores.

    With `retry`, rows with an error are not among them.
    """
    found = store.done(condition, failed_too=not retry)
    return {key: row for key, row in found.items() if row.error or fits(store, row, truth)}


def parts_of(job: Job, clips: int) -> Iterator[Job]:
    """Yield what must be embedded before a job that scores a condition of so many clips."""
    for condition, backgrounds in _read_conditions(job.condition, job.scorings):
        for chunk in range(embedding.chunk_count(clips)):
            size = embedding.chunk_size(clips, chunk)
            yield replace(
                job, kind="embed", condition=condition, scorings=(), chunk=chunk,
                backgrounds=backgrounds, weight=size,
            )  # fmt: skip
    noises = {(s.anchors, s.anchors_data) for s in job.scorings if s.anchors}
    for noise, data in sorted((str(noise), data) for noise, data in noises):
        owner = job.condition.without_noise
        yield replace(
            job, kind="anchors", condition=owner, scorings=(), anchors=(noise, data), weight=100
        )


def is_stored(part: Job, store: Store) -> bool:
    """Return whether the file of a job that embeds exists; whether it is valid is not checked."""
    if part.kind == "anchors":
        return store.path("embeddings", _anchors_of(part)).is_file()
    return embedding.has_chunk(store, _chunk_of(part))


def _is_complete(part: Job, store: Store, clips: int, dim: int) -> bool:
    """Return whether a job that embeds is done, and its file valid."""
    if part.kind == "anchors":
        return embedding.find_anchors(store, _anchors_of(part), dim) is not None
    size = embedding.chunk_size(clips, part.chunk)
    return embedding.find_chunk(store, _chunk_of(part), size, dim) is not None


def _read_conditions(
    condition: Condition, scorings: tuple[Scoring, ...]
) -> Iterator[tuple[Condition, bool]]:
    """Yield the conditions whose embeddings the scorings read, and whether with backgrounds."""
    yield condition, any(needs_of(s) & Needs.BACKGROUND for s in scorings)
    if not condition.clean and any(needs_clean_pool(s) or s.direction for s in scorings):
        yield condition.without_noise, False


def _chunk_of(job: Job) -> embedding.ChunkId:
    return embedding.ChunkId(job.condition, job.chunk, job.backgrounds)


def _anchors_of(job: Job) -> str:
    return embedding.anchors_name(*job.anchors, job.condition)


def _detect(job: Job, store: Store) -> JobResult:
    condition, home = job.condition, job.home(job.condition.dataset)
    done = done_rows(store, condition, truth_of(condition, home), retry=job.retry)
    todo = tuple(s for s in job.scorings if Cell(condition, s).key not in done)
    clips, _ = clips_of(condition.dataset, home, condition.limit)
    rows = detecting.detect_condition(store, condition, todo, clips, embedder_of(condition))
    store.put_rows(rows)
    errors = sum(bool(row.error) for row in rows)
    return JobResult(rows=len(rows), errors=errors, already=len(job.scorings) - len(todo))


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
    return chosen_clips(dataset, home, limit), find_dataset(dataset, home).labels(home)


def truth_of(condition: Condition, home: str | None) -> Truth:
    """Return the labels of the clips of a condition's dataset."""
    return Truth.of(*clips_of(condition.dataset, home, condition.limit))


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
