"""Which models are CLAPs, and which runtime a CLAP is loaded into."""

import json
import os
from pathlib import Path

from driftscore.backbones.clap import exported, onnx_towers
from driftscore.backbones.clap.model import Clap
from driftscore.errors import UsageError, unknown

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
    config = Path(spec) / "config.json"
    if config.is_file():
        return _model_type(config) == "clap"
    if exported.is_export(Path(spec)):
        return True
    return spec.count("/") == 1 and not spec.startswith((".", "/", "~")) and not Path(spec).exists()


def _model_type(config: Path) -> object:
    """Return what a checkpoint's config says that it is; None if the config cannot be read."""
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content.get("model_type") if isinstance(content, dict) else None


def load(
    spec: str | os.PathLike[str] = DEFAULT, *, runtime: str = "auto", force: bool = False
) -> Clap:
    """Load a CLAP by hub id or folder; `force` loads one that is known to be broken."""
    name = os.fspath(spec)
    if runtime not in RUNTIMES:
        raise unknown("runtime", runtime, RUNTIMES)
    if name in BROKEN and not force:
        raise UsageError(
            f"{name} is refused: {BROKEN[name]}. Use {KNOWN[1]}, or pass force=True to load it "
            "anyway"
        )
    found = None if runtime == "torch" else exported.find(name)
    if found is None:
        return _load_unexported(name, runtime)
    chosen, why = onnx_towers.choose(found, runtime)
    return Clap(
        onnx_towers.open_towers(found, chosen),
        found.description,
        onnx_towers.tokenizer_of(found),
        runtime=why,
    )


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
