"""A deterministic stand-in for tests and dry runs: no weights, no meaning.

Text is a bag of words, each a fixed random vector; sound is its log band energies through
a fixed random projection. Near texts and near sounds get near vectors, nothing more.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driftscore.audio import Samples
from driftscore.backbones.protocol import Backbone
from driftscore.vectors import Matrix, Vector, unit

_BANDS = 32


@dataclass(frozen=True)
class Fake(Backbone):
    """The fake model; its vectors depend on its parameters alone."""

    dim: int = 64
    rate: int = 16_000
    seconds: float = 2.0
    seed: int = 0
    name: str = "fake"

    @property
    def fingerprint(self) -> str:
        """Name the parameters: they are all that there is."""
        return f"fake/{self.dim}/{self.rate}/{self.seconds}/{self.seed}"

    def encode(self, features):
        return self._embed_window(features)

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row a text."""
        rows = [sum(self._word(w) for w in text.lower().split()) + self._word("") for text in texts]
        return unit(np.stack(rows).astype(np.float32))

    def _embed_window(self, samples: Samples) -> Vector:
        padded = np.zeros(round(self.rate * self.seconds), np.float32)
        padded[: len(samples)] = samples
        power = np.abs(np.fft.rfft(padded.astype(np.float64))) ** 2
        bands = np.log([band.mean() + 1e-9 for band in np.array_split(power, _BANDS)])
        projection = np.random.default_rng(self.seed).standard_normal((_BANDS, self.dim))
        row: Vector = unit((bands @ projection)[None].astype(np.float32))[0]
        return row

    def _word(self, word: str) -> Vector:
        digest = hashlib.sha256(f"{self.seed}:{word}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        return rng.standard_normal(self.dim, dtype=np.float32)


class Recorder(Fake):
    """A fake model that notes every text it is asked for: a dry run."""

    def __init__(self) -> None:
        super().__init__(dim=512)
        self.__dict__["asked"] = []

    @property
    def texts(self) -> list[str]:
        """What was asked for, in order, each text once."""
        return list(dict.fromkeys(self.__dict__["asked"]))

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Note the texts and return fake rows."""
        self.__dict__["asked"] += texts
        return super().embed_text(texts)


def load(dim: int = 64, rate: int = 16_000, seconds: float = 2.0, seed: int = 0) -> Fake:
    """Return a fake model."""
    return Fake(dim, rate, seconds, seed)
