"""ONNX graphs written node by node from a model's tensors, without an exporter or torch.

A graph written this way has the same bytes on every machine, uses only operators that every
runtime supports, and can be arranged for speed. Below the class are the layers of BERT, as MiniLM
and the RoBERTa of CLAP use them: post-norm layers with exact GELU over x (rows, n, width). Every
token attends to every other: texts of one length are encoded together, without padding or mask.
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
        weight = self.tensors[name]
        if weight.dtype != np.float32:
            raise FormatError(f"The tensor {name!r} of {self.model} is {weight.dtype}, not float32")
        return cast(Weight, weight)

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
        opset: int = 20,
        ir: int = 9,
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


def embed_ids(graph: Graph, name: str, *, first_position: int, epsilon: float) -> str:
    """Embed the input `ids` (rows, n): words, positions from `first_position`, token type 0."""
    words, positions, types = (
        graph.tensor(f"{name}.{kind}_embeddings.weight")
        for kind in ("word", "position", "token_type")
    )
    length = graph.node("Shape", "ids", start=1, end=2)
    start, axis = graph.integers(0), graph.integers(0)
    position = graph.node(
        "Slice", graph.constant(positions[first_position:] + types[0]), start, length, axis
    )
    word = graph.node("Gather", graph.constant(words), "ids", axis=0)
    return graph.norm(graph.node("Add", word, position), f"{name}.LayerNorm", epsilon)


def add_layer(
    graph: Graph, x: str, name: str, *, heads: int, epsilon: float, first_only: bool = False
) -> str:
    """Apply one layer; `first_only` computes the first token only, which is all a pooler reads."""
    width = graph.tensor(f"{name}.attention.self.query.weight").shape[0]
    asking, attention = x, f"{name}.attention.self"
    if first_only:
        asking = graph.node("Slice", x, graph.integers(0), graph.integers(1), graph.integers(1))
        projected = graph.linear(asking, f"{attention}.query")
        split = graph.node("Reshape", projected, graph.integers(0, 0, heads, width // heads))
        query = graph.node("Transpose", split, perm=[0, 2, 1, 3])
        key, value = _heads(graph, x, attention, ("key", "value"), heads, width)
    else:
        query, key, value = _heads(graph, x, attention, ("query", "key", "value"), heads, width)
    scale = graph.constant(np.array((width // heads) ** -0.5, np.float32))
    similarity = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 1, 3, 2]))
    weights = graph.node("Softmax", graph.node("Mul", similarity, scale), axis=-1)
    merged = graph.node("Transpose", graph.node("MatMul", weights, value), perm=[0, 2, 1, 3])
    flat = graph.node("Reshape", merged, graph.integers(0, 0, width))
    attended = graph.linear(flat, f"{name}.attention.output.dense")
    x = graph.norm(
        graph.node("Add", attended, asking), f"{name}.attention.output.LayerNorm", epsilon
    )
    wide = graph.node("Gelu", graph.linear(x, f"{name}.intermediate.dense"))
    narrow = graph.linear(wide, f"{name}.output.dense")
    return graph.norm(graph.node("Add", narrow, x), f"{name}.output.LayerNorm", epsilon)


def _heads(
    graph: Graph, x: str, name: str, parts: tuple[str, ...], heads: int, width: int
) -> list[str]:
    """Return the projections `parts` of `x`, computed in one product and split into heads."""
    joined = graph.linear(x, *(f"{name}.{part}" for part in parts))
    shape = graph.integers(0, 0, len(parts), heads, width // heads)
    turned = graph.node("Transpose", graph.node("Reshape", joined, shape), perm=[2, 0, 3, 1, 4])
    return [
        graph.node("Gather", turned, graph.constant(np.array(i, np.int64)), axis=0)
        for i in range(len(parts))
    ]
