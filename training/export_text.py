"""Export the text tower as one ONNX file: ids (1, n) -> tag-space vector (1, 527).

The graph is built node by node. Matrices are int8 with a scale per output column, converted to
float32 once when the session is created (Cast and Mul are constant-folded; a DequantizeLinear would
run for every text). The piece table stays packed (`training.text_vocabulary`), and only the rows of
a text are unpacked. The anchors and tau are part of the graph. Outputs: `embedding` (1, 527), and
`sentence` (1, 384) in MiniLM's space, for tests.

    python -m training.export_text
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, checker, helper, numpy_helper

from driftscore.storage.files import replacing, sha256
from training.text_corpus import REPOSITORY, WORK
from training.text_net import HEADS, HIDDEN, LAYERS, SENTENCE, Tower
from training.text_tower import load_anchors, load_tower
from training.text_vocabulary import GROUP, unpack

OUT = REPOSITORY / "src" / "driftscore" / "models" / "mini"
TAGS = 527
OPSET = 17
IR_VERSION = 8
NORM_EPSILON = 1e-5
FOUR_BIT_COLUMNS = 160
"""Bytes per piece in the second and third edition."""


class Graph:
    """A growing list of nodes and constants; every method returns the name of its output."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights = weights
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.stored: dict[str, str] = {}  # weight -> its constant; an int8 one's scale is the next

    def node(self, kind: str, *inputs: str, output: str = "", **settings: Any) -> str:
        """Add a node with one output."""
        name = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **settings))
        return name

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """Add a constant."""
        name = f"c{len(self.constants)}"
        array = np.array(value, dtype, order="C")
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def half(self, name: str, value: np.ndarray) -> str:
        """Add a constant stored as float16."""
        constant = self.stored[name] = self.constant(value, np.float16)
        return self.node("Cast", constant, to=TensorProto.FLOAT)

    def matrix(self, name: str) -> str:
        """Add a weight (out, in) as int8 (in, out) with a scale per output."""
        weight = self.weights[name].T
        scale = np.maximum(np.abs(weight).max(0), 1e-12) / 127
        stored = self.stored[name] = self.constant(np.rint(weight / scale), np.int8)
        return self.node(
            "Mul", self.node("Cast", stored, to=TensorProto.FLOAT), self.constant(scale)
        )

    def linear(self, x: str, name: str) -> str:
        """Apply a dense layer."""
        product = self.node("MatMul", x, self.matrix(f"{name}.weight"))
        return self.node("Add", product, self.plain(f"{name}.bias"))

    def plain(self, name: str) -> str:
        """Add a weight as float32."""
        constant = self.stored[name] = self.constant(self.weights[name])
        return constant

    def norm(self, x: str, name: str) -> str:
        """Apply a layer norm."""
        parts = (self.plain(f"{name}.{part}") for part in ("weight", "bias"))
        return self.node("LayerNormalization", x, *parts, epsilon=NORM_EPSILON, axis=-1)

    def take(self, x: str, index: int) -> str:
        """Take one slice along the first axis, without that axis."""
        return self.node("Gather", x, self.constant(index, np.int64), axis=0)

    def reshape(self, x: str, *sizes: int) -> str:
        """Reshape; 0 keeps a size."""
        return self.node("Reshape", x, self.constant(sizes, np.int64))

    def unit(self, x: str, output: str = "") -> str:
        """Scale rows to unit norm."""
        return self.node("Div", x, self.node("ReduceL2", x, axes=[1], keepdims=1), output=output)

    def look_up(self, packed: np.ndarray, scale: np.ndarray) -> str:
        """Return the pieces of `ids`, (1, n, columns), unpacked from 4 bits or by codebooks."""
        rows = self.node("Gather", self.constant(packed, np.uint8), "ids", axis=0)
        if scale.ndim == 3:
            groups, size, columns = scale.shape
            first = self.constant(size * np.arange(groups), np.int32)
            rows = self.node("Add", self.node("Cast", rows, to=TensorProto.INT32), first)
            books = self.constant(scale.reshape(-1, columns), np.float16)
            values = self.node("Gather", books, rows, axis=0)
            joined = self.reshape(values, 0, 0, groups * columns)
            return self.node("Cast", joined, to=TensorProto.FLOAT)
        both = self.node("Cast", rows, to=TensorProto.FLOAT)
        high = self.node("Floor", self.node("Mul", both, self.constant(1 / 16)))
        low = self.node("Sub", both, self.node("Mul", high, self.constant(16)))
        halves = self.node("Concat", low, high, axis=-1)
        return self.node("Mul", self.node("Sub", halves, self.constant(8)), self.constant(scale))

    def layer(self, x: str, name: str) -> str:
        """Apply one pre-norm transformer layer."""
        joined = self.linear(self.norm(x, f"{name}.norm_attention"), f"{name}.qkv")
        split = self.reshape(joined, 0, 0, 3, HEADS, HIDDEN // HEADS)
        parts = self.node("Transpose", split, perm=[2, 0, 3, 1, 4])
        query, key, value = (self.take(parts, index) for index in range(3))
        turned = self.node("Transpose", key, perm=[0, 1, 3, 2])
        scores = self.node(
            "Mul", self.node("MatMul", query, turned), self.constant((HIDDEN // HEADS) ** -0.5)
        )
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        merged = self.reshape(self.node("Transpose", mixed, perm=[0, 2, 1, 3]), 0, 0, HIDDEN)
        x = self.node("Add", x, self.linear(merged, f"{name}.out"))
        wide = self.node("Relu", self.linear(self.norm(x, f"{name}.norm_feed"), f"{name}.up"))
        return self.node("Add", x, self.linear(wide, f"{name}.down"))


def build(
    weights: dict[str, np.ndarray],
    packed: np.ndarray,
    scale: np.ndarray,
    anchors: np.ndarray,
    tau: float,
) -> Any:
    """Return the ONNX model."""
    return _finish(_build_graph(weights, packed, scale, anchors, tau), anchors.shape)


def read_exported(path: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the tower's weights and, by name, `packed`, `scale` and `anchors` of a text.onnx.

    The graph of an untrained tower is built once more, to find out which constant holds what.
    """
    constants = {c.name: numpy_helper.to_array(c) for c in onnx.load(str(path)).graph.initializer}
    tables = {"packed": constants["c0"], "scale": constants["c4"]}
    if tables["packed"].shape[1] != FOUR_BIT_COLUMNS:
        tables["scale"] = constants["c2"].reshape(tables["packed"].shape[1], 256, GROUP)
    empty = Tower(unpack(tables["packed"][:1], tables["scale"])).state_dict()
    weights = {name: value.numpy() for name, value in empty.items()}
    anchors = np.zeros((TAGS, SENTENCE), np.float32)
    graph = _build_graph(weights, tables["packed"], tables["scale"], anchors, 1.0)
    found: dict[str, np.ndarray] = {}
    for name, constant in graph.stored.items():
        value = constants[constant].astype(np.float32)
        if constants[constant].dtype == np.int8:
            value = (value * constants[f"c{int(constant[1:]) + 1}"]).T
        elif name == "anchors":  # float16 up to the fifth edition
            value = value.T
        found[name] = value
    tables["anchors"] = found.pop("anchors")
    missing = {name for name in weights if name not in found}
    if missing or any(found[name].shape != weights[name].shape for name in found):
        raise SystemExit(f"{path} is not a text tower of this shape: {sorted(missing)}")
    return found, tables


def _build_graph(
    weights: dict[str, np.ndarray],
    packed: np.ndarray,
    scale: np.ndarray,
    anchors: np.ndarray,
    tau: float,
) -> Graph:
    """Return the graph with all nodes."""
    graph = Graph({**weights, "anchors": anchors})
    pieces = graph.look_up(packed, scale)
    length = graph.node("Slice", graph.node("Shape", "ids"), *_bounds(graph, 1, 2))
    start, axis = graph.constant([0], np.int64), graph.constant([0], np.int64)
    place = graph.node("Slice", graph.half("position", weights["position"]), start, length, axis)
    x = graph.node("Add", graph.linear(pieces, "enter"), place)
    for index in range(LAYERS):
        x = graph.layer(x, f"layers.{index}")
    x = graph.norm(x, "norm")
    attention = graph.node("Softmax", graph.linear(x, "weigh"), axis=1)
    rows = graph.node("Transpose", attention, perm=[2, 0, 1])
    pooled, direct = (
        graph.node("Squeeze", graph.node("MatMul", _line(graph, rows, i), y), _axis(graph, 1))
        for i, y in enumerate((x, pieces))
    )
    both = graph.node("Add", graph.linear(pooled, "leave"), graph.linear(direct, "skip"))
    sentence = graph.unit(both, output="sentence")
    sharp = graph.node(
        "Mul", graph.node("MatMul", sentence, graph.matrix("anchors")), graph.constant(tau)
    )
    graph.unit(graph.node("Softmax", sharp, axis=-1), output="embedding")
    return graph


def _finish(graph: Graph, shape: tuple[int, ...]) -> Any:
    """Return the checked model; `shape` is that of the anchors."""
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "mini_text",
            [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "length"])],
            [
                helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [1, shape[0]]),
                helper.make_tensor_value_info("sentence", TensorProto.FLOAT, [1, shape[1]]),
            ],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="driftscore",
    )
    checker.check_model(model)
    return model


def _bounds(graph: Graph, start: int, end: int) -> tuple[str, str]:
    """Return start and end of a slice along the first axis."""
    return graph.constant([start], np.int64), graph.constant([end], np.int64)


def _axis(graph: Graph, axis: int) -> str:
    """Return an axis as a constant."""
    return graph.constant([axis], np.int64)


def _line(graph: Graph, rows: str, index: int) -> str:
    """Return one set of pooling weights as a row, (1, 1, n)."""
    return graph.node("Unsqueeze", graph.take(rows, index), _axis(graph, 1))


def export(work: Path, out: Path) -> None:
    """Write `text.onnx` and `tokenizer.json` of the tower in a work folder."""
    state = load_tower(work).state_dict()
    weights = {name: value.numpy() for name, value in state.items()}
    stored = np.load(work / "pieces.npz")
    anchors, tau = load_anchors(work)
    model = build(weights, stored["packed"], stored["scale"], anchors.numpy(), tau)
    graph, words = out / "text.onnx", out / "tokenizer.json"
    with replacing(graph) as partial:
        partial.write_bytes(model.SerializeToString())
    with replacing(words) as partial:
        partial.write_bytes((work / "tokenizer.json").read_bytes())
    for path in (graph, words):
        path.chmod(0o644)
        print(f"{path.name}: {path.stat().st_size} bytes, sha256 {sha256(path)}")


def main() -> None:
    """Export a tower."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    export(options.work, options.out)


if __name__ == "__main__":
    main()
