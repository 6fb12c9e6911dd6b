"""Any audio-text model that mteb can load, such as mteb:microsoft/msclap-2023.

The model is used as mteb's zero-shot audio tasks use it: texts and sounds go through `encode` of
its encoder protocol. One item per call, and every call begins with the same random state (given
back afterwards), so that an embedding depends on nothing else. Clips are cut into windows no longer
than the model's own limit, since most models drop what is beyond it.

Refused are models behind a web service (recordings would leave the machine) and, unless
`remote_code` is given, models that run code from their repository.
"""

import hashlib
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np

from driftscore.backbones import devices, hub
from driftscore.backbones.protocol import Backbone, Features
from driftscore.backbones.vectors import Matrix, Vector, unit
from driftscore.errors import (
    DownloadError,
    FormatError,
    MismatchError,
    MissingExtraError,
    UsageError,
    unknown,
)
from driftscore.storage.files import first_line
from driftscore.system.process import environment

RATE = 48_000
SECONDS = 10.0
_MAX_WINDOW_S = 30.0
MtebObject = Any
"""An encoder or the description of a model: mteb's types are its own."""
_TASK = "ESC50_Zeroshot"
"""The task in whose name texts and sounds are encoded: some models have a prompt per task type."""


def load(
    name: str,
    *,
    rate: int | None = None,
    seconds: float | None = None,
    remote_code: bool = False,
    device: str = "auto",
    batch_size: int | None = None,
) -> "Mteb":
    """Load a model by the name that mteb has for it.

    `rate` and `seconds` are the sample rate and the length of a window, if not those that the
    model's wrapper states.
    """
    if find_spec("mteb") is None:
        raise MissingExtraError("The mteb backbone", "mteb")
    with environment(HF_HUB_DISABLE_TELEMETRY="1"):
        import mteb

    metas: list[Any] = list(mteb.get_model_metas(modalities=["audio", "text"]))
    models = {str(meta.name): meta for meta in metas}
    if name not in models:
        raise unknown("mteb model of sound and text", name, models)
    meta = models[name]
    kinds = [kind for kind in meta.model_type if kind != "dense"]
    if kinds:
        raise UsageError(f"{name} is a {kinds[0]} model; only dense ones embed an item alone")
    if "API" in meta.framework:
        raise UsageError(
            f"{name} runs behind a web service, to which your recordings would be sent; choose a "
            "model that runs on this machine"
        )
    if _has_remote_code(meta.loader_kwargs) and not remote_code:
        raise UsageError(
            f"{name} runs code from its repository. If you trust it, load it in Python: "
            f"load_backbone('mteb:{name}', remote_code=True)"
        )
    place = devices.torch_device(device)
    batch = devices.first_batch(place, batch_size)
    try:
        with hub.offline_if_unreachable():
            encoder = meta.load_model(device=devices.torch_place(place))
    except ImportError as error:
        groups = ",".join(dict.fromkeys((*(meta.extra_requirements_groups or ()), "audio")))
        raise MissingExtraError(name, command=f"pip install 'mteb[{groups}]'") from error
    except OSError as error:
        reason = f"{first_line(error)}. {hub.what_to_do(name)}"
        raise DownloadError(f"mteb cannot load {name}: {reason}") from error
    except Exception as error:  # each model has code of its own
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise FormatError(f"mteb cannot load {name}: {reason}") from error
    rate = rate or _stated(encoder, ("sampling_rate", "sample_rate", "target_sampling_rate"), RATE)
    if seconds is None:
        longest = _stated(encoder, ("max_audio_length_seconds", "max_audio_length_s"), SECONDS)
        seconds = longest if longest <= _MAX_WINDOW_S else SECONDS
    if not (isinstance(rate, int) and rate > 0 and seconds > 0):
        raise UsageError(f"rate and seconds must be positive, got {rate} and {seconds}")
    return Mteb(encoder, meta, rate, seconds, remote_code=remote_code, device=place, batch=batch)


class Mteb(Backbone):
    """An encoder of mteb; a pickled or copied object loads it again."""

    def __init__(
        self,
        encoder: MtebObject,
        meta: MtebObject,
        rate: int,
        seconds: float,
        *,
        remote_code: bool = False,
        device: str = devices.CPU,
        batch: int = 1,
    ) -> None:
        import mteb  # `load` has imported it without telemetry

        self.encoder = encoder
        self.device = device
        self.batch = batch
        self._batches = devices.WindowBatches(batch)
        self.name = f"mteb:{meta.name}"
        self.rate = int(rate)
        self.seconds = float(seconds)
        self.remote_code = remote_code
        self.runtime = f"mteb {version('mteb')}, {type(encoder).__name__}"
        self._task = mteb.get_task(_TASK).metadata
        self._encoding = threading.Lock()
        self.dim = int(self._encode("text", ["rain"]).shape[1])
        settings = f"{meta.name}/{meta.revision}/{version('mteb')}/{self.rate}/{self.seconds}"
        digest = hashlib.sha256(settings.encode())
        for where, tensor in _weights(encoder):
            digest.update(where.encode() + tensor.tobytes())
        self.fingerprint = f"mteb/{digest.hexdigest()}"

    def __reduce__(self) -> tuple[object, tuple[object, str]]:
        again = partial(
            load,
            self.name.removeprefix("mteb:"),
            rate=self.rate,
            seconds=self.seconds,
            remote_code=self.remote_code,
            device=self.device,
            batch_size=self.batch,
        )
        return hub.load_again, (again, self.fingerprint)

    def encode(self, features: Features) -> Vector:
        """Return the unit embedding of one window of samples."""
        return self._encode_windows([features])[0]

    def encode_batch(self, features: Sequence[Features]) -> Matrix:
        """Return the unit embeddings of windows of samples."""
        return self._batches.run(self._encode_windows, features)

    def _encode_windows(self, windows: Sequence[Features]) -> Matrix:
        items = [{"array": samples, "sampling_rate": self.rate} for samples in windows]
        rows = self._encode("audio", items)
        if rows.shape[1] != self.dim:
            raise MismatchError(
                f"{self.name} embeds sounds in {rows.shape[1]} dimensions and texts in {self.dim}, "
                "so they cannot be compared"
            )
        return rows

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text."""
        rows = [self._encode("text", [text]) for text in texts]
        return np.concatenate(rows) if rows else np.zeros((0, self.dim), np.float32)

    def _encode(self, kind: str, items: Sequence[object]) -> Matrix:
        """Return the unit embeddings of texts or sounds."""
        from torch.utils.data import DataLoader

        inputs: Any = _Inputs(kind, items)
        count = len(items)
        loader = DataLoader(inputs, batch_size=count, collate_fn=lambda _: {kind: list(items)})
        with self._encoding, _fixed_randomness(), devices.inference(self.device):
            output: Any = self.encoder.encode(
                loader, task_metadata=self._task, hf_split="test", hf_subset="default",
                batch_size=count, show_progress_bar=False,
            )  # fmt: skip
        if hasattr(output, "detach"):
            output = output.detach().cpu().float().numpy()
        rows = np.asarray(output, np.float32)
        if rows.ndim != 2 or len(rows) != count or not np.isfinite(rows).all():
            raise FormatError(
                f"{self.name} gives an array of shape {rows.shape} for {count} items of {kind}, or "
                "numbers that are not finite; a model with one vector per item is needed"
            )
        return unit(rows)


class _Inputs(list[dict[str, object]]):
    """A dataset of one column, with the attributes that mteb's encoders look at."""

    def __init__(self, column: str, items: Sequence[object]) -> None:
        super().__init__([{column: item} for item in items])
        self.features = {column: None}
        self.column_names = [column]


@contextmanager
def _fixed_randomness() -> Iterator[None]:
    """Begin with the same random state whatever came before, and give the old one back."""
    import torch

    before: Any = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def _has_remote_code(settings: Mapping[str, Any]) -> bool:
    return any(
        value is True if name == "trust_remote_code" else
        isinstance(value, Mapping) and _has_remote_code(value)
        for name, value in settings.items()
    )  # fmt: skip


def _stated(encoder: object, names: Sequence[str], default: Any) -> Any:
    """Return the first of several attributes that is a positive number."""
    for name in names:
        value = getattr(encoder, name, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return value
    return default


def _weights(encoder: object) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of an encoder's networks: its attributes, and the attributes of those."""
    import torch

    seen: set[int] = set()
    level = [("", encoder)]
    for _ in range(3):
        below: list[tuple[str, object]] = []
        for where, item in level:
            if isinstance(item, torch.nn.Module):
                if id(item) not in seen:
                    seen.add(id(item))
                    for key, tensor in sorted(item.state_dict().items()):
                        flat = tensor.detach().cpu().contiguous().flatten()
                        yield f"{where}.{key}", flat.view(torch.uint8).numpy()
            elif hasattr(item, "__dict__") and len(below) < 1000:
                below += [(f"{where}.{n}", v) for n, v in sorted(vars(item).items())]
        level = below
