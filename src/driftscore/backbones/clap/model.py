"""A CLAP model with its two towers in any runtime."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Samples
from driftscore.backbones.clap.log_mel import ClapMel
from driftscore.backbones.onnx.text_batches import embed_alike
from driftscore.backbones.onnx.tokenizer import Tokenizer
from driftscore.backbones.protocol import Backbone, Features
from driftscore.vectors import Matrix, Vector, unit

TEXT_ROWS = 4
"""Texts per batch (see `text_batches`). Larger batches are no faster and have more fillers."""


class Towers(Protocol):
    """The two networks of a CLAP in some runtime; their rows are not unit."""

    @property
    def runtime_name(self) -> str:
        """The runtime: torch, onnx or openvino."""

    @property
    def parallel(self) -> int:
        """Calls that may run at the same time; 1 if the runtime uses several threads itself."""

    @property
    def text_rows(self) -> int:
        """Texts per call: `TEXT_ROWS`, or 1 if the rows of a call affect each other."""

    def audio(self, log_mel: Features) -> Vector:
        """Return the embedding of the log-mel of one window."""

    def text(self, ids: NDArray[np.int64]) -> Matrix:
        """Return the embeddings of texts of one token length, (rows, n)."""


@dataclass(frozen=True)
class Description:
    """What a CLAP is, apart from its weights."""

    name: str
    fingerprint: str
    dim: int
    logit_scale: float
    mel: ClapMel


class Clap(Backbone):
    """A CLAP model, in float32 on the CPU."""

    def __init__(
        self,
        towers: Towers,
        description: Description,
        tokenizer: Tokenizer,
        *,
        runtime: str = "",
    ) -> None:
        self.towers = towers
        self.description = description
        self.tokenizer = tokenizer
        self.mel = description.mel
        self.name = description.name
        self.fingerprint = description.fingerprint
        self.dim = description.dim
        self.rate = description.mel.rate
        self.seconds = description.mel.length / description.mel.rate
        self.logit_scale = description.logit_scale
        self.runtime = runtime
        self.parallel = towers.parallel

    @property
    def cache_key(self) -> str:
        """Fingerprint, runtime and texts per call: what the last bits of an embedding depend on."""
        alone = "+1" if self.towers.text_rows == 1 else ""
        return f"{self.fingerprint}+{self.towers.runtime_name}{alone}"

    def features(self, samples: Samples) -> Features:
        """Return the log-mel of one window, (frames, mels)."""
        return self.mel(samples)

    def encode(self, features: Features) -> Vector:
        """Return the unit embedding of the log-mel of one window."""
        row: Vector = unit(self.towers.audio(features)[None])[0]
        return row

    def token_ids(self, text: str) -> list[int]:
        """Return the token ids of a text, with its start and end marks."""
        return self.tokenizer.encode(text).ids

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text."""
        return embed_alike(
            [self.token_ids(text) for text in texts],
            self.towers.text,
            rows=self.towers.text_rows,
            dim=self.dim,
            parallel=self.parallel,
        )
