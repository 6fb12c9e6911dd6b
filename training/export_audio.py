"""Write the trained audio tower as the model file that ships: `python -m training.export_audio`.

`src/driftscore/models/mini/audio.onnx`: `log_mel` (1, 1, 64, frames) in, `embedding` (1, 527)
out, of length one. Batch norms are folded into the convolutions. Weights are stored as float16
and widened when the file is loaded, so that the sums are float32. Checked against torch before
it is moved into place.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from driftscore.files import replacing, sha256
from training.audio_tower import CHECKPOINT, AudioTower, Residual, Shape
from training.collect import WORK
from training.evaluate import MODEL

_OPSET = 17


class Graph:
    """A growing list of ONNX nodes; each method adds one layer and returns its output."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, kind: str, *inputs: str, **settings: Any) -> str:
        """Add a node and return the name of its only output."""
        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **settings))
        return output

    def weight(self, value: Tensor) -> str:
        """Add weights, kept as float16 and widened at load."""
        name = f"weight_{len(self.constants)}"
        half = value.detach().contiguous().numpy().astype(np.float16)
        self.constants.append(numpy_helper.from_array(half, name))
        return self.node("Cast", name, to=TensorProto.FLOAT)

    def constant(self, value: npt.NDArray[Any]) -> str:
        """Add a constant as it is."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def convolution(self, x: str, pair: nn.Sequential) -> str:
        """Add a convolution with its batch norm folded in."""
        fused = fuse_conv_bn_eval(pair[0], pair[1])
        return self.node(
            "Conv",
            x,
            self.weight(fused.weight),
            self.weight(fused.bias),
            strides=list(fused.stride),
            pads=[*fused.padding, *fused.padding],
        )

    def linear(self, x: str, layer: nn.Linear) -> str:
        """Add a linear layer."""
        return self.node("Gemm", x, self.weight(layer.weight), self.weight(layer.bias), transB=1)

    def residual(self, x: str, block: Residual) -> str:
        """Add a residual block."""
        y = self.convolution(self.node("Relu", self.convolution(x, block.first)), block.second)
        means = self.node("Flatten", self.node("GlobalAveragePool", y))
        hidden = self.node("Relu", self.linear(means, block.gate[0]))
        gate = self.node("Sigmoid", self.linear(hidden, block.gate[2]))
        shape = self.constant(np.array([1, block.gate[2].out_features, 1, 1], dtype=np.int64))
        gated = self.node("Mul", y, self.node("Reshape", gate, shape))
        return self.node("Relu", self.node("Add", x, gated))


def build(tower: AudioTower) -> onnx.ModelProto:
    """Return the tower as an ONNX model."""
    graph, x = Graph(), "log_mel"
    for layer in tower.features:
        if isinstance(layer, Residual):
            x = graph.residual(x, layer)
        elif isinstance(layer, nn.ReLU):
            x = graph.node("Relu", x)
        else:
            x = graph.convolution(x, layer)
    x = graph.node("Relu", graph.convolution(x, tower.collapse))
    mean = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    largest = graph.node("Flatten", graph.node("GlobalMaxPool", x))
    tags = graph.linear(graph.node("Concat", mean, largest, axis=1), tower.tags)
    graph.nodes.append(helper.make_node("LpNormalization", [tags], ["embedding"], axis=1, p=2))
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "driftscore-mini-audio",
            [helper.make_tensor_value_info("log_mel", TensorProto.FLOAT, [1, 1, 64, "frames"])],
            [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [1, 527])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=8,
        producer_name="driftscore",
    )
    onnx.checker.check_model(model)
    return model


@torch.no_grad()
def largest_difference(tower: AudioTower, path: Path) -> float:
    """Return the largest difference to torch on held-out clips of 1 to 5 seconds."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with np.load(WORK / "validation.npz") as file:
        mels = file["mel"][:40].astype(np.float32)[:, None]
    worst = 0.0
    for number, mel in enumerate(mels):
        part = np.ascontiguousarray(mel[None, :, :, : 50 + 5 * number])
        ours = session.run(None, {"log_mel": part})[0]
        theirs = functional.normalize(tower(torch.from_numpy(part)), dim=1).numpy()
        worst = max(worst, float(np.abs(ours - theirs).max()))
    return worst


def main() -> None:
    """Export the averaged weights of the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--model", type=Path, default=MODEL)
    settings = parser.parse_args()
    saved = torch.load(settings.checkpoint, weights_only=True)
    tower = AudioTower(Shape(**saved["shape"]))
    tower.load_state_dict(saved["average"])
    tower.eval()
    with replacing(settings.model) as partial:
        partial.write_bytes(build(tower).SerializeToString())
        difference = largest_difference(tower, partial)
        if difference > 2e-3:
            raise SystemExit(f"the exported model differs from torch by {difference:.1e}")
    size = settings.model.stat().st_size / 1e6
    print(
        f"{settings.model.name}: {size:.2f} MB, {difference:.1e} from torch, "
        f"{saved['clips']} clips seen, sha256 {sha256(settings.model)[:12]}"
    )


if __name__ == "__main__":
    main()
