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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, TypedDict, TypeVar, overload

import numpy as np

from driftscore.audio.recordings import Audio, Numbers, Recording
from driftscore.backbones import DEFAULT_BACKBONE, Backbone
from driftscore.backbones.vectors import Scores
from driftscore.classifier import Classifier
from driftscore.embedder import Embedder
from driftscore.errors import UsageError, unknown
from driftscore.scoring.rules import Compile, RuleModule
from driftscore.text.presets import AUTO, DEFAULT_PRESET, Preset, PromptSettings, load_preset
from driftscore.text.prompts import check_labels, split_labels

TASK = "zero-shot-audio-classification"
IGNORED = ("device_map", "dtype", "framework", "num_workers", "token",
           "torch_dtype", "trust_remote_code", "use_auth_token", "use_fast")  # fmt: skip
"""Arguments of transformers' pipeline that are accepted and ignored: none changes a result."""
_MAX_HEADS = 8  # sets of labels whose heads stay compiled


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


@dataclass(eq=False)
class ZeroShotPipeline:
    """A callable that takes recordings and candidate labels; `pipeline` makes one."""

    classifier: Classifier
    """The model, the rule and its settings; each call gives it other labels."""
    backbone: Backbone
    """The loaded model."""
    candidate_labels: CandidateLabels | None = None
    hypothesis_template: str | None = None
    top_k: int | None = None
    """The defaults of a call."""
    _fitted: dict[tuple[tuple[str, ...], str | None], Classifier] = field(default_factory=dict)

    @overload
    def __call__(
        self, audios: list[OneClip], candidate_labels: CandidateLabels | None = None, **options: Any
    ) -> list[Answer]: ...

    @overload
    def __call__(
        self, audios: PipelineInput, candidate_labels: CandidateLabels | None = None, **options: Any
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
        ignored.pop("batch_size", None)  # it is chosen when the model is loaded
        _note_ignored(self.__call__, ignored)
        best = self.top_k if top_k is None else _check_top_k(top_k)
        labels = self.candidate_labels if candidate_labels is None else candidate_labels
        if labels is None:
            raise UsageError('No labels given; pass candidate_labels=["dog bark", "siren"]')
        names = split_labels(labels) if isinstance(labels, str) else check_labels(labels)
        template = hypothesis_template or self.hypothesis_template
        key = (names, template)
        if key not in self._fitted:
            classifier = copy.copy(self.classifier).set_params(labels=names)
            if template is not None:
                prompts = classifier.prompts or load_preset(classifier.preset).prompts
                prompts = prompts.changed(prompt=template.replace("{}", "{c}"))
                classifier.set_params(prompts=prompts)
            self._fitted[key] = classifier.fit()
            while len(self._fitted) > _MAX_HEADS:
                del self._fitted[next(iter(self._fitted))]
        classifier = self._fitted[key]
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
    standardised: bool | None = None,
    progress: bool | None = None,
    candidate_labels: CandidateLabels | None = None,
    hypothesis_template: str | None = None,
    top_k: int | None = None,
    device: object = None,
    batch_size: int | None = None,
    **ignored: object,
) -> ZeroShotPipeline:
    """Return a callable for zero-shot audio classification.

    `runtime`, `device`, `batch_size` and `cache` (of texts) are those of a model that is loaded
    here, `rule` to `progress` those of `Classifier`; `candidate_labels`, `hypothesis_template` and
    `top_k` are the defaults of each call.
    """
    if task != TASK:
        raise unknown("task", task, [TASK])
    _note_ignored(pipeline, ignored)
    if not isinstance(model, Embedder):
        model = Embedder(
            model, runtime=runtime, text_cache=cache, device=device, batch_size=batch_size
        )
    elif device is not None or batch_size is not None:
        raise UsageError("An embedder has its device and batches: give them to the embedder")
    classifier = Classifier(
        backbone=model,
        rule=rule,
        settings=settings,
        prompts=prompts,
        preset=preset,
        standardised=standardised,
        progress=progress,
    )
    # A model that cannot be loaded is an error here, not in the first call.
    return ZeroShotPipeline(
        classifier, model.backbone, candidate_labels, hypothesis_template, _check_top_k(top_k)
    )


def softmax_answer(labels: Sequence[str], logits: Scores) -> Answer:
    """Return labels with their share of a softmax, best first."""
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    order = np.argsort(-logits, kind="stable")
    return [{"score": float(shares[c]), "label": labels[c]} for c in order]


def _note_ignored(function: Callable[..., object], names: Iterable[str]) -> None:
    """Warn of arguments that are ignored; refuse a name that is not known at all."""
    for name in names:
        if name not in IGNORED:
            own = [p for p in inspect.signature(function).parameters if p != "ignored"]
            raise UsageError(f"pipeline: {unknown('argument', name, [*own, *IGNORED])}")
    if names:
        warnings.warn(
            f"{', '.join(sorted(names))} of transformers' pipeline: ignored, as driftscore chooses "
            "for itself how a model is run; the results are the same",
            stacklevel=3,
        )


def _check_top_k(top_k: int | None) -> int | None:
    valid = isinstance(top_k, (int, np.integer)) and not isinstance(top_k, bool) and top_k > 0
    if top_k is not None and not valid:
        raise UsageError(f"top_k must be a positive integer, got {top_k!r}")
    return top_k
