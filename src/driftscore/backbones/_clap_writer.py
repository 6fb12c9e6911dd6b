"""Write an export of CLAP: build both graphs, run them beside torch, keep them if they agree.

int8 (dynamic quantisation of the weights) is a model of its own, with a fingerprint of its
own: it is never used unless it is named, and its cost in agreement is measured and kept.
"""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np

from driftscore.audio import Samples, Source
from driftscore.backbones import _clap_export as exports
from driftscore.backbones import embed_windows
from driftscore.backbones._clap_graph import AudioShape, build_audio, build_text
from driftscore.backbones._clap_torch import TorchTowers
from driftscore.backbones.clap import TEXT_ROWS, Clap, accepts, load_torch
from driftscore.errors import MismatchError, MissingExtraError, UsageError
from driftscore.files import sha256
from driftscore.vectors import Matrix, unit

_TOKENS = (3, 9, 14, 31)
"""Lengths of the texts that an export is tried with; the first 14 tokens are in the probe."""


def export(
    name: str,
    home: str | Path | None = None,
    *,
    int8: bool = False,
    clips: Sequence[Source] = (),
) -> exports.Export:
    """Export a checkpoint to a folder, or to the cache; `clips` are sounds to compare on."""
    if not accepts(name) or exports.is_export(Path(name)):
        raise UsageError(f"{name} is no CLAP checkpoint; give a hub id (owner/name) or a folder")
    if any(find_spec(module) is None for module in ("torch", "transformers", "onnx")):
        raise MissingExtraError("Exporting a CLAP", "export")
    reference = load_torch(name)
    described = reference.described
    if int8:
        described = replace(described, fingerprint=f"{described.fingerprint}/int8")
    target = Path(home) if home else exports.home_of(described.fingerprint)
    if target.exists() and not exports.is_export(target) and any(target.iterdir()):
        raise UsageError(f"{target} is not empty and not an export; name another folder")
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        _write_graphs(reference, partial, int8=int8)
        folder = exports.checkpoint_folder(name)
        made = exports.Export(
            partial,
            described,
            precision="int8" if int8 else "fp32",
            # An int8 export is found by its own name only, never in place of the model.
            source=exports.source_digest(folder) if folder and not int8 else "",
            sums={path.name: sha256(path) for path in sorted(partial.iterdir())},
        )
        made = replace(made, agreement=_compare(reference, made, clips))
        exports.write_manifest(made, made_with=_versions())
        shutil.rmtree(target, ignore_errors=True)
        partial.replace(target)
    except OSError as error:
        raise UsageError(f"Cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return replace(made, home=target)


def _write_graphs(reference: Clap, home: Path, *, int8: bool) -> None:
    towers = cast(TorchTowers, reference.towers)
    config, tensors = towers.model.config.to_dict(), towers.tensors()
    probe = _probe(reference, config["text_config"]["vocab_size"])
    shape = AudioShape.of(config["audio_config"], frames=probe["log_mel"].shape[1])
    graphs = {
        "audio": build_audio(tensors, shape),
        "text": build_text(tensors, config["text_config"]),
    }
    for kind, graph in graphs.items():
        path = home / f"{kind}.onnx"
        path.write_bytes(graph)
        if int8:
            _quantise(path)
    tokenizer: Any = reference.tokenizer
    (home / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    np.savez(home / "probe.npz", **probe)


def _quantise(path: Path) -> None:
    """Round the weights of every matrix product to int8, a scale for each output."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.disable(logging.WARNING)  # it recommends a step that our graphs do not need
    try:
        # Seven bits: without VNNI the eighth would overflow the 16 bit sums of two products.
        quantize_dynamic(
            path,
            path,
            op_types_to_quantize=["MatMul"],
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
        )
    finally:
        logging.disable(logging.NOTSET)


def _probe(reference: Clap, vocabulary: int) -> dict[str, Any]:
    """Return sounds and texts with the embeddings that torch gives them."""
    mels = np.stack([reference.features(samples) for samples in _sounds(reference)])
    ids = _ids(vocabulary, 14)
    return {
        "log_mel": mels,
        "audio": np.stack([reference.encode(mel) for mel in mels]),
        "ids": ids,
        "text": unit(reference.towers.text(ids)),
    }


def _sounds(reference: Clap) -> list[Samples]:
    """Return a window of noise, a short tone that is tiled, and a faint sweep."""
    rng = np.random.default_rng(20_26)
    length, rate = reference.mel.length, reference.mel.rate
    time = np.arange(length) / rate
    noise = 0.1 * rng.standard_normal(length)
    tone = 0.3 * np.sin(2 * np.pi * 440 * time[: length // 3])
    sweep = 0.002 * np.sin(2 * np.pi * (200 + 300 * time) * time)
    return [part.astype(np.float32) for part in (noise, tone, sweep)]


def _ids(vocabulary: int, tokens: int) -> Any:
    """Return texts of random tokens between the marks of RoBERTa's start (0) and end (2)."""
    rng = np.random.default_rng(tokens)
    ids = rng.integers(4, vocabulary, (TEXT_ROWS, tokens))
    ids[:, 0], ids[:, -1] = 0, 2
    return ids.astype(np.int64)


def _compare(reference: Clap, made: exports.Export, clips: Sequence[Source]) -> dict[str, float]:
    """Run the graphs beside torch; float32 must agree, int8 is told what it costs."""
    towers = exports.open_towers(made, "onnx")
    probe, found = exports.load_probe(made.home), {}
    texts = [_ids(int(probe["ids"].max()) + 1, tokens) for tokens in _TOKENS]
    there = [unit(reference.towers.text(ids)) for ids in texts]
    here = [unit(towers.text(ids)) for ids in texts]
    found["text"] = _largest(there, here)
    mels = [*probe["log_mel"]]
    sounds = [*probe["audio"]]
    for clip in clips:
        for window, row in embed_windows(clip, reference):
            mels.append(reference.features(window.audio.samples))
            sounds.append(row)
    heard = unit(np.stack([towers.audio(mel) for mel in mels]))
    found["audio"] = _largest([np.stack(sounds)], [heard])
    worst = max(found["text"], found["audio"])
    if made.precision == "fp32" and not worst <= exports.TOLERANCE:
        raise MismatchError(
            f"The exported towers differ from torch's by {worst:.1e} (allowed: "
            f"{exports.TOLERANCE:.0e}), so the export was thrown away; use --runtime torch, and "
            "tell us which checkpoint it is"
        )
    found["audio_cosine"] = _least_cosine(np.stack(sounds), heard)
    found["text_cosine"] = _least_cosine(np.concatenate(there), np.concatenate(here))
    return found


def _largest(there: Sequence[Matrix], here: Sequence[Matrix]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(there, here, strict=True))


def _least_cosine(there: Matrix, here: Matrix) -> float:
    return float((there.astype(np.float64) * here).sum(axis=1).min())


def _versions() -> dict[str, str]:
    import onnxruntime
    import torch
    import transformers

    from driftscore import __version__

    modules = {"torch": torch, "transformers": transformers, "onnxruntime": onnxruntime}
    return {name: module.__version__ for name, module in modules.items()} | {
        "driftscore": __version__
    }
