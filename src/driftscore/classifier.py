"""Classifier: backbone + labels + rule -> predictions: the main job, in one screen.

It behaves as a scikit-learn estimator (`get_params`, `set_params`, `clone`, `fit`,
`predict`, `decision_function`, `score`), without needing scikit-learn; `fit` learns
nothing from audio, it encodes the labels.
"""

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Source
from driftscore.backbones import Backbone, check_model, load_backbone, runtime_option
from driftscore.backbones.fake import Recorder
from driftscore.bank import ClassBank, build_bank
from driftscore.embeddings import EmbeddingFile
from driftscore.engines import Heard, find_engine, loading, thread_count
from driftscore.errors import UsageError, unknown
from driftscore.head import Head
from driftscore.presets import DEFAULT
from driftscore.prompts import check_labels
from driftscore.result import Result, results
from driftscore.rules import compile_head, reads_drifts, rule_parameters
from driftscore.textcache import TextCache
from driftscore.timeline import Event, Stretch, merge, stretches
from driftscore.vectors import Matrix, Scores

_BLOCK = 2048
"""Recordings scored in one product, where as many are there at once."""
_NO_SCORES = np.zeros((0, 0))


def score_rows(head: Head, names: Sequence[str], rows: Matrix) -> Iterator[Result]:
    """Yield the results of recordings that were embedded before, scored a block at a time."""
    for first in range(0, len(rows), _BLOCK):
        block = slice(first, first + _BLOCK)
        yield from results(head.labels, names[block], head.scores(rows[block]))


class Classifier:
    """Name the sounds, point it at recordings, get labels that hold up in noise.

    `backbone` is a name, a path or a loaded model, `runtime` what a CLAP runs in; `rule` and
    its settings (`beta`, `settings`) say how labels are scored; `noise` and `pool` are
    recordings or embeddings for the rules that use them. With `threshold` every label at or
    above it is predicted; without, the best one. A `head` compiled before takes the place of
    labels and rule.

    `cache` keeps text vectors on disk, `audio_cache` the embeddings of recordings too, by
    their content. `engine` says where recordings are heard (`address`: on which cluster),
    `threads` how many windows at once. None of these four changes a number.
    """

    def __init__(
        self,
        labels: Sequence[str] | None = None,
        *,
        backbone: str | PathLike[str] | Backbone = "mini",
        runtime: str | None = None,
        rule: str = "das",
        beta: float = 0.25,
        threshold: float | None = None,
        preset: str = DEFAULT,
        prompt: str | None = None,
        pack: str | PathLike[str] | None = None,
        templates: str | PathLike[str] | None = None,
        reference: str | None = None,
        direction: str | None = None,
        skip_same: bool | None = None,
        noise: Any = None,
        pool: Any = None,
        settings: Mapping[str, Any] | None = None,
        head: Head | str | PathLike[str] | None = None,
        cache: bool = True,
        progress: bool | None = None,
        audio_cache: bool = False,
        engine: str = "local",
        address: str | None = None,
        threads: int | None = None,
    ) -> None:
        self.labels = labels
        self.backbone = backbone
        self.runtime = runtime
        self.rule = rule
        self.beta = beta
        self.threshold = threshold
        self.preset = preset
        self.prompt = prompt
        self.pack = pack
        self.templates = templates
        self.reference = reference
        self.direction = direction
        self.skip_same = skip_same
        self.noise = noise
        self.pool = pool
        self.settings = settings
        self.head = head
        self.cache = cache
        self.progress = progress
        self.audio_cache = audio_cache
        self.engine = engine
        self.address = address
        self.threads = threads

    def fit(self, X: Any = None, y: Any = None) -> "Classifier":
        """Load the model and compile the head; X and y are ignored: nothing is learnt."""
        self._check()
        if not hasattr(self, "backbone_"):
            self.backbone_: Backbone = (
                load_backbone(self.backbone, **runtime_option(self.runtime))
                if isinstance(self.backbone, (str, PathLike))
                else self.backbone
            )
        self.head_: Head = self._compile()
        if len(self.head_.labels) == 1 and self.threshold is None:
            raise UsageError(
                f"One label ({self.head_.labels[0]!r}) leaves nothing to choose between; name "
                "another sound, or set a threshold to ask whether this one is there"
            )
        self.classes_ = np.array(self.head_.labels)
        return self

    def hear(self, sources: Iterable[Source]) -> Iterator[Heard]:
        """Yield the windows of each recording with their embeddings, in order."""
        return self._fitted()._hear(sources)

    def classify(self, sources: Iterable[Source]) -> Iterator[Result]:
        """Yield a result for each recording, in order; a bad one is a result with its error."""
        head = self._fitted().head_
        for block in _at_once(self.hear(sources)):
            good = [heard for heard in block if not heard.error]
            scores = head.scores(np.stack([h.embedding for h in good])) if good else _NO_SCORES
            names, ends = [h.source for h in good], [h.seconds for h in good]
            scored = results(head.labels, names, scores, ends)
            for heard in block:
                if heard.error:
                    yield Result(heard.source, head.labels, error=heard.error)
                else:
                    yield next(scored)

    def predict(self, X: Iterable[Source]) -> NDArray[np.str_] | list[list[str]]:
        """Return each recording's label, or with a threshold the list of its labels."""
        rows = self.scores(X)
        if self.threshold is None:
            best: NDArray[np.str_] = self.classes_[np.argmax(rows, axis=1)]
            return best
        return [Result("", self.head_.labels, row).above(self.threshold) for row in rows]

    def scores(self, X: Iterable[Source]) -> Scores:
        """Return the n x C scores of n recordings; a bad recording raises."""
        head = self._fitted().head_
        rows = [heard.embedding for heard in self.hear(_listed(X))]
        return head.scores(np.stack(rows)) if rows else np.zeros((0, len(head.labels)))

    def decision_function(self, X: Iterable[Source]) -> Scores:
        """Return the scores, as scikit-learn calls them."""
        return self.scores(X)

    def score(self, X: Iterable[Source], y: Sequence[str]) -> float:
        """Return the accuracy of `predict` against the true labels."""
        if self.threshold is not None:
            raise UsageError("score is accuracy, which needs one label a recording: no threshold")
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def stretches(self, source: Source | Heard) -> list[Stretch]:
        """Return the scores of each window of a recording, with the part it answers for."""
        [heard] = [source] if isinstance(source, Heard) else self.hear([source])
        heard.check()
        scores = self._fitted().head_.scores(heard.rows)
        return stretches(
            (start, end, row)
            for (start, end), row in zip(heard.spans.tolist(), scores, strict=True)
        )

    def timeline(self, source: Source) -> list[Event]:
        """Return what is heard in a recording, from when to when."""
        line = self.stretches(source)
        return merge(line, self.head_.labels, threshold=self.threshold)

    def texts(self) -> list[str]:
        """Return the exact texts that the head is made of, without loading the model."""
        recorder = Recorder()
        bank = self._bank(recorder, None)
        takes = rule_parameters(self.rule)
        if "text" in takes:
            settings = {k: v for k, v in (self.settings or {}).items() if k in takes}
            compile_head(bank, self.rule, backbone=recorder, preset=self.preset, **settings)
        return recorder.texts

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {name: getattr(self, name) for name in _parameters()}

    def set_params(self, **params: Any) -> "Classifier":
        """Change constructor arguments; the head is compiled anew on next use.

        A model once loaded is kept unless `backbone` itself is changed.
        """
        for name, value in params.items():
            if name not in _parameters():
                raise unknown("parameter of Classifier", name, _parameters())
            setattr(self, name, value)
        model = ["backbone_"] if {"backbone", "runtime"} & set(params) else []
        for made in ("head_", "classes_", *model):
            self.__dict__.pop(made, None)
        return self

    def __sklearn_clone__(self) -> "Classifier":
        """Share the loaded model between clones: it is never changed, and may be large."""
        return type(self)(**self.get_params())

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn, where it is installed, that this is a classifier of anything."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=False),
            transformer_tags=None,
            regressor_tags=None,
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(one_d_array=True, string=True),
            requires_fit=False,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "head_")

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.get_params().items() if v is not None)
        return f"Classifier({shown})"

    def _fitted(self) -> "Classifier":
        return self if hasattr(self, "head_") else self.fit()

    def _hear(self, sources: Iterable[Source]) -> Iterator[Heard]:
        given = self.backbone
        heard: Iterator[Heard] = find_engine(self.engine).hear(
            sources,
            self.backbone_,
            spec=loading(given, **runtime_option(self.runtime))
            if isinstance(given, (str, PathLike))
            else "",
            cache=self.audio_cache,
            address=self.address,
            threads=self.threads,
        )
        return heard

    def _compile(self) -> Head:
        if self.head is not None:
            head = self.head if isinstance(self.head, Head) else Head.load(self.head)
            check_model(head.made_by, self.backbone_, what="The head")
            return head
        takes = rule_parameters(self.rule)
        settings = dict(self.settings or {})
        if "beta" in takes:
            settings.setdefault("beta", self.beta)
        for name in ("noise", "pool"):
            if name in takes and getattr(self, name) is not None:
                settings[name] = self._embeddings_of(getattr(self, name))
        cache = TextCache() if self.cache else None
        bank = self._bank(self.backbone_, cache)
        return compile_head(
            bank, self.rule, backbone=self.backbone_, preset=self.preset, cache=cache, **settings
        )

    def _embeddings_of(self, value: Any) -> Matrix:
        """Return rows of embeddings: given as an array, as an npz, or as recordings to embed."""
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, (str, PathLike)) and str(value).endswith(".npz"):
            content = EmbeddingFile.load(value)
            if not content.files:
                raise UsageError(f"{value} holds no clip vectors (files with audio_embeddings)")
            made_by = {"fingerprint": content.fingerprint, "backbone": content.name}
            check_model(made_by, self.backbone_, what=str(value))
            return content.audio_rows
        return np.stack([heard.embedding for heard in self._hear(_listed(value))])

    def _check(self) -> None:
        """Find what is wrong with the arguments before a model is loaded."""
        if self.threshold is not None and not _is_number(self.threshold):
            raise UsageError(f"threshold must be a number, not {self.threshold!r}")
        find_engine(self.engine)
        thread_count(self.threads)
        if self.head is None:
            if self.labels is None:
                raise UsageError("No labels given; name the sounds to listen for, or give a head")
            check_labels(self.labels)
            rule_parameters(self.rule)

    def _bank(self, backbone: Backbone, cache: TextCache | None) -> ClassBank:
        self._check()
        return build_bank(
            self.labels or (),
            backbone,
            preset=self.preset,
            prompt=self.prompt,
            pack=self.pack,
            templates=self.templates,
            reference=self.reference,
            direction=self.direction,
            skip_same=self.skip_same,
            cache=cache,
            drifts=reads_drifts(self.rule),
            progress=self.progress,
        )


def _at_once(recordings: Iterable[Heard]) -> Iterator[list[Heard]]:
    """Group recordings that are there at once; none waits for one that is still to come."""
    block: list[Heard] = []
    for heard in recordings:
        block.append(heard)
        if not heard.followed or len(block) == _BLOCK:
            yield block
            block = []
    if block:
        yield block


def _listed(sources: Any) -> list[Source]:
    """Return recordings as a list; one path is a common slip for a list of one."""
    if isinstance(sources, (str, bytes, PathLike)):
        raise UsageError(f"A list of recordings is wanted; did you mean [{sources!r}]?")
    return list(sources)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _parameters() -> tuple[str, ...]:
    """Return the names of the constructor's arguments."""
    return tuple(inspect.signature(Classifier).parameters)
