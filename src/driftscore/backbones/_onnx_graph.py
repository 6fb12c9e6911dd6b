"""ONNX graphs written node by node from a model's tensors: no exporter, no tracing, no torch.

Written so, a graph is the same bytes on every machine, holds only operators that every
runtime knows, and can be laid out for speed.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import FormatError, MissingExtraError

Tensors = Mapping[str, NDArray[Any]]
Value = tuple[str, type[np.generic], Sequence[int | str]]
"""An input or output: its name, its type and its shape."""


class Graph:
    """Nodes and constants as they are added; a method that adds returns its output's name."""

    def __init__(self, tensors: Tensors, *, model: str, extra: str) -> None:
        try:
            import onnx  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(f"Converting {model} to ONNX", extra) from error
        self.tensors = tensors
        self.model = model
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._known: dict[tuple[Any, ...], str] = {}

    def tensor(self, name: str) -> NDArray[Any]:
        """Return a weight, or say that the model lacks it."""
        if name not in self.tensors:
            raise FormatError(f"These are not the weights of {self.model}: no tensor {name!r}")
        return self.tensors[name]

    def node(self, kind: str, *inputs: str, out: str = "", **settings: Any) -> str:
        """Add a node with one output, named `out` if it is one of the graph's own."""
        from onnx import helper

        name = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **settings))
        return name

    def split(self, x: str, parts: int) -> list[str]:
        """Cut the first axis into equal parts."""
        from onnx import helper

        names = [f"v{len(self.nodes)}_{part}" for part in range(parts)]
        self.nodes.append(helper.make_node("Split", [x], names, axis=0, num_outputs=parts))
        return names

    def constant(self, value: NDArray[Any]) -> str:
        """Add a constant, once."""
        from onnx import numpy_helper

        whole = np.array(value, order="C")
        key = (whole.dtype.str, whole.shape, hashlib.sha256(whole.tobytes()).digest())
        if key not in self._known:
            self._known[key] = f"c{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(whole, self._known[key]))
        return self._known[key]

    def whole(self, *numbers: int) -> str:
        """Add whole numbers: a shape (0 keeps a size, -1 is worked out), axes or positions."""
        return self.constant(np.array(numbers, np.int64))

    def linear(self, x: str, *names: str) -> str:
        """Apply the dense layers `names` side by side: their outputs one after the other."""
        weight = np.concatenate([self.tensor(f"{name}.weight") for name in names])
        bias = np.concatenate([self.tensor(f"{name}.bias") for name in names])
        return self.dense(x, weight, bias)

    def dense(self, x: str, weight: NDArray[Any], bias: NDArray[Any]) -> str:
        """Multiply by a weight, (out, in) as torch keeps it, and add a bias."""
        product = self.node("MatMul", x, self.constant(weight.T))
        return self.node("Add", product, self.constant(bias))

    def norm(self, x: str, name: str, epsilon: float) -> str:
        """Apply a layer norm over the last axis."""
        weight, bias = (self.constant(self.tensor(f"{name}.{part}")) for part in ("weight", "bias"))
        return self.node("LayerNormalization", x, weight, bias, epsilon=epsilon, axis=-1)

    def serialised(
        self, name: str, ins: Sequence[Value], outs: Sequence[Value], *, opset: int, ir: int
    ) -> bytes:
        """Return the graph as an ONNX file."""
        from onnx import helper

        def value(name: str, kind: type[np.generic], shape: Sequence[int | str]) -> Any:
            element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
            return helper.make_tensor_value_info(name, element, list(shape))

        graph = helper.make_graph(
            self.nodes, name, [value(*v) for v in ins], [value(*v) for v in outs], self.constants
        )
        made = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=ir,
            producer_name="driftscore",
        )
        return bytes(made.SerializeToString())
