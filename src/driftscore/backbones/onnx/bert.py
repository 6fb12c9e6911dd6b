"""The layers of BERT in an ONNX graph, as MiniLM and the RoBERTa of CLAP use them.

Post-norm layers with exact GELU over x (rows, n, width). Every token attends to every other: texts
of one length are encoded together, so there is no padding and no mask.
"""

import numpy as np

from driftscore.backbones.onnx.graph import Graph

OPSET = 20
IR_VERSION = 9


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
    asking = x
    if first_only:
        asking = graph.node("Slice", x, graph.integers(0), graph.integers(1), graph.integers(1))
    query, key, value = _projections(graph, x, asking, f"{name}.attention.self", heads, width)
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


def _projections(
    graph: Graph, x: str, asking: str, name: str, heads: int, width: int
) -> tuple[str, str, str]:
    """Return queries of `asking`, and keys and values of `x`: each (rows, heads, n, size)."""
    if asking == x:
        query, key, value = _heads(graph, x, name, ("query", "key", "value"), heads, width)
        return query, key, value
    projected = graph.linear(asking, f"{name}.query")
    split = graph.node("Reshape", projected, graph.integers(0, 0, heads, width // heads))
    query = graph.node("Transpose", split, perm=[0, 2, 1, 3])
    key, value = _heads(graph, x, name, ("key", "value"), heads, width)
    return query, key, value


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
