"""LAION CLAP and any other transformers CLAP, by hub id or local folder.

Deterministic, unlike the feature extractor of transformers: clips are cut into fixed windows (not
cropped at random), a fused checkpoint gets every window as not "longer" (not one per batch at
random), and no global random state is touched. Windows are encoded one by one and texts in batches
of a fixed shape, so that an embedding on the CPU does not depend on its neighbours, bit for bit.
Weights are read from safetensors only.

The two towers run in torch, the reference, or exported (`driftscore export`) in onnxruntime, which
needs no torch. Both give the same embeddings to 1e-4 and therefore share a fingerprint; their last
bits differ, so caches keep them apart (`cache_key`).
"""

import os
from importlib.util import find_spec
from pathlib import Path

from driftscore.backbones import hub
from driftscore.backbones.clap import exported, published
from driftscore.backbones.clap.model import Clap
from driftscore.backbones.devices import CPU
from driftscore.errors import UsageError

__all__ = ["DEFAULT", "KNOWN", "Clap", "accepts", "load"]

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


def accepts(spec: str) -> bool:
    """Return whether `spec` is a CLAP: a folder with its config or export, or a hub id."""
    name, _ = published.split_variant(spec)
    folder = hub.local_folder(name)
    if folder is not None and (folder / "config.json").is_file():
        return hub.model_type(folder) == "clap"
    return exported.is_export(Path(name)) or hub.is_hub_id(name)


def load(
    spec: str | os.PathLike[str] = DEFAULT,
    *,
    runtime: str = "auto",
    force: bool = False,
    device: str = "auto",
    batch_size: int | None = None,
) -> Clap:
    """Load a CLAP by hub id or folder; `force` loads one that is known to be broken.

    Batches are for torch; onnxruntime encodes windows one by one, on the CPU unless a device is
    named.
    """
    place = CPU if device == "auto" else device
    name, variant = published.split_variant(os.fspath(spec))
    if name in BROKEN and not force:
        raise UsageError(
            f"{name} is refused: {BROKEN[name]}. Use {KNOWN[1]}, or pass force=True to load it "
            "anyway"
        )
    export = None if runtime == "torch" or variant else exported.find(name)
    if export is not None:
        return exported.open_export(export, place)
    if _is_published(name, variant, runtime):
        if runtime == "torch":
            raise UsageError(f"{name} is a published ONNX export, which runs in onnxruntime only")
        return published.load_published(name, variant, place)
    if runtime == "onnx":
        raise UsageError(
            f"{name} has not been exported, which --runtime onnx needs: driftscore export {name}"
        )
    if exported.is_export(Path(name)):
        raise UsageError(f"{name} is an export: run it with --runtime onnx")
    from driftscore.backbones.clap.torch_towers import load_torch

    return load_torch(name, requested=runtime == "torch", device=device, batch_size=batch_size)


def _is_published(name: str, variant: str | None, runtime: str) -> bool:
    """Return whether a model is to be run on the ONNX graphs that were published with it.

    A model that has safetensors as well runs in torch, the reference, if torch is installed and
    nothing else is asked for.
    """
    if variant is not None or exported.is_export(Path(name)):
        return variant is not None
    folder = hub.local_folder(name)
    if folder is not None:
        files, has_checkpoint = published.files_of(folder), hub.is_checkpoint(folder)
    elif name in KNOWN or not hub.is_hub_id(name):
        return False
    else:
        files = hub.list_files(name)
        has_checkpoint = any(file.endswith(".safetensors") for file in files)
    without_torch = runtime == "onnx" or (runtime == "auto" and find_spec("torch") is None)
    return bool(published.variants_in(files)) and (without_torch or not has_checkpoint)
