"""LAION CLAP and any other transformers CLAP, by hub id or local folder.

Deterministic, unlike the extractor that comes with it: clips are cut into fixed windows
(not cropped at random), a fused checkpoint is told that no window is "longer" (not one
at random per batch), and no global random state is touched. Windows go through the model
one by one and texts in batches of a fixed shape, so a clip's embedding does not depend on
its neighbours, bit for bit on the CPU. Weights are read from safetensors only.

The two towers run in torch, the reference, or exported (`driftscore export`) in onnxruntime
or OpenVINO, which need no torch. All give the same embeddings to 1e-4 and so share a
fingerprint; their last bits differ, so caches keep them apart (`cache_key`).
"""

import json
import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Samples
from driftscore.backbones import _clap_export
from driftscore.backbones._clap_mel import ClapMel
from driftscore.backbones._onnx import in_threads
from driftscore.backbones.protocol import Backbone
from driftscore.errors import UsageError, unknown
from driftscore.vectors import Matrix, Vector, unit

KNOWN = (
    "laion/larger_clap_music_and_speech",
    "laion/larger_clap_general",
    "laion/clap-htsat-fused",
    "laion/clap-htsat-unfused",
)
DEFAULT = KNOWN[0]  # the paper's
BROKEN = {
    "laion/larger_clap_music": "its conversion on the hub is known to score at chance",
}
RUNTIMES = ("auto", "torch", "onnx", "openvino")
TEXT_ROWS = 4
"""Texts a batch. Fixed, and a batch holds texts of one token length: matrix products of one
shape give a row the same bits wherever it stands, products of another shape may not. Larger
batches are no faster, and leave more places to fill up."""


class Towers(Protocol):
    """The two networks of a CLAP in some runtime; neither's rows are unit."""

    runtime: str
    at_once: int
    """Calls that may run at once, from threads of ours; 1 if the runtime threads by itself."""

    def audio(self, log_mel: NDArray[np.float32]) -> Vector:
        """Return the embedding of one window's log-mel."""

    def text(self, ids: NDArray[np.int64]) -> Matrix:
        """Return the embeddings of texts of one token length, (rows, n)."""


class Clap(Backbone):
    """A CLAP model, in float32 on the CPU."""

    def __init__(
        self,
        towers: Towers,
        described: _clap_export.Description,
        tokenizer: _clap_export.Tokenizer,
        *,
        why: str = "",
    ) -> None:
        self.towers = towers
        self.parallel = towers.at_once
        self.described = described
        self.name = described.name
        self.fingerprint = described.fingerprint
        self.dim = described.dim
        self.logit_scale = described.logit_scale
        self.mel = ClapMel(**described.mel)
        self.rate = self.mel.rate
        self.seconds = self.mel.length / self.mel.rate
        self.tokenizer = tokenizer
        self.runtime = why
        """Which runtime was chosen, and why: for people who ask."""

    @property
    def cache_key(self) -> str:
        """Fingerprint and runtime: what the last bits of an embedding depend on."""
        return f"{self.fingerprint}+{self.towers.runtime}"

    def embed_window(self, samples: Samples) -> Vector:
        """Return the unit embedding of one window at the model's rate."""
        return self.encode(self.features(samples))

    def features(self, samples: Samples) -> NDArray[np.float32]:
        """Return the log-mel of one window, (frames, mels)."""
        return self.mel(samples)

    def encode(self, features: NDArray[np.float32]) -> Vector:
        """Return the unit embedding of a window's log-mel."""
        row: Vector = unit(self.towers.audio(features)[None])[0]
        return row

    def token_ids(self, text: str) -> list[int]:
        """Return the ids of a text, with its start and end marks."""
        ids: list[int] = self.tokenizer.encode(text).ids
        return ids

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row a text."""
        ids = [self.token_ids(text) for text in texts]
        order = sorted(range(len(texts)), key=lambda row: len(ids[row]))
        batches: list[list[int]] = []
        for _, group in groupby(order, key=lambda row: len(ids[row])):
            alike = list(group)
            batches += [alike[at : at + TEXT_ROWS] for at in range(0, len(alike), TEXT_ROWS)]
        # The longest first: the last batch to end should be a short one.
        batches.reverse()
        found = in_threads(
            lambda batch: self._embed_ids([ids[row] for row in batch]),
            batches,
            at_once=self.towers.at_once,
        )
        rows = np.zeros((len(texts), self.dim), np.float32)
        for batch, some in zip(batches, found, strict=True):
            rows[batch] = some
        return rows

    def _embed_ids(self, ids: list[list[int]]) -> Matrix:
        """Encode up to `TEXT_ROWS` texts of one token length, filled up to that many."""
        filled = np.array(ids + [ids[0]] * (TEXT_ROWS - len(ids)), np.int64)
        return unit(self.towers.text(filled)[: len(ids)])


def accepts(spec: str) -> bool:
    """Whether a user points at a CLAP: a folder with its config or export, or a hub id."""
    config = Path(spec) / "config.json"
    if config.is_file():
        return bool(json.loads(config.read_text(encoding="utf-8")).get("model_type") == "clap")
    if _clap_export.is_export(Path(spec)):
        return True
    return spec.count("/") == 1 and not spec.startswith((".", "/", "~")) and not Path(spec).exists()


def load(
    spec: str | os.PathLike[str] = DEFAULT, *, runtime: str = "auto", force: bool = False
) -> Clap:
    """Load a CLAP by hub id or folder; `force` loads one that is known to be broken."""
    name = os.fspath(spec)
    if runtime not in RUNTIMES:
        raise unknown("runtime", runtime, RUNTIMES)
    if name in BROKEN and not force:
        raise UsageError(
            f"{name} is refused: {BROKEN[name]}. Use {KNOWN[1]}, or pass force=True to load it "
            "all the same"
        )
    exported = None if runtime == "torch" else _clap_export.find(name)
    if exported is None and runtime in ("onnx", "openvino"):
        raise UsageError(
            f"{name} has not been exported, which --runtime {runtime} needs: "
            f"driftscore export {name}"
        )
    if exported is None:
        if _clap_export.is_export(Path(name)):
            raise UsageError(f"{name} is an export: run it with --runtime onnx or openvino")
        return load_torch(name, asked=runtime == "torch")
    chosen, why = _clap_export.choose(exported, runtime)
    return Clap(
        _clap_export.open_towers(exported, chosen),
        exported.description,
        _clap_export.tokenizer_of(exported),
        why=why,
    )


def load_torch(name: str, *, asked: bool = True) -> Clap:
    """Load a CLAP into torch by hub id or folder."""
    from driftscore.backbones._clap_torch import open_checkpoint

    towers, described, tokenizer = open_checkpoint(name)
    why = "torch, as asked" if asked else (
        f"torch: {name} has not been exported; `driftscore export {name}` makes it faster, and "
        "needs torch only once"
    )  # fmt: skip
    return Clap(towers, described, tokenizer, why=why)
