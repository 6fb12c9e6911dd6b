"""CLAP in torch with transformers: the reference that exported towers are checked against."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones import hub
from driftscore.backbones.clap.model import (
    FRONT_END_REVISION,
    MAX_TOKENS,
    TEXT_ROWS,
    Clap,
    Description,
    read_mel,
)
from driftscore.backbones.devices import CPU, first_batch, inference, torch_device, torch_place
from driftscore.backbones.protocol import Features
from driftscore.backbones.vectors import Matrix
from driftscore.errors import FormatError, MissingExtraError
from driftscore.storage.files import first_line, is_folder
from driftscore.system.process import environment

TorchModel = Any
"""A `transformers.ClapModel`: neither it nor its tensors have types that can be checked."""


class TorchTowers:
    """A transformers CLAP model in float32; torch itself uses several threads per call.

    A pickled or copied object holds the checkpoint's name and reads it again. That is not only
    smaller: the last bits of torch's results depend on the alignment of the weights in memory,
    which is the same whenever they are read from the same file.
    """

    runtime_name = "torch"
    parallel = 1
    text_rows = TEXT_ROWS

    def __init__(self, name: str, device: str = CPU) -> None:
        self.name = name
        if any(find_spec(library) is None for library in ("torch", "transformers")):
            raise MissingExtraError("The clap backbone", "clap")
        # Before the import, which takes seconds: a model that cannot be had is reported first.
        home = hub.obtain(name, complete=hub.is_checkpoint, choose=hub.checkpoint_files)
        if (kind := hub.model_type(home)) not in ("clap", None):
            raise FormatError(
                f"{name} is a {kind}, not a CLAP; name its family, as in --backbone "
                f"pe_audio:{name} or mteb:{name} (see `driftscore list backbones`)"
            )
        with environment(HF_HUB_DISABLE_TELEMETRY="1"):
            import transformers

        with hub.quiet_transformers():
            try:
                extractor = transformers.ClapFeatureExtractor.from_pretrained(home)
                tokenizer = transformers.AutoTokenizer.from_pretrained(home).backend_tokenizer
                model: Any = transformers.ClapModel.from_pretrained(home, use_safetensors=True)
            except (OSError, ValueError) as error:
                raise FormatError(
                    f"The CLAP model {name!r} cannot be loaded: {first_line(error)}. It must be a "
                    "folder or a hub id with config.json, preprocessor_config.json, a tokenizer "
                    "and safetensors weights"
                ) from error
        tokenizer.no_padding()  # texts of one length are encoded together
        tokenizer.enable_truncation(MAX_TOKENS)
        self.tokenizer = tokenizer
        self.model: TorchModel = model.float().eval()
        self.device = torch_device(device)
        mel = read_mel(extractor.to_dict(), where=name)
        digest = hashlib.sha256(f"clap/{FRONT_END_REVISION}/{sorted(asdict(mel).items())}".encode())
        digest.update(tokenizer.to_str().encode())
        for key, tensor in sorted(tensors_of(self.model).items()):
            digest.update(key.encode() + tensor.tobytes())
        self.fingerprint = f"clap/{digest.hexdigest()}"
        self.description = Description(
            name=name,
            fingerprint=self.fingerprint,
            dim=int(model.config.projection_dim),
            logit_scale=float(model.logit_scale_a.detach().exp()),
            mel=mel,
        )
        self.place = torch_place(self.device)
        self.model = self.model.to(self.place)

    def __reduce__(self) -> tuple[object, tuple[object, str]]:
        where = str(Path(self.name).resolve()) if is_folder(self.name) else self.name
        return hub.load_again, (partial(TorchTowers, where, self.device), self.fingerprint)

    def audio(self, log_mels: Sequence[Features]) -> Matrix:
        """Return the embeddings of the log-mels of windows."""
        import torch

        channels = 4 if self.model.config.audio_config.enable_fusion else 1
        mels = torch.from_numpy(np.stack(log_mels)[:, None]).to(self.place)
        longer = torch.zeros(len(log_mels), 1, dtype=torch.bool).to(self.place)
        with inference(self.device):
            out = self.model.get_audio_features(
                input_features=mels.expand(-1, channels, -1, -1), is_longer=longer
            )
        return _pooled(out)

    def text(self, ids: NDArray[np.int64]) -> Matrix:
        """Return the embeddings of texts of one token length."""
        import torch

        tokens = torch.from_numpy(ids).to(self.place)
        with inference(self.device):
            out = self.model.get_text_features(
                input_ids=tokens, attention_mask=torch.ones_like(tokens)
            )
        return _pooled(out)


def tensors_of(model: TorchModel) -> dict[str, NDArray[np.float32]]:
    """Return the weights of a model by name, as arrays."""
    return {
        key: value.contiguous().numpy()
        for key, value in model.state_dict().items()
        if value.is_floating_point()
    }


def _pooled(out: Any) -> Matrix:
    """Return the embeddings: transformers 5 wraps them in an object, 4 returns the tensor."""
    return getattr(out, "pooler_output", out).cpu().float().numpy()


def load_torch(
    name: str, *, requested: bool = True, device: str = CPU, batch_size: int | None = None
) -> Clap:
    """Load a CLAP into torch by hub id or folder; `requested` is for the note on the runtime."""
    towers = TorchTowers(name, device)
    why = "torch, as requested" if requested else (
        f"torch: {name} has not been exported; `driftscore export {name}` makes it faster, and "
        "needs torch only once"
    )  # fmt: skip
    batch = first_batch(towers.device, batch_size)
    if towers.device != CPU:
        why = f"torch on {towers.device}, batches of {batch}"
    return Clap(
        towers, towers.description, towers.tokenizer, runtime=why, device=towers.device, batch=batch
    )
