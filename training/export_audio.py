"""Write a trained audio tower as model files: `python -m training.export_audio`.

Two ONNX files, by default in the training folder's `export/`; `--home` names another folder:

- `audio.onnx`: `log_mel` (1, 1, 128, frames) -> `features` (1, 384, ceil(frames / 32))
- `pool.onnx`: `features` (1, 384, any number of frames) -> `embedding` (1, 527) of unit norm

The embedding of a clip is the second applied to all of the first's output; the embedding of a
window is the second applied to the window's frames. The weights are the moving average of the
checkpoint `level.pt`, or of `decay.pt` with `--decayed`. Batch norms are folded into the
convolutions. Weights are stored as float16 and widened when a file is loaded, so that sums are
float32. Both files are checked against torch before they are moved into place.
"""

import argparse
from functools import partial
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
    CHANNELS,
    GATE_COLUMNS,
    MELS,
    REACH,
    TAGS,
    AudioTower,
    Inverted,
)
from training.audio_tower import DECAY, LEVEL
from training.collect import WORK
from training.product import CONTEXT_S, FRONT_END, MODEL_HOME, replacing, sha256

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

    def hardswish(self, x: str) -> str:
        """Add x * hardsigmoid(x), which is faster than the operator HardSwish."""
        return self.node("Mul", x, self.node("HardSigmoid", x, alpha=1 / 6, beta=0.5))

    def inverted(self, x: str, block: Inverted) -> str:
        """Add an inverted residual."""
        active = self.hardswish if block.smooth else partial(self.node, "Relu")
        y = x if block.widen is None else active(self.convolution(x, block.widen))
        y = active(self.convolution(y, block.each))
        if block.gate is not None:
            mean, half = self.node("ReduceMean", y, axes=[2], keepdims=1), GATE_COLUMNS // 2
            around = self.node(
                "AveragePool", mean, kernel_shape=[1, GATE_COLUMNS], pads=[0, half, 0, half]
            )
            hidden = self.node("Relu", self.convolution(around, block.gate[1]))
            gate = self.node("Sigmoid", self.convolution(hidden, block.gate[3]))
            y = self.node("Mul", y, gate)
        y = self.convolution(y, block.mix)
        return self.node("Add", x, y) if block.added else y

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
    graph = Graph()
    x = graph.hardswish(graph.convolution("log_mel", tower.stem))
    for block in (block for stage in tower.stages for block in stage):
        x = graph.inverted(x, block)
    x = graph.hardswish(graph.convolution(x, tower.head))
    graph.nodes.append(helper.make_node("ReduceMean", [x], ["features"], axes=[2], keepdims=0))
    return graph.model(
        "driftscore-mini-audio", ["log_mel", 1, 1, MELS, "frames"], ["features", 1, CHANNELS, None]
    )


def build_pool(tower: AudioTower) -> onnx.ModelProto:
    """Return the part from the frame features of a window to its embedding."""
    graph = Graph()
    names = [graph.weight(value) for value in tower.pool_weights()]
    inner, inner_bias, outer, hidden, hidden_bias, tags, tags_bias = names
    mean = graph.node("ReduceMean", "features", axes=[2], keepdims=0)
    scores = graph.node("Tanh", graph.node("Conv", "features", inner, inner_bias))
    shares = graph.node("Softmax", graph.node("Conv", scores, outer), axis=2)
    axes = numpy_helper.from_array(np.array([2], dtype=np.int64), "time")
    graph.weights.append(axes)
    attended = graph.node("ReduceSum", graph.node("Mul", "features", shares), "time", keepdims=0)
    largest = graph.node("ReduceMax", "features", axes=[2], keepdims=0)
    inputs = graph.node("Concat", mean, attended, largest, axis=1)
    step = graph.hardswish(graph.node("Gemm", inputs, hidden, hidden_bias, transB=1))
    row = graph.node("Gemm", step, tags, tags_bias, transB=1)
    graph.nodes.append(helper.make_node("LpNormalization", [row], ["embedding"], axis=1, p=2))
    return graph.model(
        "driftscore-mini-pool", ["features", 1, CHANNELS, "frames"], ["embedding", 1, TAGS]
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


def check_context() -> None:
    """Raise an error if the package takes less context for a frame than the tower looks at."""
    if (REACH + 2) * FRONT_END.hop / FRONT_END.rate > CONTEXT_S:
        raise SystemExit(
            f"A frame of this tower depends on {REACH} log-mel frames to each side: first set "
            "CONTEXT_S in src/driftscore/backbones/mini.py accordingly, or export to another folder"
        )


def main() -> None:
    """Export the moving average of a checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--decayed", action="store_true", help="export decay.pt, not level.pt")
    parser.add_argument("--home", type=Path, default=WORK / "export", help="folder to write to")
    settings = parser.parse_args()
    if settings.home.resolve() == MODEL_HOME:
        check_context()
    saved = torch.load(DECAY if settings.decayed else LEVEL, weights_only=True)
    tower = AudioTower()
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
