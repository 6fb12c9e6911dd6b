"""BERT as an ONNX graph, built from a sentence encoder's tensors: ids (1, n) -> unit vector (1, d).

Post-norm layers, exact GELU, the mean over all tokens, unit norm: what sentence-transformers does
with all-MiniLM-L6-v2, for one text without padding.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import FormatError, MissingExtraError

Tensors = Mapping[str, NDArray[Any]]
OPSET = 20
IR_VERSION = 9
NORM_EPSILON = 1e-12


class _Graph:
    """Nodes and constants as they are added; every method returns the name of its output."""

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, kind: str, *inputs: str, **settings: Any) -> str:
        """Add a node with one output."""
        from onnx import helper

        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **settings))
        return name

    def constant(self, value: NDArray[Any]) -> str:
        """Add a constant."""
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def tensor(self, name: str) -> NDArray[Any]:
        """Return a weight, or say that the file lacks it."""
        if name not in self.tensors:
            raise FormatError(f"The sentence encoder's file has no tensor {name!r}")
        return self.tensors[name]

    def linear(self, x: str, *names: str) -> str:
        """Apply the dense layers `names` side by side: their outputs one after the other."""
        weight = np.concatenate([self.tensor(f"{name}.weight") for name in names])
        bias = np.concatenate([self.tensor(f"{name}.bias") for name in names])
        product = self.node("MatMul", x, self.constant(weight.T))
        return self.node("Add", product, self.constant(bias))

    def norm(self, x: str, name: str) -> str:
        """Apply a layer norm."""
        weight, bias = (self.constant(self.tensor(f"{name}.{part}")) for part in ("weight", "bias"))
        return self.node("LayerNormalization", x, weight, bias, epsilon=NORM_EPSILON, axis=-1)

    def shape(self, *sizes: int) -> str:
        """Add a shape; 0 keeps a size, -1 is worked out."""
        return self.constant(np.array(sizes, np.int64))

    def layer(self, x: str, name: str, heads: int, width: int) -> str:
        """Apply one transformer layer to x (1, n, width)."""
        attention = f"{name}.attention.self"
        joined = self.linear(x, *(f"{attention}.{part}" for part in ("query", "key", "value")))
        split = self.node("Reshape", joined, self.shape(0, 0, 3, heads, width // heads))
        parts = self.node("Transpose", split, perm=[2, 0, 3, 1, 4])
        query, key, value = (
            self.node("Gather", parts, self.constant(np.array(i, np.int64)), axis=0)
            for i in range(3)
        )
        turned = self.node("Transpose", key, perm=[0, 1, 3, 2])
        scale = self.constant(np.array((width // heads) ** -0.5, np.float32))
        scores = self.node("Mul", self.node("MatMul", query, turned), scale)
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        merged = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        flat = self.node("Reshape", merged, self.shape(0, 0, width))
        attended = self.linear(flat, f"{name}.attention.output.dense")
        x = self.norm(self.node("Add", attended, x), f"{name}.attention.output.LayerNorm")
        wide = self.node("Gelu", self.linear(x, f"{name}.intermediate.dense"))
        narrow = self.linear(wide, f"{name}.output.dense")
        return self.norm(self.node("Add", narrow, x), f"{name}.output.LayerNorm")


def build_onnx(tensors: Tensors, *, layers: int, heads: int) -> bytes:
    """Return the serialised graph: `ids` int64 (1, n) in, `embedding` float32 (1, width) out."""
    try:
        from onnx import TensorProto, helper
    except ImportError as error:
        raise MissingExtraError("Running all-MiniLM-L6-v2", "mn04") from error
    graph = _Graph(tensors)
    words = graph.tensor("embeddings.word_embeddings.weight")
    places = graph.tensor("embeddings.position_embeddings.weight")
    kinds = graph.tensor("embeddings.token_type_embeddings.weight")
    width = words.shape[1]
    length = graph.node("Shape", "ids", start=1, end=2)
    start, axis = graph.shape(0), graph.shape(0)
    place = graph.node("Slice", graph.constant(places + kinds[0]), start, length, axis)
    word = graph.node("Gather", graph.constant(words), "ids", axis=0)
    x = graph.norm(graph.node("Add", word, place), "embeddings.LayerNorm")
    for index in range(layers):
        x = graph.layer(x, f"encoder.layer.{index}", heads, width)
    mean = graph.node("ReduceMean", x, graph.shape(1), keepdims=0)
    size = graph.node("ReduceL2", mean, graph.shape(1), keepdims=1)
    graph.nodes.append(helper.make_node("Div", [mean, size], ["embedding"]))
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "sentence_encoder",
            [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "length"])],
            [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [1, width])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    return bytes(model.SerializeToString())
