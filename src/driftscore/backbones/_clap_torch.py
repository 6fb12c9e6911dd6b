"""CLAP in torch by transformers: the reference that the exported towers are checked against."""

import hashlib
import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones._clap_export import Description, mel_settings
from driftscore.errors import DriftscoreError, MissingExtraError
from driftscore.vectors import Matrix, Vector

_FRONT_END_REVISION = 3
"""Part of the fingerprint; raise it whenever an embedding may change."""


class TorchTowers:
    """A transformers CLAP model, in float32; torch spreads each call over the cores itself."""

    runtime = "torch"
    at_once = 1

    def __init__(self, model: Any) -> None:
        self.model = model.float().eval()
        self._channels = 4 if model.config.audio_config.enable_fusion else 1

    def audio(self, log_mel: NDArray[np.float32]) -> Vector:
        """Return the embedding of one window's log-mel."""
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

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the weights by name, as numpy sees them."""
        return {
            key: value.contiguous().numpy()
            for key, value in self.model.state_dict().items()
            if value.is_floating_point()
        }


def _pooled(out: Any) -> Matrix:
    """Return the embeddings: transformers 5 wraps them in an object, 4 gives the tensor."""
    rows: Matrix = getattr(out, "pooler_output", out).numpy()
    return rows


def open_checkpoint(name: str) -> tuple[TorchTowers, Description, Any]:
    """Return a checkpoint's towers, its description and its tokenizer."""
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise MissingExtraError("The clap backbone", "clap") from error
    talk: Any = transformers.utils.logging
    verbosity, bars = talk.get_verbosity(), talk.is_progress_bar_enabled()
    talk.set_verbosity(logging.ERROR)
    talk.disable_progress_bar()
    try:
        extractor = transformers.ClapFeatureExtractor.from_pretrained(name)
        # Without padding: texts of one length go together.
        tokenizer = transformers.AutoTokenizer.from_pretrained(name).backend_tokenizer
        model = transformers.ClapModel.from_pretrained(name, use_safetensors=True)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise DriftscoreError(
            f"The CLAP model {name!r} cannot be loaded: {reason} It must be a folder or a hub id "
            "with config.json, preprocessor_config.json, a tokenizer and safetensors weights"
        ) from error
    finally:
        talk.set_verbosity(verbosity)
        if bars:
            talk.enable_progress_bar()
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    towers = TorchTowers(model)
    mel = mel_settings(extractor.to_dict())
    digest = hashlib.sha256(f"clap/{_FRONT_END_REVISION}/{sorted(mel.items())}".encode())
    digest.update(tokenizer.to_str().encode())
    for key, tensor in sorted(towers.tensors().items()):
        digest.update(key.encode() + tensor.tobytes())
    described = Description(
        name=name,
        fingerprint=f"clap/{digest.hexdigest()}",
        dim=int(model.config.projection_dim),
        logit_scale=float(model.logit_scale_a.detach().exp()),
        mel=mel,
    )
    return towers, described, tokenizer
