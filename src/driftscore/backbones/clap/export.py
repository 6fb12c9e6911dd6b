"""Write an export of a CLAP: build both graphs, run them next to torch, keep them if they agree.

int8 (dynamic quantisation of the weights) is a model of its own with its own fingerprint: it is
used only if its folder is named, and the difference that it makes is measured and recorded.
"""

import json
import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Recording, sounding_windows
from driftscore.backbones.clap import accepts, exported
from driftscore.backbones.clap.exported import KIND, TOLERANCE, Export, Manifest, Probe
from driftscore.backbones.clap.graphs import AudioShape, build_audio, build_text
from driftscore.backbones.clap.model import TEXT_ROWS, Clap
from driftscore.backbones.clap.torch_towers import TorchTowers, load_torch, tensors_of
from driftscore.backbones.hub import local_folder
from driftscore.backbones.vectors import unit
from driftscore.errors import MismatchError, MissingExtraError, UsageError, WriteError
from driftscore.storage.files import sha256
from driftscore.system.process import environment
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
    description, folder = reference.description, local_folder(name)
    if int8:
        description = replace(description, fingerprint=f"{description.fingerprint}/int8")
    target = Path(home) if home else exported.home_of(description.fingerprint)
    if target.exists() and not exported.is_export(target) and any(target.iterdir()):
        raise UsageError(f"{target} is not empty and not an export; name another folder")
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        _write_graphs(reference, partial, int8=int8)
        versions = {name: version(name) for name in ("torch", "transformers", "onnxruntime")}
        manifest = Manifest(
            kind=KIND,
            model=description,
            precision="int8" if int8 else "fp32",
            # Without a source, an int8 export is never found in place of the model.
            source=exported.source_digest(folder) if folder and not int8 else "",
            sha256={path.name: sha256(path) for path in sorted(partial.iterdir())},
            agreement={},
            made_with=versions | {"driftscore": __version__},
        )
        agreement = _compare(reference, Export(partial, manifest), clips)
        manifest = msgspec.structs.replace(manifest, agreement=agreement)
        content = msgspec.structs.asdict(manifest) | {"model": asdict(description)}
        # It is written last: a folder without a manifest is not an export.
        text = json.dumps(content, indent=1) + "\n"
        (partial / "manifest.json").write_text(text, encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        partial.replace(target)
    except OSError as error:
        raise WriteError(f"Cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Export(target, manifest)


def _write_graphs(reference: Clap, home: Path, *, int8: bool) -> None:
    """Write the graphs, the tokenizer, and a probe with the embeddings that torch gives it."""
    model = cast(TorchTowers, reference.towers).model
    config, tensors = model.config.to_dict(), tensors_of(model)
    # A window of noise, a short tone (which is repeated) and a quiet sweep.
    length = reference.mel.length
    time = np.arange(length) / reference.mel.rate
    noise = 0.1 * np.random.default_rng(20_26).standard_normal(length)
    tone = 0.3 * np.sin(2 * np.pi * 440 * time[: length // 3])
    sweep = 0.002 * np.sin(2 * np.pi * (200 + 300 * time) * time)
    mels = np.stack([reference.features(part.astype(np.float32)) for part in (noise, tone, sweep)])
    sounds = np.stack([reference.encode(mel) for mel in mels])
    ids = _ids(config["text_config"]["vocab_size"], _PROBE_TOKENS)
    Probe(mels, sounds, ids, unit(reference.towers.text(ids))).save(home)
    shape = AudioShape.of(config["audio_config"], frames=mels.shape[1])
    (home / "audio.onnx").write_bytes(build_audio(tensors, shape))
    (home / "text.onnx").write_bytes(build_text(tensors, config["text_config"]))
    (home / "tokenizer.json").write_text(reference.tokenizer.to_str(), encoding="utf-8")
    if not int8:
        return
    with environment(ORT_DISABLE_TELEMETRY="1"):
        from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.disable(logging.WARNING)  # it recommends a step that these graphs do not need
    try:
        for path in (home / "audio.onnx", home / "text.onnx"):
            # Round the weights of every matrix product, with one scale per output. Seven bits:
            # without VNNI the eighth would overflow the 16 bit sums of two products.
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


def _ids(vocabulary: int, tokens: int) -> NDArray[np.int64]:
    """Return texts of random tokens between RoBERTa's marks for start (0) and end (2)."""
    rng = np.random.default_rng(tokens)
    ids = rng.integers(4, vocabulary, (TEXT_ROWS, tokens))
    ids[:, 0], ids[:, -1] = 0, 2
    return ids.astype(np.int64)


def _compare(reference: Clap, written: Export, clips: Sequence[Recording]) -> dict[str, float]:
    """Return how far the graphs are from torch; float32 must be within the tolerance."""
    towers = exported.open_towers(written)
    probe = Probe.load(written.home)
    batches = [_ids(int(probe.ids.max()) + 1, tokens) for tokens in _TOKENS]
    texts = np.concatenate([unit(reference.towers.text(ids)) for ids in batches])
    onnx_texts = np.concatenate([unit(towers.text(ids)) for ids in batches])
    mels, references = [*probe.log_mel], [*probe.audio]
    for clip in clips:
        for window in sounding_windows(clip, rate=reference.rate, seconds=reference.seconds):
            mels.append(reference.features(window.samples))
            references.append(reference.encode(mels[-1]))
    sounds = np.stack(references)
    onnx_sounds = unit(towers.audio(mels))
    agreement = {
        "text": float(np.abs(texts - onnx_texts).max()),
        "audio": float(np.abs(sounds - onnx_sounds).max()),
    }
    is_exact = written.manifest.precision == "fp32"
    if is_exact and not all(difference <= TOLERANCE for difference in agreement.values()):
        raise MismatchError(
            f"The exported towers differ from torch's by {max(agreement.values()):.1e} (allowed: "
            f"{TOLERANCE:.0e}), so the export was deleted; use --runtime torch, and "
            "please report the checkpoint"
        )
    for kind, rows, onnx_rows in (("audio", sounds, onnx_sounds), ("text", texts, onnx_texts)):
        cosines = (rows.astype(np.float64) * onnx_rows).sum(axis=1)
        agreement[f"{kind}_cosine"] = float(cosines.min())
    return agreement
