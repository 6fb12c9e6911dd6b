"""A deterministic stand-in for tests and dry runs: no weights, no meaning.

A text is a bag of words, each with a fixed random vector; a window is its log band energies times a
fixed random projection. Similar texts and similar sounds get similar vectors, and nothing more.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from driftscore.backbones.protocol import Backbone, Features
from driftscore.vectors import Matrix, Vector, unit

_BANDS = 32


class Fake(Backbone):
    """The fake model; its vectors depend on its parameters only."""

    name = "fake"
    runtime = "numpy; the fake model has no weights and its scores have no meaning"

    def __init__(
        self, dim: int = 64, rate: int = 16_000, seconds: float = 2.0, seed: int = 0
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
        row: Vector = unit((bands @ projection)[None].astype(np.float32))[0]
        return row

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text."""
        rows = [sum(self._word(w) for w in text.lower().split()) + self._word("") for text in texts]
        return unit(np.stack(rows).astype(np.float32))

    def _word(self, word: str) -> Vector:
        digest = hashlib.sha256(f"{self.seed}:{word}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        return rng.standard_normal(self.dim, dtype=np.float32)


def load(dim: int = 64, rate: int = 16_000, seconds: float = 2.0, seed: int = 0) -> Fake:
    """Return a fake model."""
    return Fake(dim, rate, seconds, seed)
