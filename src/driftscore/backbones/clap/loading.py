"""Which models are CLAPs, and which runtime a CLAP is loaded into."""

import os
from importlib.util import find_spec
from pathlib import Path

from driftscore.backbones import hub
from driftscore.backbones.clap import exported, onnx_towers, published
from driftscore.backbones.clap.model import Clap
from driftscore.errors import UsageError, unknown
from driftscore.reading import is_folder

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
RUNTIMES = ("auto", "torch", "onnx", "openvino")


def accepts(spec: str) -> bool:
    """Return whether `spec` is a CLAP: a folder with its config or export, or a hub id."""
    name, _ = published.split_variant(spec)
    folder = Path(name) if is_folder(name) else hub.cached_folder(name)
    if folder is not None and (folder / "config.json").is_file():
        return hub.model_type(folder) == "clap"
    if exported.is_export(Path(name)):
        return True
    return hub.is_hub_id(name)


def load(
    spec: str | os.PathLike[str] = DEFAULT, *, runtime: str = "auto", force: bool = False
) -> Clap:
    """Load a CLAP by hub id or folder; `force` loads one that is known to be broken."""
    name, variant = published.split_variant(os.fspath(spec))
    if runtime not in RUNTIMES:
        raise unknown("runtime", runtime, RUNTIMES)
    if name in BROKEN and not force:
        raise UsageError(
            f"{name} is refused: {BROKEN[name]}. Use {KNOWN[1]}, or pass force=True to load it "
            "anyway"
        )
    found = None if runtime == "torch" or variant else exported.find(name)
    if found is None and _is_published(name, variant, runtime):
        if runtime in ("torch", "openvino"):
            raise UsageError(f"{name} is a published ONNX export, which runs in onnxruntime only")
        return published.load_published(name, variant)
    if found is None:
        return _load_unexported(name, runtime)
    chosen, why = onnx_towers.choose(found, runtime)
    return Clap(
        onnx_towers.open_towers(found, chosen),
        found.description,
        onnx_towers.tokenizer_of(found),
        runtime=why,
    )


def _is_published(name: str, variant: str | None, runtime: str) -> bool:
    """Return whether a model is to be run on the ONNX graphs that were published with it.

    A model that has safetensors as well runs in torch, the reference, if torch is installed and
    nothing else is asked for.
    """
    if variant is not None:
        return True
    if exported.is_export(Path(name)):
        return False
    folder = Path(name) if is_folder(name) else hub.cached_folder(name)
    if folder is not None:
        graphs = bool(published.variants_in(published.files_of(folder)))
        if not graphs or not hub.is_checkpoint(folder):
            return graphs
    elif name in KNOWN or not hub.is_hub_id(name):
        return False
    else:
        files = hub.list_files(name)
        graphs = bool(published.variants_in(files))
        if not graphs or not any(file.endswith(".safetensors") for file in files):
            return graphs
    return runtime == "onnx" or (runtime == "auto" and find_spec("torch") is None)


def _load_unexported(name: str, runtime: str) -> Clap:
    """Load a checkpoint into torch, unless another runtime was requested."""
    if runtime in ("onnx", "openvino"):
        raise UsageError(
            f"{name} has not been exported, which --runtime {runtime} needs: "
            f"driftscore export {name}"
        )
    if exported.is_export(Path(name)):
        raise UsageError(f"{name} is an export: run it with --runtime onnx or openvino")
    return load_torch(name, requested=runtime == "torch")


def load_torch(name: str, *, requested: bool = True) -> Clap:
    """Load a CLAP into torch by hub id or folder; `requested` is for the note on the runtime."""
    from driftscore.backbones.clap.torch_towers import open_checkpoint

    towers, description, tokenizer = open_checkpoint(name)
    why = "torch, as requested" if requested else (
        f"torch: {name} has not been exported; `driftscore export {name}` makes it faster, and "
        "needs torch only once"
    )  # fmt: skip
    return Clap(towers, description, tokenizer, runtime=why)
