"""A pipeline with the interface of transformers' zero-shot one: only the import changes.

    from driftscore import pipeline                                 # was: from transformers
    classify = pipeline("zero-shot-audio-classification", model="laion/clap-htsat-unfused")
    classify("night.wav", candidate_labels=["dog bark", "siren"])   # [{"score": .., "label": ..}]

Scores are a softmax over the labels of the model's `logit_scale` times the rule's scores, as in
transformers, or of standardised scores as they are. Texts are encoded once per set of labels, not
once per clip, and long clips are not cropped.
"""

import copy
import inspect
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TypedDict, TypeVar, overload

import numpy as np

from driftscore.audio import Audio, Numbers, Recording
from driftscore.backbones import DEFAULT_BACKBONE, Backbone
from driftscore.classifier import Classifier
from driftscore.embedder import Embedder
from driftscore.errors import UsageError, unknown
from driftscore.prompts import split_labels
from driftscore.rules import Compile, RuleModule
from driftscore.settings import AUTO, DEFAULT_PRESET, Preset, PromptSettings, load_preset
from driftscore.vectors import Scores

TASK = "zero-shot-audio-classification"
IGNORED = ("batch_size", "device", "device_map", "dtype", "framework", "num_workers", "token",
           "torch_dtype", "trust_remote_code", "use_auth_token", "use_fast")  # fmt: skip
"""Arguments of transformers' pipeline that are accepted and ignored: none changes a result."""
_KEPT = 8  # sets of labels whose heads are kept


class LabelScore(TypedDict):
    """One label with its share of the softmax."""

    score: float
    label: str


Answer = list[LabelScore]
"""The labels of one recording, best first."""
PipelineInput = Recording | Numbers
"""A recording, or an array of samples that has the model's own rate, as in transformers."""
OneClip = TypeVar("OneClip", bound=PipelineInput)
CandidateLabels = Iterable[str] | str


class ZeroShotPipeline:
    """A callable that takes recordings and candidate labels.

    `classifier` holds the model, the rule and its settings; each call gives it other labels. The
    other parameters are the defaults of a call.
    """

    def __init__(
        self,
        classifier: Classifier,
        *,
        candidate_labels: CandidateLabels | None = None,
        hypothesis_template: str | None = None,
        top_k: int | None = None,
    ) -> None:
        given = classifier.backbone
        self.embedder = given if isinstance(given, Embedder) else Embedder(given)
        self.candidate_labels = candidate_labels
        self.hypothesis_template = hypothesis_template
        self.top_k = _check_top_k(top_k)
        self._classifier = copy.copy(classifier).set_params(backbone=self.embedder)
        self._fitted: OrderedDict[tuple[tuple[str, ...], str | None], Classifier] = OrderedDict()

    @property
    def backbone(self) -> Backbone:
        """The loaded model."""
        return self.embedder.backbone

    @overload
    def __call__(
        self,
        audios: list[OneClip],
        candidate_labels: CandidateLabels | None = None,
        *,
        hypothesis_template: str | None = None,
        top_k: int | None = None,
        **ignored: object,
    ) -> list[Answer]: ...

    @overload
    def __call__(
        self,
        audios: PipelineInput,
        candidate_labels: CandidateLabels | None = None,
        *,
        hypothesis_template: str | None = None,
        top_k: int | None = None,
        **ignored: object,
    ) -> Answer: ...

    def __call__(
        self,
        audios: PipelineInput | list[OneClip],
        candidate_labels: CandidateLabels | None = None,
        *,
        hypothesis_template: str | None = None,
        top_k: int | None = None,
        **ignored: object,
    ) -> Answer | list[Answer]:
        """Return the labels of one recording, or of each one in a list, best first.

        `top_k` limits the answer to the best labels; their shares are still those among all.
        """
        _note_ignored(self.__call__, ignored)
        labels = self.candidate_labels if candidate_labels is None else candidate_labels
        template = hypothesis_template or self.hypothesis_template
        classifier = self._for_labels(_label_names(labels), template)
        best = self.top_k if top_k is None else _check_top_k(top_k)
        clips = [
            Audio.of((audio, self.backbone.rate)) if isinstance(audio, np.ndarray) else audio
            for audio in (audios if isinstance(audios, list) else [audios])
        ]
        head = classifier.head_
        # Standardised scores have a natural scale of their own.
        scale = 1.0 if head.standardised else self.backbone.logit_scale
        answers = [
            softmax_answer(head.labels, scale * row)[:best] for row in classifier.scores(clips)
        ]
        return answers if isinstance(audios, list) else answers[0]

    def _for_labels(self, labels: tuple[str, ...], template: str | None) -> Classifier:
        """Return the fitted classifier of these labels; the last few are kept."""
        key = (labels, template)
        if key not in self._fitted:
            chosen = copy.copy(self._classifier).set_params(labels=labels)
            if template is not None:
                prompts = chosen.prompts or load_preset(chosen.preset).prompts
                chosen.set_params(prompts=prompts.changed(prompt=template.replace("{}", "{c}")))
            self._fitted[key] = chosen.fit()
            while len(self._fitted) > _KEPT:
                self._fitted.popitem(last=False)
        return self._fitted[key]


def pipeline(
    task: str = TASK,
    model: str | PathLike[str] | Backbone | Embedder = DEFAULT_BACKBONE,
    *,
    runtime: str | None = None,
    cache: bool = True,
    rule: str | Compile | RuleModule = AUTO,
    settings: Mapping[str, object] | None = None,
    prompts: PromptSettings | None = None,
    preset: str | PathLike[str] | Preset = DEFAULT_PRESET,
    progress: bool | None = None,
    candidate_labels: CandidateLabels | None = None,
    hypothesis_template: str | None = None,
    top_k: int | None = None,
    **ignored: object,
) -> ZeroShotPipeline:
    """Return a callable for zero-shot audio classification.

    `runtime` and `cache` (of texts) are those of a model that is loaded here, `rule` to `progress`
    those of `Classifier`; the last three are the defaults of each call.
    """
    if task != TASK:
        raise unknown("task", task, [TASK])
    if "beta" in ignored:
        settings = _with_beta(settings, ignored.pop("beta"))
    _note_ignored(pipeline, ignored)
    if isinstance(model, Embedder):
        embedder = model
    else:
        embedder = Embedder(model, runtime=runtime, text_cache=cache)
    made = ZeroShotPipeline(
        Classifier(
            backbone=embedder,
            rule=rule,
            settings=settings,
            prompts=prompts,
            preset=preset,
            progress=progress,
        ),
        candidate_labels=candidate_labels,
        hypothesis_template=hypothesis_template,
        top_k=top_k,
    )
    _ = made.backbone  # a model that cannot be loaded is an error here, not in the first call
    return made


def softmax_answer(labels: Sequence[str], logits: Scores) -> Answer:
    """Return labels with their share of a softmax, best first."""
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    order = np.argsort(-logits, kind="stable")
    return [{"score": float(shares[c]), "label": labels[c]} for c in order]


def _with_beta(settings: Mapping[str, object] | None, beta: object) -> Mapping[str, object]:
    warnings.warn(
        "pipeline(beta=...) is deprecated; use pipeline(settings={'beta': ...})",
        DeprecationWarning,
        stacklevel=3,
    )
    return {"beta": beta, **(settings or {})}


def _note_ignored(function: Callable[..., object], given: Iterable[str]) -> None:
    """Warn of arguments that are ignored; refuse a name that is not known at all."""
    names = sorted(given)
    for name in names:
        if name not in IGNORED:
            known = [p for p in inspect.signature(function).parameters if p != "ignored"]
            raise UsageError(f"pipeline: {unknown('argument', name, [*known, *IGNORED])}")
    if names:
        warnings.warn(
            f"{', '.join(names)} of transformers' pipeline: ignored, as driftscore chooses for "
            "itself how a model is run; the results are the same",
            stacklevel=3,
        )


def _label_names(labels: CandidateLabels | None) -> tuple[str, ...]:
    if labels is None:
        raise UsageError('No labels given; pass candidate_labels=["dog bark", "siren"]')
    return split_labels(labels) if isinstance(labels, str) else tuple(labels)


def _check_top_k(top_k: int | None) -> int | None:
    valid = isinstance(top_k, (int, np.integer)) and not isinstance(top_k, bool) and top_k > 0
    if top_k is not None and not valid:
        raise UsageError(f"top_k must be a positive integer, got {top_k!r}")
    return top_k
