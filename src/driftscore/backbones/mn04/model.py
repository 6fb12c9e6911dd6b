"""The tagger and the sentence encoder as one backbone."""

import os
from collections.abc import Sequence

from driftscore.audio import Samples
from driftscore.backbones.mn04 import tagger as tagging
from driftscore.backbones.mn04.minilm import SentenceEncoder, load_encoder
from driftscore.backbones.mn04.tagger import Tagger, load_tagger
from driftscore.backbones.mn04.tagspace import TAGS, TagSpace, load_space
from driftscore.backbones.protocol import Backbone, Features, shipped_calibration
from driftscore.vectors import Matrix, Vector


class Mn04(Backbone):
    """mn04 for audio, MiniLM for text, both mapped to tag space."""

    name = "mn04"
    dim = TAGS
    rate = tagging.RATE
    seconds = tagging.SECONDS
    runtime = "onnxruntime, one thread per window"
    parallel = os.cpu_count() or 1

    def __init__(self, tagger: Tagger, encoder: SentenceEncoder, space: TagSpace) -> None:
        self.calibration_file = shipped_calibration(self.name)
        self.tagger = tagger
        self.encoder = encoder
        self.space = space
        self.fingerprint = f"mn04/{tagger.fingerprint}/{encoder.fingerprint}/{space.digest}"

    def features(self, samples: Samples) -> Features:
        """Return the log-mel of one window."""
        return tagging.log_mel(samples)

    def encode(self, features: Features) -> Vector:
        """Return the unit embedding of the log-mel of one window."""
        logits, _ = self.tagger.run(features)
        row: Vector = self.space.embed_logits(logits[None])[0]
        return row

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text."""
        return self.space.embed_sentences(self.encoder.encode(texts))

    def unknown_labels(self, labels: Sequence[str]) -> list[str]:
        """Return the labels that are made of pieces of words only, as those of another language."""
        return self.encoder.unknown_labels(labels)


def load(
    weights: str | os.PathLike[str] | None = None,
    *,
    minilm: str | os.PathLike[str] | None = None,
) -> Mn04:
    """Load mn04 from `weights` or the cache, and the sentence encoder from its package."""
    return Mn04(load_tagger(weights), load_encoder(minilm), load_space())
