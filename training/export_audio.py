"""Write a trained audio tower as model files: `python -m training.export_audio`.

Two ONNX files, by default in the training folder's `export/`; `--home` names another folder:

- `audio.onnx`: `log_mel` (1, 1, 128, frames) -> `features` (1, 384, ceil(frames / 32))
- `pool.onnx`: `features` (1, 384, any number of frames) -> `embedding` (1, 527) of unit norm

The embedding of a clip is the second applied to all of the first's output; the embedding of a
window is the second applied to the window's frames. The weights are the moving average of the
checkpoint `level.pt`, or of `decay.pt` with `--decayed`. Batch norms are folded into the
convolutions. Weights are stored as float16 and widened when a file is loaded, so that sums are
float32. Both files are checked against torch before they are moved into place.

`--blend FOLDER --share 0.6` writes the mean of two exported towers instead, 0.6 of it the one in
`export/` and the rest that in FOLDER, with batch norm statistics of its own. A tower that was
trained on from another one can be blended with it: the blend keeps more of what each does well.
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

from training.audio_net import (
    MELS,
    TAGS,
    AudioTower,
    Residual,
    Separable,
    Shape,
    load_exported,
    pool_weights,
)
from training.audio_tower import DECAY, LEVEL, SEED
from training.collect import WORK
from training.mixtures import Bank, Mixer, Recipe
from training.product import replacing, sha256

TOLERANCE = 2e-3
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
            group=layer.groups,
        )

    def separable(self, x: str, block: Separable) -> str:
        """Add a separable block."""
        y = self.node("Relu", self.convolution(x, block.widen))
        y = self.convolution(self.node("Relu", self.convolution(y, block.each)), block.mix)
        return self.node("Relu", self.node("Add", x, y))

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
        elif isinstance(layer, Separable):
            x = graph.separable(x, layer)
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
        "driftscore-mini-audio", ["log_mel", 1, 1, MELS, "frames"], ["features", 1, channels, None]
    )


def build_pool(tower: AudioTower) -> onnx.ModelProto:
    """Return the part from the frame features of a window to its embedding."""
    graph = Graph()
    names = [graph.weight(value) for value in pool_weights(tower)]
    tags, tags_bias, inner, inner_bias, outer, hidden, hidden_bias, extra = names
    mean = graph.node("ReduceMean", "features", axes=[2], keepdims=0)
    largest = graph.node("ReduceMax", "features", axes=[2], keepdims=0)
    scores = graph.node("Tanh", graph.node("Conv", "features", inner, inner_bias))
    shares = graph.node("Softmax", graph.node("Conv", scores, outer), axis=2)
    axes = numpy_helper.from_array(np.array([2], dtype=np.int64), "time")
    graph.weights.append(axes)
    attended = graph.node("ReduceSum", graph.node("Mul", "features", shares), "time", keepdims=0)
    plain = graph.node("Concat", mean, largest, axis=1)
    inputs = graph.node("Concat", mean, largest, attended, axis=1)
    step = graph.node("Gemm", inputs, hidden, hidden_bias, transB=1)
    step = graph.node("Mul", step, graph.node("HardSigmoid", step, alpha=1 / 6, beta=0.5))
    linear = graph.node("Gemm", plain, tags, tags_bias, transB=1)
    row = graph.node("Gemm", step, extra, linear, transB=1)
    graph.nodes.append(helper.make_node("LpNormalization", [row], ["embedding"], axis=1, p=2))
    channels = tower.collapse[0].out_channels
    return graph.model(
        "driftscore-mini-pool", ["features", 1, channels, "frames"], ["embedding", 1, TAGS]
    )


@torch.no_grad()
def largest_difference(tower: AudioTower, audio: Path, pool: Path) -> float:
    """Return the largest difference to torch on random log-mels of 1 to 6 seconds."""
    providers = ["CPUExecutionProvider"]
    first = onnxruntime.InferenceSession(audio, providers=providers)
    second = onnxruntime.InferenceSession(pool, providers=providers)
    rng, worst = np.random.default_rng(1), 0.0
    for frames in range(100, 600, 10):
        part = rng.normal(-0.2, 0.6, size=(1, 1, MELS, frames)).astype(np.float32)
        features = first.run(None, {"log_mel": part})[0]
        ours = second.run(None, {"features": features})[0]
        theirs = functional.normalize(tower(torch.from_numpy(part)), dim=1).numpy()
        worst = max(worst, float(np.abs(ours - theirs).max()))
    return worst


def blended(first: Path, second: Path, share: float) -> AudioTower:
    """Return the mean of two exported towers, with statistics estimated anew."""
    mixer = Mixer(Bank(), Recipe(), SEED)
    mels = mixer.first_mels()
    towers = AudioTower(Shape()), AudioTower(Shape())
    for tower, home in zip(towers, (first, second), strict=True):
        load_exported(tower, home, mels)
    others = towers[1].state_dict()
    mean = {
        name: share * value + (1 - share) * others[name] if value.is_floating_point() else value
        for name, value in towers[0].state_dict().items()
    }
    tower = AudioTower(Shape())
    tower.load_state_dict(mean)
    for module in tower.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the mean over all batches
            module.reset_running_stats()
    with torch.no_grad():
        for number in range(3, 9):
            tower.train()(mixer[number].log_mel)
    return tower


def main() -> None:
    """Export the moving average of a checkpoint, or a blend of two exported towers."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--decayed", action="store_true", help="export decay.pt, not level.pt")
    parser.add_argument("--home", type=Path, default=WORK / "export", help="folder to write to")
    parser.add_argument("--blend", type=Path, help="folder of another exported tower")
    parser.add_argument("--share", type=float, default=0.6, help="share of the tower in export/")
    settings = parser.parse_args()
    if settings.blend:
        tower = blended(WORK / "export", settings.blend, settings.share)
    else:
        saved = torch.load(DECAY if settings.decayed else LEVEL, weights_only=True)
        tower = AudioTower(Shape(**saved["shape"]))
        tower.load_state_dict(saved["average"])
    tower.eval()
    settings.home.mkdir(parents=True, exist_ok=True)
    audio, pool = settings.home / "audio.onnx", settings.home / "pool.onnx"
    with replacing(audio) as new_audio, replacing(pool) as new_pool:
        new_audio.write_bytes(build_features(tower).SerializeToString())
        new_pool.write_bytes(build_pool(tower).SerializeToString())
        difference = largest_difference(tower, new_audio, new_pool)
        if difference > TOLERANCE:
            raise SystemExit(f"the exported model differs from torch by {difference:.1e}")
    for path in (audio, pool):
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, sha256 {sha256(path)[:12]}")
    print(f"{difference:.1e} from torch")


if __name__ == "__main__":
    main()
