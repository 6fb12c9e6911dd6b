"""CLAPs exported to ONNX by others, in the layout of transformers.js, without torch.

    config.json  preprocessor_config.json  tokenizer.json
    onnx/audio_model.onnx    input_features (1, channels, frames, mels) -> audio_embeds (1, d)
    onnx/text_model.onnx     input_ids (1, n) -> text_embeds (1, d)

A suffix names a variant, as in audio_model_quantized.onnx. Variants differ in their embeddings, so
each has its own fingerprint, and one that is not float32 is used only by name:
Xenova/clap-htsat-unfused:quantized. A quantized graph rounds with a scale that depends on all rows
of a call; therefore texts are encoded one by one.
"""

import hashlib
import json
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones import hub
from driftscore.backbones.clap.config import FRONT_END_REVISION, LONGEST, read_mel
from driftscore.backbones.clap.model import Clap, Description
from driftscore.backbones.onnx.external_data import read_beside
from driftscore.backbones.onnx.sessions import InputArray, Session, open_session
from driftscore.backbones.onnx.tokenizer import open_tokenizer
from driftscore.backbones.protocol import LOGIT_SCALE, Features
from driftscore.errors import FormatError, UsageError
from driftscore.vectors import Matrix, Vector

VARIANTS = ("fp32", "fp16", "int8", "uint8", "quantized", "q4", "q4f16", "bnb4")
"""The variants that transformers.js knows; fp32 is the one without a suffix."""
_SETTINGS = ("config.json", "preprocessor_config.json", "tokenizer.json")
_LARGEST_SETTINGS = 64 * 2**20
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64,
          "tensor(int32)": np.int32, "tensor(bool)": np.bool_}  # fmt: skip


def split_variant(spec: str) -> tuple[str, str | None]:
    """Return the model and the variant that "model:variant" names; None if it names no variant."""
    name, colon, variant = spec.rpartition(":")
    return (name, variant) if colon and variant in VARIANTS else (spec, None)


def variants_in(files: Sequence[str]) -> tuple[str, ...]:
    """Return the variants of which both graphs are among the files of a model."""
    return tuple(v for v in VARIANTS if all(graph in files for graph in _graphs(v)))


def files_of(folder: Path) -> tuple[str, ...]:
    """Return the files of a model in a folder that matter here."""
    return tuple(f"onnx/{path.name}" for path in sorted((folder / "onnx").glob("*.onnx")))


def _graphs(variant: str) -> tuple[str, str]:
    suffix = "" if variant == "fp32" else f"_{variant}"
    return f"onnx/audio_model{suffix}.onnx", f"onnx/text_model{suffix}.onnx"


def load_published(name: str, variant: str | None) -> Clap:
    """Load a published export by its folder or hub id."""
    chosen = variant or "fp32"

    def complete(folder: Path) -> bool:
        return chosen in variants_in(files_of(folder)) and all(
            (folder / file).is_file() for file in _SETTINGS
        )

    def choose(files: Sequence[str]) -> list[str]:
        _check_variant(name, chosen, variants_in(files))
        data = re.compile(
            "|".join(re.escape(graph) + r"[._]data(_\d+)?" for graph in _graphs(chosen))
        )
        wanted = [*_SETTINGS, *_graphs(chosen), *filter(data.fullmatch, files)]
        return [file for file in wanted if file in files]

    folder = hub.obtain(name, complete=complete, choose=choose)
    _check_variant(name, chosen, variants_in(files_of(folder)))
    found = PublishedFiles(folder.absolute(), chosen)
    return Clap(
        PublishedTowers(found),
        _describe(name, found),
        open_tokenizer(found.text("tokenizer.json"), longest=LONGEST),
        runtime=f"onnxruntime, on the graphs in {folder / 'onnx'} ({chosen})",
    )


def _check_variant(name: str, chosen: str, known: Sequence[str]) -> None:
    if chosen in known:
        return
    if not known:
        raise FormatError(
            f"{name} has no graphs onnx/audio_model.onnx and onnx/text_model.onnx, so it is not "
            "a CLAP exported to ONNX"
        )
    raise UsageError(
        f"{name} has no variant {chosen}, but {', '.join(known)}; choose one by its name: "
        f"{name}:{known[0]}"
    )


@dataclass(frozen=True)
class PublishedFiles:
    """The folder of a published export, and the variant that is used."""

    folder: Path
    variant: str

    def text(self, name: str) -> str:
        """Return the content of a settings file."""
        path = self.folder / name
        try:
            if path.stat().st_size > _LARGEST_SETTINGS:
                raise FormatError(f"{path} is too large for what it should be")
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise FormatError(f"{path} cannot be read: {error}") from error

    def settings(self, name: str) -> dict[str, object]:
        """Return the content of a JSON file."""
        try:
            content = json.loads(self.text(name))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{self.folder / name} is not JSON: {error}") from error
        if not isinstance(content, dict):
            raise FormatError(f"{self.folder / name} must be a JSON object")
        return content

    def graph(self, kind: str) -> tuple[bytes, dict[str, bytes]]:
        """Return a graph ("audio" or "text") and the files beside it that it reads."""
        path = self.folder / _graphs(self.variant)[("audio", "text").index(kind)]
        try:
            content = path.read_bytes()
        except OSError as error:
            raise FormatError(f"{path} cannot be read: {error}") from error
        return content, read_beside(content, path)

    def digest(self) -> str:
        """Return a digest of everything that an embedding depends on besides the front end."""
        digest = hashlib.sha256(self.text("tokenizer.json").encode())
        for kind in ("audio", "text"):
            graph, data = self.graph(kind)
            for content in (graph, *(data[name] for name in sorted(data))):
                digest.update(hashlib.sha256(content).digest())
        return digest.hexdigest()


def _describe(name: str, found: PublishedFiles) -> Description:
    """Return what the settings say of a model. The scale of its softmax is not among them."""
    config = found.settings("config.json")
    kind, dim = config.get("model_type"), config.get("projection_dim", 512)
    if kind != "clap" or not isinstance(dim, int) or not 1 <= dim <= 2**16:
        raise FormatError(f"{found.folder} is not a CLAP: model_type {kind!r}, dimension {dim!r}")
    mel = read_mel(found.settings("preprocessor_config.json"), where=name)
    front_end = f"clap-onnx/{FRONT_END_REVISION}/{sorted(asdict(mel).items())}"
    digest = hashlib.sha256(front_end.encode() + found.digest().encode()).hexdigest()
    shown = name if found.variant == "fp32" else f"{name}:{found.variant}"
    return Description(shown, f"clap-onnx/{digest}", dim, LOGIT_SCALE, mel)


class PublishedTowers:
    """The two graphs, opened when they are first used; a copy opens them again."""

    runtime_name = "onnx"
    text_rows = 1

    def __init__(self, files: PublishedFiles) -> None:
        self.files = files
        self.parallel = os.cpu_count() or 1
        self._opened: dict[str, _Tower] = {}
        self._opening = threading.Lock()

    def __reduce__(self) -> tuple[type["PublishedTowers"], tuple[PublishedFiles]]:
        return type(self), (self.files,)

    def audio(self, log_mel: Features) -> Vector:
        """Return the embedding of the log-mel of one window."""
        tower = self._tower("audio")
        # A fused model reads four views of a clip, or the same one four times if it is short.
        channels = 4 if "is_longer" in tower.inputs else 1
        mel = np.repeat(log_mel[None, None], channels, axis=1)
        row: Vector = tower.run({"input_features": mel, "is_longer": np.zeros((1, 1), bool)})[0]
        return row

    def text(self, ids: NDArray[np.int64]) -> Matrix:
        """Return the embedding of a text."""
        return self._tower("text").run({"input_ids": ids, "attention_mask": np.ones_like(ids)})

    def _tower(self, kind: str) -> "_Tower":
        with self._opening:
            if kind not in self._opened:
                self._opened[kind] = _Tower(self.files, kind)
            return self._opened[kind]


class _Tower:
    """One graph in onnxruntime; inputs that it does not have are left out."""

    def __init__(self, files: PublishedFiles, kind: str) -> None:
        self.where = f"{kind}_model of {files.folder} ({files.variant})"
        graph, data = files.graph(kind)
        try:
            self.session: Session = open_session(graph, data)
        except Exception as error:  # onnxruntime has a class of its own for each kind of failure
            reason = str(error).strip().split("\n")[0]
            raise FormatError(f"The {self.where} cannot be opened: {reason}") from error
        self.inputs = {value.name: value.type for value in self.session.get_inputs()}
        main, self.output = _NAMES[kind]
        known = {main, "attention_mask", "is_longer"}
        outputs = [value.name for value in self.session.get_outputs()]
        if main not in self.inputs or self.output not in outputs or set(self.inputs) - known:
            raise FormatError(
                f"The {self.where} must compute {self.output} from {main}; it computes "
                f"{', '.join(outputs)} from {', '.join(self.inputs)}"
            )

    def run(self, values: dict[str, InputArray]) -> Matrix:
        given = {
            name: values[name].astype(_TYPES.get(kind, values[name].dtype), copy=False)
            for name, kind in self.inputs.items()
        }
        rows = self.session.run([self.output], given)[0]
        if rows.ndim != 2:
            raise FormatError(f"The {self.where} gives an array of shape {rows.shape}, not rows")
        return cast(Matrix, rows.astype(np.float32, copy=False))


_NAMES = {"audio": ("input_features", "audio_embeds"), "text": ("input_ids", "text_embeds")}
