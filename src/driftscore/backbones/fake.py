"""A deterministic stand-in for tests and dry runs: no weights, no meaning.

A text is a bag of words, each with a fixed random vector; a window is its log band energies times a
fixed random projection. Similar texts and similar sounds get similar vectors, and nothing more.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from driftscore.backbones.protocol import Backbone, Features
from driftscore.backbones.vectors import Matrix, Vector, unit

_BANDS = 32


class Fake(Backbone):
    """The fake model; its vectors depend on its parameters only."""

    name = "fake"
    runtime = "numpy; the fake model has no weights and its scores have no meaning"

    def __init__(
        self, *, dim: int = 64, rate: int = 16_000, seconds: float = 2.0, seed: int = 0
    ) -> None:
        self.dim = dim
        self.rate = rate
        self.seconds = seconds
        self.seed = seed
        self.fingerprint = f"fake/{dim}/{rate}/{seconds}/{seed}"

    def encode(self, features: Features) -> Vector:
        """Return the unit embedding of one window of samples."""
        padded = np.zeros(round(self.rate * self.seconds), np.float32)
        padded[: len(features)] = features
        power = np.abs(np.fft.rfft(padded.astype(np.float64))) ** 2
        bands = np.log([band.mean() + 1e-9 for band in np.array_split(power, _BANDS)])
        projection = np.random.default_rng(self.seed).standard_normal((_BANDS, self.dim))
        return unit((bands @ projection)[None].astype(np.float32))[0]

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text."""
        rows = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in [*text.lower().split(), ""]:
                row += _word_vector(word, self.dim, self.seed)
        return unit(rows)


@lru_cache(10_000)  # texts share most of their words
def _word_vector(word: str, dim: int, seed: int) -> Vector:
    digest = hashlib.sha256(f"{seed}:{word}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    return rng.standard_normal(dim, dtype=np.float32)


load = Fake
