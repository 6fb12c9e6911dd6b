"""A small model that mteb can load; needs mteb.

Its name begins as those of mteb's own baselines do: other models with sound need mteb's extra
`audio`, whose torchaudio cannot be imported beside a torch for CPUs.
"""

from typing import Any

import numpy as np
import torch
from mteb.models import ModelMeta
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_implementations import MODEL_REGISTRY

NAME, DIM, BANDS = "mteb/baseline-small-sounds", 12, 16


class SmallEncoder(AbsEncoder):
    """Band energies and letter counts through fixed linear layers, plus a little noise.

    Like real wrappers it uses the global random state and drops what is beyond its limit.
    """

    sampling_rate = 16_000
    max_audio_length_seconds = 2.0

    def __init__(self, name: str, revision: str | None, device: str | None = None, **_: Any):
        torch.manual_seed(3)
        self.model = torch.nn.ModuleDict(
            {"audio": torch.nn.Linear(BANDS, DIM), "text": torch.nn.Linear(26, DIM)}
        )

    def encode(self, inputs: Any, **_: Any) -> Any:
        assert {"text", "audio"} & set(inputs.dataset.features)
        rows = []
        for batch in inputs:
            rows += [self._text(text) for text in batch.get("text", [])]
            for item in batch.get("audio", []):
                assert item["sampling_rate"] == self.sampling_rate
                longest = int(self.max_audio_length_seconds * self.sampling_rate)
                rows.append(self._audio(item["array"][:longest]))
        return torch.stack(rows)

    def _text(self, text: str) -> Any:
        counts = [float(text.lower().count(chr(ord("a") + i))) for i in range(26)]
        return self.model["text"](torch.tensor(counts)).detach()

    def _audio(self, samples: Any) -> Any:
        crop = np.random.randint(0, 5)  # noqa: NPY002
        power = np.abs(np.fft.rfft(np.asarray(samples, np.float64)[crop:])) ** 2
        bands = np.log([band.mean() + 1e-9 for band in np.array_split(power, BANDS)])
        return self.model["audio"](torch.tensor(bands, dtype=torch.float32)).detach()


def meta(name: str = NAME, **changes: Any) -> Any:
    """Return mteb's description of the model."""
    about = {"name": name, "loader": SmallEncoder, "revision": "1", "framework": ["PyTorch"],
             "modalities": ["audio", "text"], "embed_dim": DIM}  # fmt: skip
    return ModelMeta.create_empty(about | changes)


def register(name: str = NAME, **changes: Any) -> str:
    """Register the model with mteb and return its name."""
    MODEL_REGISTRY[name] = meta(name, **changes)
    return name
