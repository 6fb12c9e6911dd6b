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
import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from driftscore.backbones import hub
from driftscore.backbones.clap.model import (
    FRONT_END_REVISION,
    MAX_TOKENS,
    Clap,
    Description,
    OnnxTower,
    OnnxTowers,
    read_mel,
)
from driftscore.backbones.devices import CPU, onnx_providers
from driftscore.backbones.onnx.external_data import read_beside
from driftscore.backbones.onnx.sessions import open_session, open_tokenizer
from driftscore.backbones.protocol import LOGIT_SCALE
from driftscore.errors import FormatError, UsageError
from driftscore.storage.files import read_text, reading

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

VARIANTS = ("fp32", "fp16", "int8", "uint8", "quantized", "q4", "q4f16", "bnb4")
"""The variants that transformers.js knows; fp32 is the one without a suffix."""
NAMES = {"audio": ("input_features", "audio_embeds"), "text": ("input_ids", "text_embeds")}
"""The main input and the output of each graph."""
_SETTINGS = ("config.json", "preprocessor_config.json", "tokenizer.json")
_MAX_TOKENIZER_BYTES = 64 * 2**20


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


def load_published(name: str, variant: str | None, device: str = CPU) -> Clap:
    """Load a published export by its folder or hub id."""
    onnx_providers(device)
    chosen = variant or "fp32"
    graphs = _graphs(chosen)

    def complete(folder: Path) -> bool:
        return chosen in variants_in(files_of(folder)) and all(
            (folder / file).is_file() for file in _SETTINGS
        )

    def choose(files: Sequence[str]) -> list[str]:
        _check_variant(name, chosen, files)
        data = re.compile("|".join(re.escape(graph) + r"[._]data(_\d+)?" for graph in graphs))
        needed = [*_SETTINGS, *graphs, *filter(data.fullmatch, files)]
        return [file for file in needed if file in files]

    folder = hub.obtain(name, complete=complete, choose=choose)
    _check_variant(name, chosen, files_of(folder))
    config = hub.read_settings(folder / "config.json")
    kind, dim = config.get("model_type"), config.get("projection_dim", 512)
    if kind != "clap" or not isinstance(dim, int) or not 1 <= dim <= 2**16:
        raise FormatError(f"{folder} is not a CLAP: model_type {kind!r}, dimension {dim!r}")
    mel = read_mel(hub.read_settings(folder / "preprocessor_config.json"), where=name)
    tokenizer = read_text(folder / "tokenizer.json", "tokenizer", most=_MAX_TOKENIZER_BYTES)
    digest = hashlib.sha256(tokenizer.encode())
    for graph in graphs:
        content, data = _read_graph(folder / graph)
        for part in (content, *(data[file] for file in sorted(data))):
            digest.update(hashlib.sha256(part).digest())
    front_end = f"clap-onnx/{FRONT_END_REVISION}/{sorted(asdict(mel).items())}"
    fingerprint = hashlib.sha256(front_end.encode() + digest.hexdigest().encode()).hexdigest()
    audio, text = (
        OnnxTower(partial(_open_tower, folder.absolute() / graph, tower, device))
        for graph, tower in zip(graphs, NAMES, strict=True)
    )
    return Clap(
        OnnxTowers(audio, text, text_rows=1),
        Description(
            name if chosen == "fp32" else f"{name}:{chosen}",
            f"clap-onnx/{fingerprint}",
            dim,
            LOGIT_SCALE,  # the scale of its softmax is not among the settings
            mel,
        ),
        open_tokenizer(tokenizer, longest=MAX_TOKENS),
        runtime=f"onnxruntime, on the graphs in {folder / 'onnx'} ({chosen})",
        device=device,
    )


def _check_variant(name: str, chosen: str, files: Sequence[str]) -> None:
    variants = variants_in(files)
    if not variants:
        raise FormatError(
            f"{name} has no graphs onnx/audio_model.onnx and onnx/text_model.onnx, so it is not "
            "a CLAP exported to ONNX"
        )
    if chosen not in variants:
        raise UsageError(
            f"{name} has no variant {chosen}, but {', '.join(variants)}; choose one by its name: "
            f"{name}:{variants[0]}"
        )


def _read_graph(path: Path) -> tuple[bytes, dict[str, bytes]]:
    """Return a graph and the files beside it that it reads."""
    with reading(path, "ONNX graph"):
        content = path.read_bytes()
    return content, read_beside(content, path)


def _open_tower(path: Path, kind: str, device: str) -> "InferenceSession":
    """Return the open session of a graph ("audio" or "text") with the usual inputs and outputs."""
    session = open_session(*_read_graph(path), where=path, device=device)
    inputs = [value.name for value in session.get_inputs()]
    outputs = [value.name for value in session.get_outputs()]
    main, output = NAMES[kind]
    others = set(inputs) - {main, "attention_mask", "is_longer"}
    if main not in inputs or output not in outputs or others:
        raise FormatError(
            f"{path} must compute {output} from {main}; it computes {', '.join(outputs)} from "
            f"{', '.join(inputs)}"
        )
    return session
