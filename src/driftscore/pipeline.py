"""A pipeline shaped like transformers' zero-shot one: one import changes, the code goes on.

    from driftscore import pipeline                          # was: from transformers
    ask = pipeline("zero-shot-audio-classification", model="laion/clap-htsat-unfused")
    ask("night.wav", candidate_labels=["dog bark", "siren"]) # [{"score": .., "label": ..}, ..]

Scores are a softmax over the labels of `logit_scale` times the rule's scores, as there.
Text is encoded once for a label set, not once a clip, and long clips are not cropped.
"""

from collections import OrderedDict
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np

from driftscore.audio import Audio, Recording
from driftscore.backbones import Backbone, load_backbone
from driftscore.classifier import Classifier
from driftscore.errors import UsageError, unknown
from driftscore.prompts import split_labels
from driftscore.settings import PromptSettings
from driftscore.vectors import Scores

TASK = "zero-shot-audio-classification"
_LOGIT_SCALE = 20.0  # for models that were not trained with one
_KEPT = 8  # label sets whose heads are kept

Answer = list[dict[str, Any]]


class ZeroShotPipeline:
    """Call it with recordings and candidate labels."""

    def __init__(self, backbone: Backbone, **settings: Any) -> None:
        self.backbone = backbone
        self.settings = settings
        self._fitted: OrderedDict[tuple[Any, ...], Classifier] = OrderedDict()

    def __call__(
        self,
        audios: Recording | Sequence[Recording],
        candidate_labels: Sequence[str] | str,
        *,
        hypothesis_template: str | None = None,
    ) -> Answer | list[Answer]:
        """Return each label with its share of the softmax, best first, for one clip or many.

        An array without a rate is taken at the model's own, as transformers takes it.
        """
        labels = (
            split_labels(candidate_labels)
            if isinstance(candidate_labels, str)
            else tuple(candidate_labels)
        )
        ears = self._classifier(labels, hypothesis_template)
        clips = [
            Audio(audio, self.backbone.rate) if isinstance(audio, np.ndarray) else audio
            for audio in (audios if isinstance(audios, list) else [audios])
        ]
        answers = [self._answer(ears.head_.labels, scores) for scores in ears.scores(clips)]
        return answers if isinstance(audios, list) else answers[0]

    def _answer(self, labels: Sequence[str], scores: Scores) -> Answer:
        logits = self.backbone.logit_scale * scores
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        order = np.argsort(-scores, kind="stable")
        return [{"score": float(shares[c]), "label": labels[c]} for c in order]

    def _classifier(self, labels: tuple[str, ...], template: str | None) -> Classifier:
        key = (labels, template)
        if key not in self._fitted:
            settings = dict(self.settings)
            if template:
                settings["prompts"] = PromptSettings(prompt=template.replace("{}", "{c}"))
            self._fitted[key] = Classifier(labels, backbone=self.backbone, **settings).fit()
            while len(self._fitted) > _KEPT:
                self._fitted.popitem(last=False)
        return self._fitted[key]


def pipeline(
    task: str = TASK,
    model: str | PathLike[str] | Backbone = "mini",
    *,
    rule: str = "das",
    **settings: Any,
) -> ZeroShotPipeline:
    """Return a callable for zero-shot audio classification; settings are Classifier's."""
    if task != TASK:
        raise unknown("task", task, [TASK])
    allowed = set(Classifier([]).get_params()) - {"labels", "backbone", "threshold", "head"}
    for name in settings:
        if name not in allowed:
            raise UsageError(f"pipeline: {unknown('setting', name, allowed)}")
    backbone = (
        load_backbone(model, runtime=settings.pop("runtime", None))
        if isinstance(model, (str, PathLike))
        else model
    )
    return ZeroShotPipeline(backbone, rule=rule, **settings)
