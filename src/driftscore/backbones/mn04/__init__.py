"""mn04, an AudioSet tagger with 0.98 M parameters, joined to MiniLM sentences by tag space.

    samples at 32 kHz -> log-mel (128, frames) -> 527 logits -> tag space
    text -> all-MiniLM-L6-v2 -> tag space

The tagger (EfficientAT, MIT licence) and the sentence encoder are not part of driftscore: see
`tagger` and `minilm` for where they are looked for.
"""

import os
from collections.abc import Sequence

from driftscore.audio.recordings import Samples
from driftscore.backbones.mn04.minilm import SentenceEncoder, load_encoder
from driftscore.backbones.mn04.tagger import FRONT_END, RATE, SECONDS, Tagger, load_tagger
from driftscore.backbones.mn04.tagspace import TAGS, TagSpace, load_space
from driftscore.backbones.onnx.sessions import without_known_words
from driftscore.backbones.protocol import CALIBRATIONS, TAG_SPACE, Backbone, Features
from driftscore.backbones.vectors import Matrix, Vector

__all__ = ["RATE", "SECONDS", "Mn04", "Tagger", "load", "load_tagger"]


class Mn04(Backbone):
    """mn04 for audio, MiniLM for text, both mapped to tag space."""

    name = "mn04"
    dim = TAGS
    rate = RATE
    seconds = SECONDS
    runtime = "onnxruntime, one thread per window"
    parallel = os.cpu_count() or 1
    calibration_file = CALIBRATIONS / "mn04.safetensors"
    tag_file = TAG_SPACE

    def __init__(self, tagger: Tagger, encoder: SentenceEncoder, space: TagSpace) -> None:
        self.tagger = tagger
        self.encoder = encoder
        self.space = space
        self.fingerprint = f"mn04/{tagger.fingerprint}/{encoder.fingerprint}/{space.digest}"

    def features(self, samples: Samples) -> Features:
        """Return the log-mel of one window."""
        return FRONT_END(samples)

    def encode(self, features: Features) -> Vector:
        """Return the unit embedding of the log-mel of one window."""
        return self.space.embed_logits(self.tagger.run(features)[None])[0]

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text."""
        return self.space.embed_sentences(self.encoder.encode(texts))

    def unknown_labels(self, labels: Sequence[str]) -> list[str]:
        """Return the labels that are made of pieces of words only, as those of another language."""
        return without_known_words(self.encoder.vocabulary, labels)


def load(weights: str | os.PathLike[str] | None = None) -> Mn04:
    """Load mn04 from `weights` or the cache, and the sentence encoder from its package."""
    encoder = load_encoder()  # first: without its package there is no need to download
    return Mn04(load_tagger(weights), encoder, load_space())
