"""CLAP in torch with transformers: the reference that exported towers are checked against."""

import hashlib
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones.clap.config import CheckpointConfig
from driftscore.backbones.clap.log_mel import ClapMel
from driftscore.backbones.clap.model import Description
from driftscore.backbones.onnx.tokenizer import Tokenizer
from driftscore.backbones.protocol import Features
from driftscore.errors import DownloadError, FormatError, MismatchError, MissingExtraError
from driftscore.vectors import Matrix, Vector

_FRONT_END_REVISION = 3
"""Part of the fingerprint; raise it whenever an embedding may change."""
_LONGEST = 512
"""Tokens read of a text; RoBERTa has no positions for more."""


class Tensor(Protocol):
    """The part of a torch tensor that is used."""

    def contiguous(self) -> "Tensor":
        """Return the tensor in row order."""

    def is_floating_point(self) -> bool:
        """Return whether its numbers are floats."""

    def numpy(self) -> NDArray[np.float32]:
        """Return the tensor as an array."""


class ModelConfig(Protocol):
    """The part of a model's configuration that is used."""

    projection_dim: int

    def to_dict(self) -> CheckpointConfig:
        """Return the configuration as plain values."""


class ClapModel(Protocol):
    """The part of a `transformers.ClapModel` that is used."""

    config: ModelConfig

    def get_audio_features(self, *, input_features: Tensor, is_longer: Tensor) -> object:
        """Return the audio embeddings."""

    def get_text_features(self, *, input_ids: Tensor, attention_mask: Tensor) -> object:
        """Return the text embeddings."""

    def state_dict(self) -> Mapping[str, Tensor]:
        """Return the weights by name."""


class TorchTowers:
    """A transformers CLAP model in float32; torch itself uses several threads per call.

    A pickled or copied object holds the checkpoint's name and reads the model again when it is
    used. That is not only smaller: the last bits of torch's results depend on the alignment of the
    weights in memory, which is the same whenever they are read from the same file.
    """

    runtime_name = "torch"
    parallel = 1

    def __init__(self, checkpoint: str, fingerprint: str, model: ClapModel | None = None) -> None:
        self.checkpoint = checkpoint
        self.fingerprint = fingerprint
        self._model = model
        self._reading = threading.Lock()

    def __reduce__(self) -> tuple[type["TorchTowers"], tuple[str, str]]:
        folder = Path(self.checkpoint)
        where = str(folder.resolve()) if folder.is_dir() else self.checkpoint
        return type(self), (where, self.fingerprint)

    @property
    def model(self) -> ClapModel:
        """The model; it is read when it is first needed."""
        with self._reading:
            if self._model is None:
                model, mel, tokenizer = _read_checkpoint(self.checkpoint)
                if _fingerprint(model, mel, tokenizer) != self.fingerprint:
                    raise MismatchError(
                        f"The checkpoint {self.checkpoint} has changed since the model was loaded; "
                        "load it again"
                    )
                self._model = model
            return self._model

    @cached_property
    def _channels(self) -> int:
        return 4 if self.model.config.to_dict()["audio_config"]["enable_fusion"] else 1

    def audio(self, log_mel: Features) -> Vector:
        """Return the embedding of the log-mel of one window."""
        import torch

        mel = torch.from_numpy(log_mel).expand(1, self._channels, -1, -1)
        with torch.inference_mode():
            out = self.model.get_audio_features(
                input_features=mel, is_longer=torch.zeros(1, 1, dtype=torch.bool)
            )
        row: Vector = _pooled(out)[0]
        return row

    def text(self, ids: NDArray[np.int64]) -> Matrix:
        """Return the embeddings of texts of one token length."""
        import torch

        tokens = torch.from_numpy(ids)
        with torch.inference_mode():
            out = self.model.get_text_features(
                input_ids=tokens, attention_mask=torch.ones_like(tokens)
            )
        return _pooled(out)


def tensors_of(model: ClapModel) -> dict[str, NDArray[np.float32]]:
    """Return the weights of a model by name, as arrays."""
    return {
        key: value.contiguous().numpy()
        for key, value in model.state_dict().items()
        if value.is_floating_point()
    }


def _pooled(out: object) -> Matrix:
    """Return the embeddings: transformers 5 wraps them in an object, 4 returns the tensor."""
    return cast(Tensor, getattr(out, "pooler_output", out)).numpy()


def open_checkpoint(name: str) -> tuple[TorchTowers, Description, Tokenizer]:
    """Return the towers of a checkpoint, its description and its tokenizer."""
    model, mel, tokenizer = _read_checkpoint(name)
    description = Description(
        name=name,
        fingerprint=_fingerprint(model, mel, tokenizer),
        dim=int(model.config.projection_dim),
        logit_scale=float(model.logit_scale_a.detach().exp()),
        mel=mel,
    )
    return TorchTowers(name, description.fingerprint, model), description, tokenizer


def _mel(extractor: Mapping[str, Any]) -> ClapMel:
    """Return the front end that a checkpoint's preprocessor config describes."""
    return ClapMel(
        flavour="htk" if extractor["truncation"] == "fusion" else "slaney",
        rate=extractor["sampling_rate"],
        n_fft=extractor["fft_window_size"],
        hop=extractor["hop_length"],
        mels=extractor["feature_size"],
        low_hz=extractor["frequency_min"],
        high_hz=extractor["frequency_max"],
        length=extractor["nb_max_samples"],
        padding=extractor["padding"],
    )


def _fingerprint(model: ClapModel, mel: ClapMel, tokenizer: Tokenizer) -> str:
    settings = sorted(asdict(mel).items())
    digest = hashlib.sha256(f"clap/{_FRONT_END_REVISION}/{settings}".encode())
    digest.update(tokenizer.to_str().encode())
    for key, tensor in sorted(tensors_of(model).items()):
        digest.update(key.encode() + tensor.tobytes())
    return f"clap/{digest.hexdigest()}"


def _read_checkpoint(name: str) -> tuple[Any, ClapMel, Tokenizer]:
    """Return the model in float32, the front end and the tokenizer of a checkpoint."""
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise MissingExtraError("The clap backbone", "clap") from error
    with _quiet(transformers.utils.logging):
        try:
            extractor = transformers.ClapFeatureExtractor.from_pretrained(name)
            tokenizer = transformers.AutoTokenizer.from_pretrained(name).backend_tokenizer
            model: Any = transformers.ClapModel.from_pretrained(name, use_safetensors=True)
        except (OSError, ValueError) as error:
            reason = str(error).strip().split("\n")[0]
            kind = FormatError if Path(name).is_dir() else DownloadError
            raise kind(
                f"The CLAP model {name!r} cannot be loaded: {reason} It must be a folder or a hub "
                "id with config.json, preprocessor_config.json, a tokenizer and safetensors weights"
            ) from error
    tokenizer.no_padding()  # texts of one length are encoded together
    tokenizer.enable_truncation(_LONGEST)
    return model.float().eval(), _mel(extractor.to_dict()), tokenizer


@contextmanager
def _quiet(messages: Any) -> Iterator[None]:
    """Turn off the messages and progress bars of transformers for a while."""
    verbosity, bars = messages.get_verbosity(), messages.is_progress_bar_enabled()
    messages.set_verbosity(logging.ERROR)
    messages.disable_progress_bar()
    try:
        yield
    finally:
        messages.set_verbosity(verbosity)
        if bars:
            messages.enable_progress_bar()
