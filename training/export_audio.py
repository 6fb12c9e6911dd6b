"""Write the trained audio tower as the model files that ship: `python -m training.export_audio`.

Two ONNX files in `src/driftscore/models/mini/`:

- `audio.onnx`: `log_mel` (1, 1, 64, frames) -> `features` (1, 384, ceil(frames / 16))
- `pool.onnx`: `features` (1, 384, any number of frames) -> `embedding` (1, 527) of unit norm

The embedding of a clip is the second applied to all of the first's output; the embedding of a
window is the second applied to the window's frames. The weights are

    BLEND * moving average of the run + (1 - BLEND) * weights at the start of the run

if the run started from the first edition, else the moving average alone. The blend keeps more of
the clean accuracy and loses nothing in noise; BLEND was chosen on the validation set. The
statistics of the batch norms are estimated again after blending. Batch norms
are folded into the convolutions. Weights are stored as float16 and widened when a file is loaded,
so that sums are float32. Both files are checked against torch before they are moved into place.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from driftscore.files import replacing, sha256
from training.audio_net import TAGS, AudioTower, Residual, Shape, estimate_statistics
from training.audio_tower import CHECKPOINT, sample_mels
from training.collect import ROOT, WORK

HOME = ROOT.parent / "src" / "driftscore" / "models" / "mini"
TOLERANCE = 2e-3
BLEND = 0.85
_OPSET = 17


class Graph:
    """A growing list of ONNX nodes; each method adds one layer and returns its output's name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def node(self, kind: str, *inputs: str, **settings: Any) -> str:
        """Add a node and return the name of its only output."""
        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **settings))
        return output

    def weight(self, value: Tensor) -> str:
        """Add weights, stored as float16 and widened at load."""
        name = f"weight_{len(self.weights)}"
        half = value.detach().contiguous().numpy().astype(np.float16)
        self.weights.append(numpy_helper.from_array(half, name))
        return self.node("Cast", name, to=TensorProto.FLOAT)

    def convolution(self, x: str, layer: nn.Module) -> str:
        """Add a convolution, with its batch norm folded in if it has one."""
        if isinstance(layer, nn.Sequential):
            layer = fuse_conv_bn_eval(layer[0], layer[1])
        return self.node(
            "Conv",
            x,
            self.weight(layer.weight),
            self.weight(layer.bias),
            strides=list(layer.stride),
            pads=[*layer.padding, *layer.padding],
        )

    def residual(self, x: str, block: Residual) -> str:
        """Add a residual block."""
        y = self.convolution(self.node("Relu", self.convolution(x, block.first)), block.second)
        mean = self.node("ReduceMean", y, axes=[2], keepdims=1)
        hidden = self.node("Relu", self.convolution(mean, block.gate[0]))
        gate = self.node("Sigmoid", self.convolution(hidden, block.gate[2]))
        return self.node("Relu", self.node("Add", x, self.node("Mul", y, gate)))

    def model(self, name: str, inward: list[Any], outward: list[Any]) -> onnx.ModelProto:
        """Return the finished model; `inward` and `outward` are (name, *shape)."""
        values = [
            [helper.make_tensor_value_info(side[0], TensorProto.FLOAT, side[1:])]
            for side in (inward, outward)
        ]
        model = helper.make_model(
            helper.make_graph(self.nodes, name, *values, self.weights),
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=8,
            producer_name="driftscore",
        )
        onnx.checker.check_model(model)
        return model


def build_features(tower: AudioTower) -> onnx.ModelProto:
    """Return the part from the log-mel to frame features."""
    graph, x = Graph(), "log_mel"
    for layer in tower.maps:
        if isinstance(layer, Residual):
            x = graph.residual(x, layer)
        elif isinstance(layer, nn.ReLU):
            x = graph.node("Relu", x)
        else:
            x = graph.convolution(x, layer)
    x = graph.node("Relu", graph.convolution(x, tower.collapse))
    axes = numpy_helper.from_array(np.array([2], dtype=np.int64), "band")
    graph.weights.append(axes)
    graph.nodes.append(helper.make_node("Squeeze", [x, "band"], ["features"]))
    channels = tower.collapse[0].out_channels
    return graph.model(
        "driftscore-mini-audio", ["log_mel", 1, 1, 64, "frames"], ["features", 1, channels, None]
    )


def build_pool(tower: AudioTower) -> onnx.ModelProto:
    """Return the part from the frame features of a window to its embedding."""
    graph = Graph()
    mean = graph.node("ReduceMean", "features", axes=[2], keepdims=0)
    largest = graph.node("ReduceMax", "features", axes=[2], keepdims=0)
    pooled = graph.node("Concat", mean, largest, axis=1)
    weights = graph.weight(tower.tags.weight), graph.weight(tower.tags.bias)
    tags = graph.node("Gemm", pooled, *weights, transB=1)
    graph.nodes.append(helper.make_node("LpNormalization", [tags], ["embedding"], axis=1, p=2))
    channels = tower.collapse[0].out_channels
    return graph.model(
        "driftscore-mini-pool", ["features", 1, channels, "frames"], ["embedding", 1, TAGS]
    )


@torch.no_grad()
def largest_difference(tower: AudioTower, audio: Path, pool: Path) -> float:
    """Return the largest difference to torch on held-out clips of 1 to 5 seconds."""
    providers = ["CPUExecutionProvider"]
    first = onnxruntime.InferenceSession(audio, providers=providers)
    second = onnxruntime.InferenceSession(pool, providers=providers)
    with np.load(WORK / "validation.npz") as file:
        mels = file["mel"][:50].astype(np.float32)[:, None]
    worst = 0.0
    for number, mel in enumerate(mels):
        part = np.ascontiguousarray(mel[None, :, :, : 64 + 5 * number])
        features = first.run(None, {"log_mel": part})[0]
        ours = second.run(None, {"features": features})[0]
        theirs = functional.normalize(tower(torch.from_numpy(part)), dim=1).numpy()
        worst = max(worst, float(np.abs(ours - theirs).max()))
    return worst


def blended(saved: dict[str, Any], share: float) -> AudioTower:
    """Return the tower with `share` of the trained weights and the rest from the start."""
    weights = dict(saved["average"])
    for name, value in saved["start"].items():
        if value.is_floating_point():
            weights[name] = torch.lerp(value, weights[name], share)
    tower = AudioTower(Shape(**saved["shape"]))
    tower.load_state_dict(weights)
    if saved["start"]:
        estimate_statistics(tower, sample_mels(256))
    return tower.eval()


def main() -> None:
    """Export the weights of the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--home", type=Path, default=HOME)
    parser.add_argument("--blend", type=float, default=BLEND, help="share of trained weights")
    settings = parser.parse_args()
    saved = torch.load(settings.checkpoint, weights_only=True)
    tower = blended(saved, settings.blend)
    audio, pool = settings.home / "audio.onnx", settings.home / "pool.onnx"
    with replacing(audio) as new_audio, replacing(pool) as new_pool:
        new_audio.write_bytes(build_features(tower).SerializeToString())
        new_pool.write_bytes(build_pool(tower).SerializeToString())
        difference = largest_difference(tower, new_audio, new_pool)
        if difference > TOLERANCE:
            raise SystemExit(f"the exported model differs from torch by {difference:.1e}")
    for path in (audio, pool):
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, sha256 {sha256(path)[:12]}")
    print(f"{difference:.1e} from torch; trained on {saved['examples']} examples")


if __name__ == "__main__":
    main()
