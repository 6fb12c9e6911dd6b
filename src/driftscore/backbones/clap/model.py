"""A CLAP model with its two towers in any runtime."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Samples
from driftscore.backbones.clap.log_mel import ClapMel
from driftscore.backbones.onnx.sessions import in_threads
from driftscore.backbones.onnx.tokenizer import Tokenizer
from driftscore.backbones.protocol import Backbone, Features
from driftscore.vectors import Matrix, Vector, unit

TEXT_ROWS = 4
"""Texts per batch. The number is fixed, and a batch has texts of one token length: matrix products
of one shape give a row the same bits at every position, products of another shape may not. Larger
batches are no faster, and more of their rows would be fillers."""


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
        """Fingerprint and runtime: what the last bits of an embedding depend on."""
        return f"{self.fingerprint}+{self.towers.runtime_name}"

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
        ids = [self.token_ids(text) for text in texts]
        order = sorted(range(len(texts)), key=lambda row: len(ids[row]))
        batches: list[list[int]] = []
        together = self.towers.text_rows
        for _, group in groupby(order, key=lambda row: len(ids[row])):
            alike = list(group)
            batches += [alike[at : at + together] for at in range(0, len(alike), together)]
        # The longest texts first: the last batch to finish should be a short one.
        batches.reverse()
        found = in_threads(
            lambda batch: self._embed_ids([ids[row] for row in batch]),
            batches,
            parallel=self.parallel,
        )
        rows = np.zeros((len(texts), self.dim), np.float32)
        for batch, some in zip(batches, found, strict=True):
            rows[batch] = some
        return rows

    def _embed_ids(self, ids: list[list[int]]) -> Matrix:
        """Encode texts of one token length in one call; the first fills the free rows."""
        filled = np.array(ids + [ids[0]] * (self.towers.text_rows - len(ids)), np.int64)
        return unit(self.towers.text(filled)[: len(ids)])
