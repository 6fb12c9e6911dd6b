"""CLAP in torch with transformers: the reference that exported towers are checked against."""

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones import hub
from driftscore.backbones.clap.config import FRONT_END_REVISION, LONGEST, CheckpointConfig, read_mel
from driftscore.backbones.clap.log_mel import ClapMel
from driftscore.backbones.clap.model import TEXT_ROWS, Description
from driftscore.backbones.onnx.tokenizer import Tokenizer
from driftscore.backbones.protocol import Features
from driftscore.errors import FormatError, MismatchError, MissingExtraError
from driftscore.reading import is_folder
from driftscore.vectors import Matrix, Vector


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
    text_rows = TEXT_ROWS

    def __init__(self, checkpoint: str, fingerprint: str, model: ClapModel | None = None) -> None:
        self.checkpoint = checkpoint
        self.fingerprint = fingerprint
        self._model = model
        self._reading = threading.Lock()

    def __reduce__(self) -> tuple[type["TorchTowers"], tuple[str, str]]:
        folder = Path(self.checkpoint)
        where = str(folder.resolve()) if is_folder(folder) else self.checkpoint
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


def _fingerprint(model: ClapModel, mel: ClapMel, tokenizer: Tokenizer) -> str:
    settings = sorted(asdict(mel).items())
    digest = hashlib.sha256(f"clap/{FRONT_END_REVISION}/{settings}".encode())
    digest.update(tokenizer.to_str().encode())
    for key, tensor in sorted(tensors_of(model).items()):
        digest.update(key.encode() + tensor.tobytes())
    return f"clap/{digest.hexdigest()}"


def _read_checkpoint(name: str) -> tuple[Any, ClapMel, Tokenizer]:
    """Return the model in float32, the front end and the tokenizer of a checkpoint."""
    if any(find_spec(library) is None for library in ("torch", "transformers")):
        raise MissingExtraError("The clap backbone", "clap")
    # Before the import, which takes seconds: a model that cannot be had is reported first.
    home = hub.obtain(name, complete=hub.is_checkpoint, choose=hub.checkpoint_files)
    if (kind := hub.model_type(home)) not in ("clap", None):
        raise FormatError(
            f"{name} is a {kind}, not a CLAP; name its family, as in --backbone pe_audio:{name} or "
            f"mteb:{name} (see `driftscore list backbones`)"
        )
    import transformers

    with hub.quiet_transformers():
        try:
            extractor = transformers.ClapFeatureExtractor.from_pretrained(home)
            tokenizer = transformers.AutoTokenizer.from_pretrained(home).backend_tokenizer
            model: Any = transformers.ClapModel.from_pretrained(home, use_safetensors=True)
        except (OSError, ValueError) as error:
            reason = str(error).strip().split("\n")[0]
            raise FormatError(
                f"The CLAP model {name!r} cannot be loaded: {reason} It must be a folder or a hub "
                "id with config.json, preprocessor_config.json, a tokenizer and safetensors weights"
            ) from error
    tokenizer.no_padding()  # texts of one length are encoded together
    tokenizer.enable_truncation(LONGEST)
    return model.float().eval(), read_mel(extractor.to_dict(), where=name), tokenizer
