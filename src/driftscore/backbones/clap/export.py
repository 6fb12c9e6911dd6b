"""Write an export of a CLAP: build both graphs, run them next to torch, keep them if they agree.

int8 (dynamic quantisation of the weights) is a model of its own with its own fingerprint: it is
used only if its folder is named, and the difference that it makes is measured and recorded.
"""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Recording, Samples, sounding_windows
from driftscore.backbones.clap import exported, onnx_towers
from driftscore.backbones.clap.audio_graph import AudioShape, build_audio
from driftscore.backbones.clap.exported import Export, Probe
from driftscore.backbones.clap.loading import accepts, load_torch
from driftscore.backbones.clap.model import TEXT_ROWS, Clap, Description
from driftscore.backbones.clap.text_graph import build_text
from driftscore.backbones.clap.torch_towers import TorchTowers, tensors_of
from driftscore.errors import MismatchError, MissingExtraError, UsageError, WriteError
from driftscore.files import sha256
from driftscore.vectors import Matrix, unit
from driftscore.version import __version__

_PROBE_TOKENS = 14
_TOKENS = (3, 9, _PROBE_TOKENS, 31)
"""Lengths of the texts that an export is compared on."""


def export(
    name: str,
    home: str | Path | None = None,
    *,
    int8: bool = False,
    clips: Sequence[Recording] = (),
) -> Export:
    """Export a checkpoint to a folder, or to the cache; `clips` are recordings to compare on."""
    if not accepts(name) or exported.is_export(Path(name)):
        raise UsageError(f"{name} is not a CLAP checkpoint; give a hub id (owner/name) or a folder")
    if any(find_spec(module) is None for module in ("torch", "transformers", "onnx")):
        raise MissingExtraError("Exporting a CLAP", "export")
    reference = load_torch(name)
    description = reference.description
    if int8:
        description = replace(description, fingerprint=f"{description.fingerprint}/int8")
    target = Path(home) if home else exported.home_of(description.fingerprint)
    if target.exists() and not exported.is_export(target) and any(target.iterdir()):
        raise UsageError(f"{target} is not empty and not an export; name another folder")
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        made = _write(reference, partial, description, int8=int8, clips=clips)
        shutil.rmtree(target, ignore_errors=True)
        partial.replace(target)
    except OSError as error:
        raise WriteError(f"Cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return replace(made, home=target)


def _write(
    reference: Clap, home: Path, description: Description, *, int8: bool, clips: Sequence[Recording]
) -> Export:
    """Write all files of an export; the manifest comes last."""
    _write_graphs(reference, home, int8=int8)
    folder = exported.checkpoint_folder(description.name)
    made = Export(
        home,
        description,
        precision="int8" if int8 else "fp32",
        # Without a source, an int8 export is never found in place of the model.
        source=exported.source_digest(folder) if folder and not int8 else "",
        sums={path.name: sha256(path) for path in sorted(home.iterdir())},
    )
    made = replace(made, agreement=_compare(reference, made, clips))
    exported.write_manifest(made, made_with=_versions())
    return made


def _write_graphs(reference: Clap, home: Path, *, int8: bool) -> None:
    model = cast(TorchTowers, reference.towers).model
    config, tensors = model.config.to_dict(), tensors_of(model)
    probe = _probe(reference, config["text_config"]["vocab_size"])
    shape = AudioShape.of(config["audio_config"], frames=probe.log_mel.shape[1])
    graphs = {
        "audio": build_audio(tensors, shape),
        "text": build_text(tensors, config["text_config"]),
    }
    for kind, graph in graphs.items():
        path = home / f"{kind}.onnx"
        path.write_bytes(graph)
        if int8:
            _quantise(path)
    (home / "tokenizer.json").write_text(reference.tokenizer.to_str(), encoding="utf-8")
    probe.save(home)


def _quantise(path: Path) -> None:
    """Round the weights of every matrix product to int8, with one scale per output."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.disable(logging.WARNING)  # it recommends a step that these graphs do not need
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


def _probe(reference: Clap, vocabulary: int) -> Probe:
    """Return log-mels and texts with the embeddings that torch gives them."""
    mels = np.stack([reference.features(samples) for samples in _signals(reference)])
    ids = _ids(vocabulary, _PROBE_TOKENS)
    return Probe(
        log_mel=mels,
        audio=np.stack([reference.encode(mel) for mel in mels]),
        ids=ids,
        text=unit(reference.towers.text(ids)),
    )


def _signals(reference: Clap) -> list[Samples]:
    """Return a window of noise, a short tone (which is repeated) and a quiet sweep."""
    rng = np.random.default_rng(20_26)
    length, rate = reference.mel.length, reference.mel.rate
    time = np.arange(length) / rate
    noise = 0.1 * rng.standard_normal(length)
    tone = 0.3 * np.sin(2 * np.pi * 440 * time[: length // 3])
    sweep = 0.002 * np.sin(2 * np.pi * (200 + 300 * time) * time)
    return [part.astype(np.float32) for part in (noise, tone, sweep)]


def _ids(vocabulary: int, tokens: int) -> NDArray[np.int64]:
    """Return texts of random tokens between RoBERTa's marks for start (0) and end (2)."""
    rng = np.random.default_rng(tokens)
    ids = rng.integers(4, vocabulary, (TEXT_ROWS, tokens))
    ids[:, 0], ids[:, -1] = 0, 2
    return ids.astype(np.int64)


def _compare(reference: Clap, made: Export, clips: Sequence[Recording]) -> dict[str, float]:
    """Return how far the graphs are from torch; float32 must be within the tolerance."""
    towers = onnx_towers.open_towers(made, "onnx")
    probe = Probe.load(made.home)
    batches = [_ids(int(probe.ids.max()) + 1, tokens) for tokens in _TOKENS]
    texts = np.concatenate([unit(reference.towers.text(ids)) for ids in batches])
    onnx_texts = np.concatenate([unit(towers.text(ids)) for ids in batches])
    mels, rows = [*probe.log_mel], [*probe.audio]
    for clip in clips:
        for window in sounding_windows(clip, rate=reference.rate, seconds=reference.seconds):
            mels.append(reference.features(window.audio.samples))
            rows.append(reference.encode(mels[-1]))
    sounds = np.stack(rows)
    onnx_sounds = unit(np.stack([towers.audio(mel) for mel in mels]))
    found = {
        "text": float(np.abs(texts - onnx_texts).max()),
        "audio": float(np.abs(sounds - onnx_sounds).max()),
    }
    if made.precision == "fp32" and not all(v <= onnx_towers.TOLERANCE for v in found.values()):
        raise MismatchError(
            f"The exported towers differ from torch's by {max(found.values()):.1e} (allowed: "
            f"{onnx_towers.TOLERANCE:.0e}), so the export was deleted; use --runtime torch, and "
            "please report the checkpoint"
        )
    found["audio_cosine"] = _least_cosine(sounds, onnx_sounds)
    found["text_cosine"] = _least_cosine(texts, onnx_texts)
    return found


def _least_cosine(left: Matrix, right: Matrix) -> float:
    return float((left.astype(np.float64) * right).sum(axis=1).min())


def _versions() -> dict[str, str]:
    import onnxruntime
    import torch
    import transformers

    modules = {"torch": torch, "transformers": transformers, "onnxruntime": onnxruntime}
    return {name: module.__version__ for name, module in modules.items()} | {
        "driftscore": __version__
    }
