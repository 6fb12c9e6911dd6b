"""A driftscore classifier as a model of mteb, so that mteb's zero-shot audio tasks run with a rule.

    import mteb
    from driftscore.mteb_model import MtebModel

    mteb.evaluate(MtebModel("mini", rule="das"), mteb.get_tasks(["ESC50_Zeroshot"]))

mteb encodes the candidate texts, then the sounds, and asks for their similarity. The candidates are
the labels: words that all of them share ("This is a sound of ...") are removed, and a head is
compiled with the classifier's own prompts and rule. The similarity of sounds to these candidates is
the head's scores. Any other similarity is the cosine.
"""

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from driftscore.audio.recordings import Audio
from driftscore.backbones import DEFAULT_BACKBONE, Backbone
from driftscore.backbones.vectors import Matrix, Scores
from driftscore.classifier import Classifier
from driftscore.embedder import Embedder
from driftscore.scoring.head import Head
from driftscore.scoring.rules import Compile
from driftscore.text.presets import AUTO, DEFAULT_PRESET, Preset, PromptSettings
from driftscore.text.prompts import check_labels
from driftscore.version import __version__

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import ModelMeta

MtebBatch = Mapping[str, Sequence[Any]]
"""A batch of mteb: texts under "text", or sounds under "audio", each read like a dict."""


class MtebModel:
    """An encoder in the sense of mteb, with a rule of driftscore in place of the cosine.

    Parameters
    ----------
        backbone: the name or path of a model, a loaded model or an `Embedder`.
        rule: how labels are scored, as for `Classifier`.
        settings: settings of the rule.
        prompts: how prompts are composed; None for those of the preset.
        preset: the settings of a paper.
        standardised: whether scores are standardised, as for `Classifier`.

    """

    def __init__(
        self,
        backbone: str | PathLike[str] | Backbone | Embedder = DEFAULT_BACKBONE,
        *,
        rule: str | Compile = AUTO,
        settings: Mapping[str, object] | None = None,
        prompts: PromptSettings | None = None,
        preset: str | PathLike[str] | Preset = DEFAULT_PRESET,
        standardised: bool | None = None,
    ) -> None:
        self.embedder = backbone if isinstance(backbone, Embedder) else Embedder(backbone)
        self.classifier = Classifier(
            backbone=self.embedder,
            rule=rule,
            settings=settings,
            prompts=prompts,
            preset=preset,
            standardised=standardised,
        )
        self._heads: dict[str, Head] = {}

    def encode(
        self,
        inputs: Iterable[MtebBatch],
        *,
        task_metadata: "TaskMetadata",
        hf_split: str,
        hf_subset: str,
        prompt_type: object = None,
        **kwargs: object,
    ) -> Matrix:
        """Return one unit row per text or sound."""
        texts: list[str] = []
        sounds: list[Audio] = []
        for batch in inputs:
            texts += [str(text) for text in batch.get("text", ())]
            for sound in batch.get("audio", ()):
                sounds.append(Audio(np.asarray(sound["array"]), int(sound["sampling_rate"])))
        if sounds:
            return np.stack([embedded.embedding for embedded in self.embedder.embed(sounds)])
        rows = self.embedder.backbone.embed_text(texts)
        if "zeroshot" in task_metadata.type.lower():
            words = copy.copy(self.classifier).set_params(labels=labels_of(texts))
            self._heads[_digest(rows)] = words.fit().head_
        return rows

    def similarity(self, embeddings1: Matrix, embeddings2: Matrix) -> Scores:
        """Return the scores of sounds for candidates, or the cosines of any two sets of rows."""
        head = self._heads.get(_digest(embeddings2))
        if head is not None:
            return head.scores(embeddings1)
        return np.asarray(embeddings1, np.float64) @ np.asarray(embeddings2, np.float64).T

    def similarity_pairwise(self, embeddings1: Matrix, embeddings2: Matrix) -> Scores:
        """Return the cosine of each row with the row at the same place."""
        return (np.asarray(embeddings1, np.float64) * embeddings2).sum(axis=1)

    @property
    def mteb_model_meta(self) -> "ModelMeta":
        """What mteb writes beside a result: the model and the rule."""
        from mteb.models import ModelMeta

        backbone, rule = self.embedder.backbone, self.classifier.rule
        rule_name = rule if isinstance(rule, str) else getattr(rule, "__name__", "own")
        name = f"driftscore/{backbone.name.replace('/', '_')}-{rule_name}"
        digest = hashlib.sha256(backbone.fingerprint.encode()).hexdigest()
        settings = self.classifier.settings
        return ModelMeta.create_empty(
            {
                "name": name,
                "revision": f"{__version__}-{digest[:12]}",
                "embed_dim": backbone.dim,
                "modalities": ["audio", "text"],
                "similarity_fn_name": None,
                "experiment_kwargs": {"settings": str(dict(settings))} if settings else None,
            }
        )


def labels_of(candidates: Sequence[str]) -> tuple[str, ...]:
    """Return candidate texts without the words at both ends that all of them share."""
    split = [text.split() for text in candidates]
    shortest = min(map(len, split), default=0)
    first = 0
    while first < shortest - 1 and len({each[first] for each in split}) == 1:
        first += 1
    last = 0
    while last < shortest - first - 1 and len({each[-1 - last] for each in split}) == 1:
        last += 1
    if len(candidates) < 2:
        first = last = 0
    return check_labels(" ".join(each[first : len(each) - last]) for each in split)


def _digest(rows: Matrix) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows, np.float32).tobytes()).hexdigest()
