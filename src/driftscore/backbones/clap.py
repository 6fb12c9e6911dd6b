"""LAION CLAP and any other transformers CLAP, by hub id or local folder.

Deterministic, unlike the extractor that comes with it: clips are cut into fixed windows
(not cropped at random), a fused checkpoint is told that no window is "longer" (not one
at random per batch), and no global random state is touched. Windows go through the model
one by one and texts in batches of a fixed shape, so a clip's embedding does not depend on
its neighbours, bit for bit on the CPU. Weights are read from safetensors only.
"""

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from driftscore.audio import Audio, Samples
from driftscore.backbones import embed_clips
from driftscore.backbones._clap_mel import ClapMel
from driftscore.errors import DriftscoreError, MissingExtraError, UsageError
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
_FRONT_END_REVISION = 1
"""Part of the fingerprint; raise it whenever an embedding may change."""
_TEXT_ROWS = 16
"""Texts a batch. Fixed, and a batch holds texts of one token length: matrix products of one
shape give a row the same bits wherever it stands, products of another shape may not."""


class Clap:
    """A transformers CLAP model, in float32 on the CPU."""

    def __init__(self, model: Any, mel: ClapMel, tokenizer: Any, *, name: str) -> None:
        self.name = name
        self.model = model.float().eval()
        self.mel = mel
        self.tokenizer = tokenizer
        self.dim = int(model.config.projection_dim)
        self.rate = mel.rate
        self.seconds = mel.length / mel.rate
        self.logit_scale = float(model.logit_scale_a.detach().exp())
        self._channels = 4 if model.config.audio_config.enable_fusion else 1

    @cached_property
    def fingerprint(self) -> str:
        """The digest of weights, tokenizer and front end."""
        digest = hashlib.sha256(f"clap/{_FRONT_END_REVISION}/{self.mel}".encode())
        digest.update(self.tokenizer.to_str().encode())
        for key, tensor in sorted(self.model.state_dict().items()):
            digest.update(key.encode() + tensor.contiguous().numpy().tobytes())
        return f"clap/{digest.hexdigest()}"

    def embed_audio(self, clips: Sequence[Audio]) -> Matrix:
        """Return one unit row a clip: the unit mean of its fixed windows."""
        return embed_clips(clips, self.embed_window, rate=self.rate, seconds=self.seconds)

    def embed_window(self, samples: Samples) -> Vector:
        """Return the unit embedding of one window at the model's rate."""
        import torch

        mel = torch.from_numpy(self.mel(samples)).expand(1, self._channels, -1, -1)
        with torch.inference_mode():
            out = self.model.get_audio_features(
                input_features=mel, is_longer=torch.zeros(1, 1, dtype=torch.bool)
            )
        row: Vector = unit(_pooled(out))[0]
        return row

    def token_ids(self, text: str) -> list[int]:
        """Return the ids of a text, with its start and end marks."""
        ids: list[int] = self.tokenizer.encode(text).ids
        return ids

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row a text."""
        ids = [self.token_ids(text) for text in texts]
        order = sorted(range(len(texts)), key=lambda row: len(ids[row]))
        rows = np.zeros((len(texts), self.dim), np.float32)
        for _, group in groupby(order, key=lambda row: len(ids[row])):
            alike = list(group)
            for first in range(0, len(alike), _TEXT_ROWS):
                batch = alike[first : first + _TEXT_ROWS]
                rows[batch] = self._embed_ids([ids[row] for row in batch])
        return rows

    def _embed_ids(self, ids: list[list[int]]) -> Matrix:
        """Encode up to `_TEXT_ROWS` texts of one token length, filled up to that many."""
        import torch

        filled = torch.tensor(ids + [ids[0]] * (_TEXT_ROWS - len(ids)))
        with torch.inference_mode():
            out = self.model.get_text_features(
                input_ids=filled, attention_mask=torch.ones_like(filled)
            )
        return unit(_pooled(out)[: len(ids)])


def _pooled(out: Any) -> Matrix:
    """Return the embeddings: transformers 5 wraps them in an object, 4 gives the tensor."""
    rows: Matrix = getattr(out, "pooler_output", out).numpy()
    return rows


def accepts(spec: str) -> bool:
    """Whether a user points at a CLAP: a folder with its config, or a hub id."""
    config = Path(spec) / "config.json"
    if config.is_file():
        return bool(json.loads(config.read_text(encoding="utf-8")).get("model_type") == "clap")
    return spec.count("/") == 1 and not spec.startswith((".", "/", "~")) and not Path(spec).exists()


def load(spec: str | os.PathLike[str] = DEFAULT, *, force: bool = False) -> Clap:
    """Load a CLAP by hub id or folder; `force` loads one that is known to be broken."""
    name = os.fspath(spec)
    if name in BROKEN and not force:
        raise UsageError(
            f"{name} is refused: {BROKEN[name]}. Use {KNOWN[1]}, or pass force=True to load it "
            "all the same"
        )
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise MissingExtraError("The clap backbone", "clap") from error
    talk = transformers.utils.logging
    verbosity = talk.get_verbosity()
    talk.set_verbosity(logging.ERROR)
    try:
        extractor = transformers.ClapFeatureExtractor.from_pretrained(name)
        tokenizer = _tokenizer(name, transformers)
        model = transformers.ClapModel.from_pretrained(name, use_safetensors=True)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise DriftscoreError(
            f"The CLAP model {name!r} cannot be loaded: {reason} It must be a folder or a hub id "
            "with config.json, preprocessor_config.json, a tokenizer and safetensors weights"
        ) from error
    finally:
        talk.set_verbosity(verbosity)
    return Clap(model, _front_end(extractor), tokenizer, name=name)


def _front_end(extractor: Any) -> ClapMel:
    return ClapMel(
        flavour="htk" if extractor.truncation == "fusion" else "slaney",
        rate=extractor.sampling_rate,
        n_fft=extractor.fft_window_size,
        hop=extractor.hop_length,
        mels=extractor.feature_size,
        low_hz=extractor.frequency_min,
        high_hz=extractor.frequency_max,
        length=extractor.nb_max_samples,
        padding=extractor.padding,
    )


def _tokenizer(name: str, transformers: Any) -> Any:
    """Return the checkpoint's tokenizer without padding: texts of one length go together."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(name).backend_tokenizer
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    return tokenizer
