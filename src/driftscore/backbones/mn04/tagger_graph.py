"""mn04's network as an ONNX graph, written from its tensors.

MobileNetV3-Large at width 0.4 over (1, 1, 128, frames): a stem, fifteen inverted residual blocks, a
1x1 convolution, the mean over frequency and time (the 384-d embedding) and two linear layers (the
527 logits). Each batch norm is folded into the convolution before it:

    w' = w g / sqrt(var + eps),   b' = bias - mean g / sqrt(var + eps)
"""

from dataclasses import dataclass

import numpy as np

from driftscore.backbones.onnx.graph import Graph, Tensors

_EPSILON = 0.001
_OPSET = 17


@dataclass(frozen=True)
class _Block:
    """The settings of one inverted residual block; `expanded` and `out` are channels."""

    kernel: int
    expanded: int
    out: int
    squeeze: bool
    activation: str
    stride: int


_BLOCKS = (
    _Block(3, 8, 8, False, "Relu", 1),
    _Block(3, 24, 16, False, "Relu", 2),
    _Block(3, 32, 16, False, "Relu", 1),
    _Block(5, 32, 16, True, "Relu", 2),
    _Block(5, 48, 16, True, "Relu", 1),
    _Block(5, 48, 16, True, "Relu", 1),
    _Block(3, 96, 32, False, "HardSwish", 2),
    _Block(3, 80, 32, False, "HardSwish", 1),
    _Block(3, 72, 32, False, "HardSwish", 1),
    _Block(3, 72, 32, False, "HardSwish", 1),
    _Block(3, 192, 48, True, "HardSwish", 1),
    _Block(3, 272, 48, True, "HardSwish", 1),
    _Block(5, 272, 64, True, "HardSwish", 2),
    _Block(5, 384, 64, True, "HardSwish", 1),
    _Block(5, 384, 64, True, "HardSwish", 1),
)


class _Graph(Graph):
    """A graph with mn04's kinds of layers; each method adds one and returns its output."""

    def convolution(self, x: str, name: str, norm: str, *, stride: int = 1) -> str:
        """Add a convolution without bias with the batch norm that follows it folded in."""
        weight = self.tensor(f"{name}.weight").astype(np.float64)
        gain = self.tensor(f"{norm}.weight") / np.sqrt(
            self.tensor(f"{norm}.running_var").astype(np.float64) + _EPSILON
        )
        bias = self.tensor(f"{norm}.bias") - self.tensor(f"{norm}.running_mean") * gain
        out, per_group, kernel, _ = weight.shape
        return self.node(
            "Conv",
            x,
            self.constant((weight * gain[:, None, None, None]).astype(np.float32)),
            self.constant(bias.astype(np.float32)),
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=out if per_group == 1 and kernel > 1 and name != "features.0.0" else 1,
        )

    def activation(self, x: str, kind: str) -> str:
        """Add a relu or a hard swish, x clip(x + 3, 0, 6) / 6."""
        if kind == "Relu":
            return self.node("Relu", x)
        return self.node("Mul", x, self.node("HardSigmoid", x, alpha=1 / 6, beta=0.5))

    def gemm(self, x: str, name: str) -> str:
        """Add a linear layer over (1, channels)."""
        weight, bias = self.tensor(f"{name}.weight"), self.tensor(f"{name}.bias")
        return self.node("Gemm", x, self.constant(weight), self.constant(bias), transB=1)

    def squeeze_excite(self, x: str, name: str, channels: int) -> str:
        """Scale the channels by a gate computed from their means."""
        means = self.node("Flatten", self.node("GlobalAveragePool", x))
        hidden = self.node("Relu", self.gemm(means, f"{name}.fc1"))
        gate = self.node("Sigmoid", self.gemm(hidden, f"{name}.fc2"))
        return self.node("Mul", x, self.node("Reshape", gate, self.integers(1, channels, 1, 1)))

    def block(self, x: str, name: str, block: _Block, *, channels: int) -> str:
        """Add one inverted residual block with `channels` input channels."""
        y, part = x, 0
        if block.expanded != channels:
            y = self.convolution(y, f"{name}.{part}.0", f"{name}.{part}.1")
            y, part = self.activation(y, block.activation), part + 1
        y = self.convolution(y, f"{name}.{part}.0", f"{name}.{part}.1", stride=block.stride)
        y, part = self.activation(y, block.activation), part + 1
        if block.squeeze:
            y = self.squeeze_excite(y, f"{name}.{part}.conc_se_layers.0", block.expanded)
            part += 1
        y = self.convolution(y, f"{name}.{part}.0", f"{name}.{part}.1")
        return self.node("Add", x, y) if block.stride == 1 and block.out == channels else y


def build_onnx(tensors: Tensors) -> bytes:
    """Return an ONNX file with input `log_mel` and outputs `logits` and `embedding`."""
    graph = _Graph(tensors, model="mn04", extra="mn04")
    x = graph.convolution("log_mel", "features.0.0", "features.0.1", stride=2)
    x, channels = graph.activation(x, "HardSwish"), 8
    for number, block in enumerate(_BLOCKS, start=1):
        x = graph.block(x, f"features.{number}.block", block, channels=channels)
        channels = block.out
    x = graph.convolution(x, "features.16.0", "features.16.1")
    x = graph.node("GlobalAveragePool", graph.activation(x, "HardSwish"))
    embedding = graph.node("Flatten", x)
    x = graph.activation(graph.gemm(embedding, "classifier.2"), "HardSwish")
    logits = graph.gemm(x, "classifier.5")
    graph.node("Identity", embedding, out="embedding")
    graph.node("Identity", logits, out="logits")
    return graph.serialise(
        "mn04",
        [("log_mel", np.float32, (1, 1, 128, "frames"))],
        [("logits", np.float32, (1, 527)), ("embedding", np.float32, (1, 384))],
        opset=_OPSET,
        ir=8,
    )
