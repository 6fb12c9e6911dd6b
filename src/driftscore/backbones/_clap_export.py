"""CLAP exported to ONNX: written once, checked against torch, then run without torch.

An export is a folder: `audio.onnx`, `text.onnx`, `tokenizer.json`, `probe.npz` (sounds and
texts with the embeddings that torch gave them) and `manifest.json` (what it was made of, the
checksums, the agreement that was measured). Whatever runtime opens it must first give the
probe's embeddings, on this machine and with this version, or is refused.

Exports lie in the cache by fingerprint, or in a folder of the user's own, which can be
carried to a machine that has neither torch nor the checkpoint.
"""

import hashlib
import importlib.util
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones._onnx import OnnxRun, OpenvinoRun
from driftscore.errors import FormatError, MismatchError, MissingExtraError
from driftscore.files import cache_home, sha256
from driftscore.vectors import Matrix, unit

KIND = "driftscore clap export"
REVISION = 1
"""Part of a cached export's place; raise it whenever the graphs change."""
TOLERANCE = 1e-4
"""Largest difference from torch in any number of a unit embedding."""
GRAPHS = ("audio.onnx", "text.onnx")
_SOURCES = ("config.json", "preprocessor_config.json", "tokenizer.json", "*.safetensors")


@dataclass(frozen=True)
class Description:
    """What a CLAP is besides its weights."""

    name: str
    fingerprint: str
    dim: int
    logit_scale: float
    mel: dict[str, Any]


@dataclass(frozen=True)
class Export:
    """An export's folder and its manifest."""

    home: Path
    description: Description
    precision: str
    source: str
    sums: Mapping[str, str]
    agreement: Mapping[str, float] = field(default_factory=dict)


class Tokenizer(Protocol):
    """The part of `tokenizers.Tokenizer` that is used."""

    def encode(self, text: str) -> Any:
        """Return the encoding, whose `ids` are wanted."""


def mel_settings(extractor: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of `ClapMel` from a checkpoint's preprocessor config."""
    return {
        "flavour": "htk" if extractor["truncation"] == "fusion" else "slaney",
        "rate": extractor["sampling_rate"],
        "n_fft": extractor["fft_window_size"],
        "hop": extractor["hop_length"],
        "mels": extractor["feature_size"],
        "low_hz": extractor["frequency_min"],
        "high_hz": extractor["frequency_max"],
        "length": extractor["nb_max_samples"],
        "padding": extractor["padding"],
    }


def is_export(home: Path) -> bool:
    """Whether a folder is an export."""
    return (home / "manifest.json").is_file() and (home / GRAPHS[0]).is_file()


def exports_home() -> Path:
    """Return the cache's folder of exports."""
    return cache_home() / "exports"


def home_of(fingerprint: str) -> Path:
    """Return where the cache keeps the export of a model."""
    return exports_home() / f"{hashlib.sha256(fingerprint.encode()).hexdigest()[:32]}-{REVISION}"


def read_export(home: Path) -> Export:
    """Read an export's manifest."""
    try:
        content = json.loads((home / "manifest.json").read_text(encoding="utf-8"))
        if content["kind"] != KIND:
            raise ValueError(f"it is a {content['kind']!r}")
        return Export(
            home,
            Description(**content["model"]),
            content["precision"],
            content["source"],
            content["sha256"],
            content["agreement"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"The export in {home} cannot be read ({error}); make it again with driftscore export"
        ) from error


def write_manifest(export: Export, *, made_with: Mapping[str, str]) -> None:
    """Write the manifest: the last file of an export, so that half of one is none."""
    content = {
        "kind": KIND,
        "model": asdict(export.description),
        "precision": export.precision,
        "source": export.source,
        "sha256": dict(export.sums),
        "agreement": dict(export.agreement),
        "made_with": dict(made_with),
    }
    text = json.dumps(content, indent=1) + "\n"
    (export.home / "manifest.json").write_text(text, encoding="utf-8")


def find(name: str) -> Export | None:
    """Return the export of a checkpoint: the folder itself, or the cache's of the same content."""
    if is_export(Path(name)):
        return read_export(Path(name))
    kept = [export for export in _kept() if export.precision == "fp32"]  # int8 only where named
    if not kept:
        return None
    folder = checkpoint_folder(name)
    if folder is None:  # a machine without the checkpoint: what was exported under its name
        return next((export for export in kept if export.description.name == name), None)
    digest = source_digest(folder)
    return next((export for export in kept if export.source == digest), None)


def _kept() -> Iterator[Export]:
    for home in sorted(exports_home().glob(f"*-{REVISION}")):
        if is_export(home):
            yield read_export(home)


def checkpoint_folder(name: str) -> Path | None:
    """Return the folder of a checkpoint, given outright or in the hub's cache."""
    if (Path(name) / "config.json").is_file():
        return Path(name)
    hub = Path(
        os.environ.get("HF_HUB_CACHE")
        or Path(os.environ.get("HF_HOME") or "~/.cache/huggingface") / "hub"
    ).expanduser()
    repository = hub / f"models--{name.replace('/', '--')}"
    try:
        revision = (repository / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    snapshot = repository / "snapshots" / revision
    return snapshot if (snapshot / "config.json").is_file() else None


def source_digest(folder: Path) -> str:
    """Return the digest of a checkpoint's files: the same content is the same export."""
    files = sorted(path for pattern in _SOURCES for path in folder.glob(pattern))
    return hashlib.sha256("".join(f"{p.name} {sha256(p)}\n" for p in files).encode()).hexdigest()


def choose(export: Export, runtime: str) -> tuple[str, str]:
    """Return the runtime to use, and why."""
    where = f"the export in {export.home} ({export.precision})"
    if runtime != "auto":
        return runtime, f"{runtime}, as asked, on {where}"
    if importlib.util.find_spec("openvino"):
        return "openvino", f"openvino, since it is installed, on {where}"
    return "onnx", f"onnxruntime, since openvino is not installed, on {where}"


def open_towers(export: Export, runtime: str) -> "CheckedTowers":
    """Open an export's towers in a runtime."""
    if runtime == "openvino" and importlib.util.find_spec("openvino") is None:
        raise MissingExtraError("The runtime openvino", "openvino")
    return CheckedTowers(export, runtime)


def tokenizer_of(export: Export) -> Tokenizer:
    """Return an export's tokenizer, which neither pads nor runs beyond the model's places."""
    from tokenizers import Tokenizer as Reader

    tokenizer: Tokenizer = Reader.from_str(_whole(export, "tokenizer.json").decode())
    return tokenizer


class CheckedTowers:
    """Towers that are opened when first used, and used once they gave the probe's embeddings.

    OpenVINO runs the audio tower; the text tower is onnxruntime's in either case.
    """

    def __init__(self, export: Export, runtime: str) -> None:
        self.runtime = runtime
        self.export = export
        self.at_once = os.cpu_count() or 1
        self._opened: dict[str, Any] = {}
        self._opening = threading.Lock()

    def audio(self, log_mel: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the embedding of one window's log-mel."""
        row: NDArray[np.float32] = self._tower("audio")(log_mel)[0]
        return row

    def text(self, ids: NDArray[np.int64]) -> Matrix:
        """Return the embeddings of texts of one token length."""
        rows: Matrix = self._tower("text")(ids)
        return rows

    def _tower(self, kind: str) -> Any:
        with self._opening:
            if kind not in self._opened:
                self._opened[kind] = self._open(kind)
            return self._opened[kind]

    def _open(self, kind: str) -> Any:
        # Texts vary in length, which onnxruntime takes in its stride, OpenVINO less so.
        run = OpenvinoRun if (self.runtime, kind) == ("openvino", "audio") else OnnxRun
        tower = run(_whole(self.export, f"{kind}.onnx"))
        found = disagreement(kind, tower, load_probe(self.export.home))
        if not found <= TOLERANCE and self.export.precision == "fp32":
            raise MismatchError(
                f"{self.runtime} gives {kind} embeddings that differ from torch's by {found:.1e} "
                f"on this machine (allowed: {TOLERANCE:.0e}); use another --runtime, and tell us"
            )
        return tower


def load_probe(home: Path) -> dict[str, NDArray[Any]]:
    """Return the probe: log_mels and ids, with what torch made of them."""
    try:
        with np.load(home / "probe.npz", allow_pickle=False) as content:
            return {name: content[name] for name in ("log_mel", "audio", "ids", "text")}
    except (OSError, ValueError, KeyError) as error:
        raise FormatError(f"The probe in {home} cannot be read: {error}") from error


def disagreement(kind: str, tower: Any, probe: Mapping[str, NDArray[Any]]) -> float:
    """Return the largest difference of a tower's unit embeddings from torch's on the probe."""
    if kind == "audio":
        rows = np.concatenate([tower(mel) for mel in probe["log_mel"]])
    else:
        rows = tower(probe["ids"])
    return float(np.abs(unit(rows) - probe[kind]).max())


def _whole(export: Export, name: str) -> bytes:
    """Read a file of an export, and refuse one that is not as it was made."""
    again = "make it again with driftscore export"
    try:
        content = (export.home / name).read_bytes()
    except OSError as error:
        raise FormatError(f"{export.home / name} cannot be read ({error}); {again}") from error
    if hashlib.sha256(content).hexdigest() != export.sums.get(name):
        raise FormatError(f"{export.home / name} is damaged or edited; {again}")
    return content
