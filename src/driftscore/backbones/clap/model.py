"""A CLAP model: its front end, its towers in any runtime, and those that run in onnxruntime."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Samples
from driftscore.backbones.devices import CPU, WindowBatches
from driftscore.backbones.hub import ModelSettings
from driftscore.backbones.onnx.log_mel import ClapMel
from driftscore.backbones.onnx.sessions import InputArray, OnnxSession, embed_alike
from driftscore.backbones.protocol import Backbone, Features
from driftscore.backbones.vectors import Matrix, Vector, unit
from driftscore.errors import FormatError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FRONT_END_REVISION = 3
"""Part of the fingerprint; raise it whenever an embedding may change."""
MAX_TOKENS = 512
"""Tokens read of a text; RoBERTa has no positions for more."""
TEXT_ROWS = 4
"""Texts per batch (see `embed_alike`). Larger batches are no faster and have more fillers."""
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64,
          "tensor(int32)": np.int32, "tensor(bool)": np.bool_}  # fmt: skip


class Towers(Protocol):
    """The two networks of a CLAP in some runtime; their rows are not unit."""

    runtime_name: str
    """The runtime: torch or onnx."""
    parallel: int
    """Calls that may run at the same time; 1 if the runtime uses several threads itself."""
    text_rows: int
    """Texts per call: `TEXT_ROWS`, or 1 if the rows of a call affect each other."""

    def audio(self, log_mels: Sequence[Features]) -> Matrix:
        """Return the embeddings of the log-mels of windows."""

    def text(self, ids: NDArray[np.int64]) -> Matrix:
        """Return the embeddings of texts of one token length, (rows, n)."""


class OnnxTower(OnnxSession):
    """One tower in onnxruntime: our own graph, or one in the layout of transformers.js.

    The graph is given those inputs that it has, in its own types, and has one of `OUTPUTS`.
    """

    OUTPUTS = ("embedding", "audio_embeds", "text_embeds")

    def rows(self, values: Mapping[str, InputArray]) -> Matrix:
        """Return the rows for inputs by name."""
        session = self.open()
        inputs = {
            value.name: values[value.name].astype(
                _TYPES.get(value.type, values[value.name].dtype), copy=False
            )
            for value in session.get_inputs()
        }
        output = next(v.name for v in session.get_outputs() if v.name in self.OUTPUTS)
        rows = self.run(output, inputs)
        if rows.ndim != 2:
            raise FormatError(f"A tower of the model gives an array of shape {rows.shape}, no rows")
        return rows.astype(np.float32, copy=False)


class OnnxTowers:
    """Two towers in onnxruntime, each opened when it is first used."""

    runtime_name = "onnx"
    parallel = os.cpu_count() or 1

    def __init__(self, audio: OnnxTower, text: OnnxTower, *, text_rows: int) -> None:
        self._audio = audio
        self._text = text
        self.text_rows = text_rows

    def audio(self, log_mels: Sequence[Features]) -> Matrix:
        """Return the embeddings of the log-mels of windows, one by one."""
        # A fused model reads four views of a clip, or the same one four times if it is short.
        fused = any(value.name == "is_longer" for value in self._audio.open().get_inputs())
        rows, longer = [], np.zeros((1, 1), bool)
        for log_mel in log_mels:
            views = np.repeat(log_mel[None, None], 4 if fused else 1, axis=1)
            values = {"log_mel": log_mel, "input_features": views, "is_longer": longer}
            rows.append(self._audio.rows(values))
        return np.concatenate(rows)

    def text(self, ids: NDArray[np.int64]) -> Matrix:
        """Return the embeddings of texts of one token length."""
        mask = np.ones_like(ids)
        return self._text.rows({"ids": ids, "input_ids": ids, "attention_mask": mask})


@dataclass(frozen=True)
class Description:
    """What a CLAP is, apart from its weights."""

    name: str
    fingerprint: str
    dim: int
    logit_scale: float
    mel: ClapMel


class Clap(Backbone):
    """A CLAP model, in float32."""

    def __init__(
        self,
        towers: Towers,
        description: Description,
        tokenizer: "Tokenizer",
        *,
        runtime: str,
        device: str = CPU,
        batch: int = 1,
    ) -> None:
        self.device = device
        self.batch = batch
        self._batches = WindowBatches(batch)
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
        return f"{super().cache_key}+{self.towers.runtime_name}{alone}"

    def features(self, samples: Samples) -> Features:
        """Return the log-mel of one window, (frames, mels)."""
        return self.mel(samples)

    def encode(self, features: Features) -> Vector:
        """Return the unit embedding of the log-mel of one window."""
        return unit(self.towers.audio([features]))[0]

    def encode_batch(self, features: Sequence[Features]) -> Matrix:
        """Return the unit embeddings of windows."""
        return unit(self._batches.run(self.towers.audio, features))

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text."""
        return embed_alike(
            [self.tokenizer.encode(text).ids for text in texts],
            self.towers.text,
            rows=self.towers.text_rows,
            dim=self.dim,
            parallel=self.parallel,
        )


def read_mel(extractor: ModelSettings, *, where: str) -> ClapMel:
    """Return the front end that a `preprocessor_config.json` describes."""

    def refused(reason: str) -> FormatError:
        return FormatError(f"The front end of {where} cannot be used: {reason}")

    def number(name: str, low: float, high: float) -> float:
        value = extractor.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise refused(f"{name} must be a number, got {value!r}")
        if not low <= value <= high:
            raise refused(f"{name} must be from {low:g} to {high:g}, got {value!r}")
        return value

    padding = extractor.get("padding")
    if padding not in ("repeatpad", "repeat", "pad"):
        raise refused(f"padding must be repeatpad, repeat or pad, got {padding!r}")
    rate = int(number("sampling_rate", 1000, 1_000_000))
    return ClapMel(
        flavour="htk" if extractor.get("truncation") == "fusion" else "slaney",
        rate=rate,
        n_fft=int(number("fft_window_size", 16, 2**16)),
        hop=int(number("hop_length", 1, 2**16)),
        mels=int(number("feature_size", 1, 4096)),
        low_hz=number("frequency_min", 0, rate / 2),
        high_hz=number("frequency_max", 0, rate / 2),
        length=int(number("nb_max_samples", 2**10, rate * 600)),
        padding=padding,
    )
