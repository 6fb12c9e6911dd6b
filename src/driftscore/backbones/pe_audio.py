"""Perception Encoder Audio: the audio and text towers of PE-AV, by hub id or folder.

    samples at 48 kHz -> DAC encoder -> transformer -> class token -> audio head -> unit row
    text -> ModernBERT -> first token before the final norm -> text head -> unit row

Checkpoints of PE-AV (model type pe_audio_video) are read without their video part. transformers'
`PeAudioModel.get_text_audio_embeds` cannot be used: in 5.x it fails, and its formula reads the
token after the final norm, where the model that was trained reads it before (in the reference
code, `hidden_states[22]` of 28 layers). Frame-level checkpoints (pe-a-frame) have no embedding of a
clip and are refused. Windows are encoded one by one; weights are read from safetensors only.
"""

import hashlib
import json
import math
import os
import threading
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Samples
from driftscore.backbones import devices, hub
from driftscore.backbones.onnx.sessions import embed_alike
from driftscore.backbones.protocol import LOGIT_SCALE, Backbone, Features
from driftscore.backbones.vectors import Matrix, Vector, unit
from driftscore.errors import FormatError, MissingExtraError, UsageError
from driftscore.storage.files import first_line
from driftscore.system.process import environment

KNOWN = tuple(
    f"facebook/pe-av-{size}{frames}"
    for frames in ("", "-16-frame")
    for size in ("small", "base", "large")
)
DEFAULT = KNOWN[0]
SECONDS = 10.0
"""Length of a window. The model takes up to 400 s; a window decides what a score is about."""
_REVISION = 1
"""Part of the fingerprint; raise it whenever an embedding may change."""
_TYPES = ("pe_audio", "pe_audio_video")
_TOWERS = ("text_model.", "audio_encoder.", "audio_head.", "text_audio_")
_MAX_TOKENS, _TEXT_ROWS = 512, 4
_RATE = 48_000


def accepts(spec: str) -> bool:
    """Return whether `spec` is a PE-AV: a folder with its config, or one of the known hub ids."""
    folder = hub.local_folder(spec)
    return spec in KNOWN if folder is None else hub.model_type(folder) in _TYPES


def load(
    spec: str | os.PathLike[str] = DEFAULT,
    *,
    seconds: float = SECONDS,
    device: str = "auto",
    batch_size: int | None = None,
) -> "PeAudio":
    """Load a model by hub id or folder; `seconds` is the length of its windows."""
    if not 0.1 <= seconds <= 400:
        raise UsageError(f"A window of PE-AV has from 0.1 to 400 seconds, got {seconds}")
    if any(find_spec(library) is None for library in ("torch", "transformers")):
        raise MissingExtraError("The pe_audio backbone", "clap")
    name = os.fspath(spec)
    home = hub.obtain(
        name, complete=lambda folder: bool(hub.weight_files(folder)), choose=hub.checkpoint_files
    )
    return PeAudio(name, home, seconds, device, batch_size)


class PeAudio(Backbone):
    """The audio and text towers of a PE-AV, in float32.

    A pickled or copied object holds the folder of the checkpoint and reads it again.
    """

    runtime = "torch; PE-AV has no other runtime"

    def __init__(
        self,
        name: str,
        home: Path,
        seconds: float,
        device: str = devices.CPU,
        batch_size: int | None = None,
    ) -> None:
        self.device = devices.torch_device(device)
        self.batch = devices.first_batch(self.device, batch_size)
        self._batches = devices.WindowBatches(self.batch)
        self.name = name
        self.home = home.absolute()
        self.seconds = seconds
        self._model: Any = _read_model(self.home)
        config = self._model.config
        try:
            with environment(HF_HUB_DISABLE_TELEMETRY="1"):
                from transformers import AutoTokenizer

            self._tokenizer = AutoTokenizer.from_pretrained(self.home).backend_tokenizer
        except (OSError, ValueError) as error:
            raise FormatError(f"The tokenizer in {self.home} cannot be read: {error}") from error
        self._tokenizer.no_padding()  # texts of one length are encoded together
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        extractor: hub.ModelSettings = {}  # its settings have two places
        if (self.home / "preprocessor_config.json").is_file():
            extractor = hub.read_settings(self.home / "preprocessor_config.json")
        elif (self.home / "processor_config.json").is_file():
            processor = hub.read_settings(self.home / "processor_config.json")
            extractor = processor.get("feature_extractor") or {}
        self.rate = extractor.get("sampling_rate", _RATE)
        if not isinstance(self.rate, int) or not 1000 <= self.rate <= 1_000_000:
            raise FormatError(f"The sample rate in {self.home} makes no sense: {self.rate!r}")
        self.hop = math.prod(config.audio_config.dac_config.downsampling_ratios)
        self.dim = int(config.text_config.hidden_size)
        front_end = f"pe_audio/{_REVISION}/{self.rate}/{self.hop}/{self.seconds}"
        digest = hashlib.sha256(front_end.encode() + self._tokenizer.to_str().encode())
        digest.update(json.dumps(config.to_dict(), sort_keys=True, default=str).encode())
        for key, tensor in sorted(self._model.state_dict().items()):
            digest.update(key.encode() + tensor.contiguous().numpy().tobytes())
        self.fingerprint = f"pe_audio/{digest.hexdigest()}"
        scale = float(self._model.text_audio_logit_scale.detach()[0])
        self.logit_scale = scale if scale > 0 else LOGIT_SCALE
        self._place = devices.torch_place(self.device)
        self._model = self._model.to(self._place)
        self._encoding = threading.Lock()

    def __reduce__(self) -> tuple[object, tuple[object, str]]:
        again = partial(PeAudio, self.name, self.home, self.seconds, self.device, self.batch)
        return hub.load_again, (again, self.fingerprint)

    def features(self, samples: Samples) -> Features:
        """Return the samples of a window, reflected at the end up to a multiple of the hop."""
        missing = -len(samples) % self.hop
        return np.pad(samples, (0, missing), "reflect") if missing else samples

    def encode(self, features: Features) -> Vector:
        """Return the unit embedding of one window."""
        return self._encode([features])[0]

    def encode_batch(self, features: Sequence[Features]) -> Matrix:
        """Return the unit embeddings of windows."""
        return self._batches.run(self._encode, features)

    def _encode(self, windows: Sequence[Features]) -> Matrix:
        import torch

        samples = torch.from_numpy(np.stack(windows)[:, None]).to(self._place)
        with devices.inference(self.device):
            return unit(self._model.get_audio_embeds(samples).cpu().float().numpy())

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text."""
        return embed_alike(
            [self._tokenizer.encode(text).ids for text in texts],
            self._embed_ids,
            rows=_TEXT_ROWS,
            dim=self.dim,
            parallel=1,
        )

    def _embed_ids(self, ids: NDArray[np.int64]) -> Matrix:
        """Return the embeddings of texts of one token length, not unit."""
        import torch

        tokens = torch.from_numpy(ids).to(self._place)
        text, before_norm = self._model.text_model, []
        with self._encoding, devices.inference(self.device):
            hook = text.final_norm.register_forward_pre_hook(
                lambda _, arguments: before_norm.append(arguments[0])
            )
            try:
                text(input_ids=tokens, attention_mask=torch.ones_like(tokens))
            finally:
                hook.remove()
            rows = self._model.text_audio_head(before_norm[0][:, 0])
        return np.asarray(rows.cpu().float().numpy())


def _read_model(home: Path) -> Any:
    """Return the model of a checkpoint in float32."""
    import torch
    from safetensors import safe_open

    with environment(HF_HUB_DISABLE_TELEMETRY="1"):
        import transformers

    if not hasattr(transformers, "PeAudioModel"):
        raise MissingExtraError("PE-AV", command="pip install 'transformers>=5'")
    config = hub.read_settings(home / "config.json")
    kind = config.get("model_type")
    if kind not in _TYPES:
        raise FormatError(f"{home} is a {kind}, not one of {', '.join(_TYPES)}")
    if "PeAudioFrameLevelModel" in str(config.get("architectures")):
        raise FormatError(
            f"{home} is a frame-level model: it embeds 40 ms frames and has no embedding of a "
            f"clip. Use a clip-level one, such as {DEFAULT}"
        )
    try:
        audio = config.get("audio_config")
        if kind == "pe_audio_video":
            audio = config["audio_video_config"]["audio_config"]
        settings = transformers.PeAudioConfig(
            text_config=config.get("text_config"), audio_config=audio
        )
        tensors = {}  # of the audio and text towers, under the names of a `PeAudioModel`
        for path in hub.weight_files(home):
            with safe_open(path, "pt") as file:
                for key in file.keys():  # noqa: SIM118 (it is not a mapping)
                    name = key.removeprefix("audio_model.")
                    if name.startswith(_TOWERS):
                        tensors[name] = file.get_tensor(key)
        if not tensors:
            raise OSError("it has no model.safetensors with the weights of an audio tower")
        with hub.quiet_transformers():
            loaded: Any = transformers.PeAudioModel.from_pretrained(
                None, config=settings, state_dict=tensors, dtype=torch.float32,
                output_loading_info=True,
            )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise FormatError(f"The PE-AV in {home} cannot be loaded: {first_line(error)}") from error
    model, report = loaded
    missing = sorted(report["missing_keys"]) + sorted(map(str, report["mismatched_keys"]))
    if missing:
        raise FormatError(f"The PE-AV in {home} lacks weights, such as {missing[0]}")
    return model.eval()
