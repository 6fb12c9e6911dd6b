"""ONNX graphs written node by node from a model's tensors, without an exporter or torch.

A graph written this way has the same bytes on every machine, uses only operators that every
runtime supports, and can be arranged for speed.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import FormatError, MissingExtraError

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

Weight = NDArray[np.float32]
Tensors = Mapping[str, NDArray[np.generic]]
GraphValue = tuple[str, type[np.generic], Sequence[int | str]]
"""An input or output: its name, its type and its shape."""
Setting = int | float | Sequence[int]
"""An attribute of a node."""


class Graph:
    """The nodes and constants added so far; a method that adds returns its output's name."""

    def __init__(self, tensors: Tensors, *, model: str, extra: str) -> None:
        try:
            import onnx  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(f"Converting {model} to ONNX", extra) from error
        self.tensors = tensors
        self.model = model
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def tensor(self, name: str) -> Weight:
        """Return a weight; a missing one, or one that is not float32, is an error."""
        if name not in self.tensors:
            raise FormatError(f"These are not the weights of {self.model}: no tensor {name!r}")
        found = self.tensors[name]
        if found.dtype != np.float32:
            raise FormatError(f"The tensor {name!r} of {self.model} is {found.dtype}, not float32")
        return cast(Weight, found)

    def node(self, kind: str, *inputs: str, out: str = "", **settings: Setting) -> str:
        """Add a node with one output; `out` names it if it is an output of the graph."""
        from onnx import helper

        name = out or f"v{len(self.nodes)}"
        node = helper.make_node(kind, list(inputs), [name])
        # As `make_node` would add them, in the order of their names.
        node.attribute.extend(helper.make_attribute(*item) for item in sorted(settings.items()))
        self.nodes.append(node)
        return name

    def split(self, x: str, parts: int) -> list[str]:
        """Split the first axis into equal parts."""
        from onnx import helper

        names = [f"v{len(self.nodes)}_{part}" for part in range(parts)]
        self.nodes.append(helper.make_node("Split", [x], names, axis=0, num_outputs=parts))
        return names

    def constant(self, value: NDArray[np.generic]) -> str:
        """Add a constant; equal constants are stored once."""
        from onnx import numpy_helper

        array = np.array(value, order="C")
        key = (array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).digest())
        if key not in self._known:
            self._known[key] = f"c{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def integers(self, *numbers: int) -> str:
        """Add a list of integers: a shape (0 keeps a size, -1 infers it), axes or positions."""
        return self.constant(np.array(numbers, np.int64))

    def linear(self, x: str, *names: str) -> str:
        """Apply several dense layers to the same input and concatenate their outputs."""
        weight = np.concatenate([self.tensor(f"{name}.weight") for name in names])
        bias = np.concatenate([self.tensor(f"{name}.bias") for name in names])
        return self.dense(x, weight, bias)

    def dense(self, x: str, weight: Weight, bias: Weight) -> str:
        """Multiply by a weight, (out, in) as torch stores it, and add a bias."""
        product = self.node("MatMul", x, self.constant(weight.T))
        return self.node("Add", product, self.constant(bias))

    def norm(self, x: str, name: str, epsilon: float) -> str:
        """Apply a layer norm over the last axis."""
        weight, bias = (self.constant(self.tensor(f"{name}.{part}")) for part in ("weight", "bias"))
        return self.node("LayerNormalization", x, weight, bias, epsilon=epsilon, axis=-1)

    def serialise(
        self,
        name: str,
        ins: Sequence[GraphValue],
        outs: Sequence[GraphValue],
        *,
        opset: int,
        ir: int,
    ) -> bytes:
        """Return the graph as an ONNX file."""
        from onnx import ValueInfoProto, helper

        def described(value: GraphValue) -> ValueInfoProto:
            label, kind, shape = value
            element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
            return helper.make_tensor_value_info(label, element, list(shape))

        inputs, outputs = [described(value) for value in ins], [described(value) for value in outs]
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.constants)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=ir,
            producer_name="driftscore",
        )
        return bytes(model.SerializeToString())
