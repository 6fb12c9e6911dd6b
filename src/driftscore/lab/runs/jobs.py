"""The pieces of work of a run: embed a chunk, embed anchors, score a condition, detect events.

A job can be performed in any process and on any machine that has the folders: it reads and writes
the files of the store, and returns what is to be put into its database.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from driftscore.embedder import Embedder
from driftscore.errors import DriftscoreError, StoreError
from driftscore.lab.conditions import Cell, Condition, Scoring, clean_condition
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.datasets import find_dataset
from driftscore.lab.runs import embedding, events, mixes, scoring
from driftscore.lab.runs.scorings import needs_of, supplied_setting
from driftscore.lab.runs.store import ArrayFiles, Entries, open_files
from driftscore.lab.runs.truth import Truth
from driftscore.lab.runs.validation import chosen_clips
from driftscore.scoring.rules import Needs


@dataclass(frozen=True)
class Job:
    """A piece of work that can be sent to a process: embed, anchors, score or detect.

    `run` is the run that it belongs to, `homes` where each corpus is.
    """

    kind: str
    run: str
    store: str
    condition: Condition
    homes: Mapping[str, str]
    chunk: int = 0
    backgrounds: bool = False
    anchors: tuple[str, str] = ("", "")
    scorings: tuple[Scoring, ...] = ()
    weight: int = 1

    @property
    def name(self) -> str:
        """The name under which a run claims the job."""
        scorings = [s.key for s in self.scorings] if self.kind == "detect" else ""
        return f"{self.kind} {self.condition.key} {self.chunk} {self.anchors}{scorings}"

    def clips(self) -> tuple[list[Clip], tuple[str, ...]]:
        """Return the clips and labels of the job's dataset."""
        dataset, limit = self.condition.dataset, self.condition.limit
        return clips_of(dataset, self.homes.get(dataset), limit)

    @property
    def examples(self) -> "Job | None":
        """The clean clips that the job's examples are drawn from, as a job; None without any."""
        drawn = next((s for s in self.scorings if s.examples), None)
        if drawn is None:
            return None
        c, source = self.condition, (drawn.examples_from, drawn.examples_data)
        return replace(self, condition=clean_condition(*source, 0, c.backbone, c.model))

    def embedder(self) -> Embedder:
        """Return the embedder of the job's model."""
        return embedder_of(self.condition.backbone, self.condition.model)


def perform(job: Job) -> Entries:
    """Do one job."""
    start_run(job.run)
    files = open_files(job.store)
    if job.kind == "detect":
        clips, _ = job.clips()
        cells = [Cell(job.condition, scoring) for scoring in job.scorings]
        return Entries([events.detect(files, cell, clips, job.embedder()) for cell in cells])
    if job.kind != "score":
        return _embed(job, files)
    condition, truth, entries = job.condition, Truth.of(*job.clips()), Entries()
    for part in parts_of(job):  # what is missing of its embeddings, or damaged
        embedded = _embed(part, files)
        entries.notes += embedded.notes
        entries.failures += embedded.failures
        entries.costs += embedded.costs
    backgrounds = any(needs_of(s) & Needs.BACKGROUND for s in job.scorings)
    embeddings = embedding.load_embeddings(files, condition, truth.ids, backgrounds=backgrounds)
    if embeddings is None:
        raise StoreError(f"The embeddings of {condition.title} cannot be read from the store")
    model = job.embedder().backbone
    examples = None
    if job.examples is not None:
        examples_truth = Truth.of(*job.examples.clips())
        rows = embedding.load_embeddings(files, job.examples.condition, examples_truth.ids)
        examples = None if rows is None else (examples_truth, rows)
    data = scoring.ConditionData(files, condition, truth, model, embeddings, examples)
    # A run may have been killed after it embedded: the failures are in the embeddings.
    entries.failures += [(condition, clip, why) for clip, why in embeddings.failures.items()]
    entries.values.append(("sets", (condition.set_name,), asdict(truth)))
    for key, content in scoring.drift_reports(data, job.scorings):
        entries.values.append(("drifts", (condition.key, key), content))
    entries.rows += scoring.score_condition(data, job.scorings)
    return entries


def _embed(job: Job, files: ArrayFiles) -> Entries:
    """Embed a chunk, or anchors, unless its file is stored and valid."""
    condition, embedder, noise = job.condition, job.embedder(), job.anchors[0]
    if job.kind == "embed":
        return embedding.embed_chunk(
            files, condition, job.chunk, job.clips()[0], embedder,
            backgrounds=job.backgrounds, noise_home=job.homes.get(condition.noise or ""),
        )  # fmt: skip
    try:
        name, home = embedding.anchors_name(*job.anchors, condition), job.homes.get(noise)
        embedding.embed_anchors(files, name, noise, embedder, home=home)
    except StoreError:
        raise
    except DriftscoreError as error:
        return Entries(notes=[f"The noise {noise} has no anchors: {error}"])
    return Entries()


def parts_of(job: Job) -> Iterator[Job]:
    """Yield what must be embedded before a job that scores a condition."""
    scorings, condition = job.scorings, job.condition
    conditions = {condition: any(needs_of(s) & Needs.BACKGROUND for s in scorings)}
    clean_pool = [s for s in scorings if needs_of(s) & Needs.POOL and supplied_setting(s) != "pool"]
    if not condition.clean and (clean_pool or any(s.direction for s in scorings)):
        conditions[condition.without_noise] = False
    if job.examples is not None:
        conditions[job.examples.condition] = False
    for read, backgrounds in conditions.items():
        part = replace(job, kind="embed", condition=read, scorings=(), backgrounds=backgrounds)
        for chunk, clips in enumerate(embedding.chunk_sizes(len(part.clips()[0]))):
            yield replace(part, chunk=chunk, weight=clips)
    part = replace(job, kind="anchors", condition=condition.without_noise, scorings=(), weight=100)
    for anchors in sorted({(str(s.anchors), s.anchors_data) for s in scorings if s.anchors}):
        yield replace(part, anchors=anchors)


def is_stored(part: Job, files: ArrayFiles) -> bool:
    """Return whether the file of a job that embeds exists; whether it is valid is not checked."""
    if part.kind == "anchors":
        names = [embedding.anchors_name(*part.anchors, part.condition)]
    else:
        names = embedding.chunk_names(part.condition, part.chunk, backgrounds=part.backgrounds)
    return any(files.path("embeddings", name).is_file() for name in names)


@lru_cache(maxsize=1)
def start_run(run: str) -> None:
    """Clear the per-process caches when a new run starts: folders and models may have changed."""
    clips_of.cache_clear()
    embedder_of.cache_clear()
    mixes.meter.cache_clear()
    scoring.load_calibration.cache_clear()


@lru_cache(maxsize=4)
def clips_of(dataset: str, home: str | None, limit: int) -> tuple[list[Clip], tuple[str, ...]]:
    """Return the clips and labels of a dataset, listed once per run."""
    return chosen_clips(dataset, home, limit), find_dataset(dataset, home).labels()


@lru_cache(maxsize=2)
def embedder_of(backbone: str, model: str) -> Embedder:
    """Return the embedder of a model with this fingerprint, loaded once per process."""
    # One thread: a run is parallel by its workers, each of which has a core.
    embedder = Embedder(backbone, threads=1)
    if embedder.backbone.fingerprint != model:
        raise StoreError(
            f"The model {backbone} has changed since the run was planned; run it again"
        )
    return embedder
