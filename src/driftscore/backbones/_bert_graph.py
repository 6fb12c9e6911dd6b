"""BERT's layers in an ONNX graph: what MiniLM and CLAP's RoBERTa are made of.

Post-norm layers with exact GELU over x (rows, n, width), every token seen by every other:
texts of one length go together, so nothing is padded and nothing masked.
"""

import numpy as np

from driftscore.backbones._onnx_graph import Graph

OPSET = 20
IR_VERSION = 9


def embed_ids(graph: Graph, name: str, *, first_place: int, epsilon: float) -> str:
    """Embed the input `ids` (rows, n): words, places counted from `first_place`, one kind."""
    words, places, kinds = (
        graph.tensor(f"{name}.{kind}_embeddings.weight")
        for kind in ("word", "position", "token_type")
    )
    length = graph.node("Shape", "ids", start=1, end=2)
    start, axis = graph.whole(0), graph.whole(0)
    place = graph.node(
        "Slice", graph.constant(places[first_place:] + kinds[0]), start, length, axis
    )
    word = graph.node("Gather", graph.constant(words), "ids", axis=0)
    return graph.norm(graph.node("Add", word, place), f"{name}.LayerNorm", epsilon)


def add_layer(
    graph: Graph, x: str, name: str, *, heads: int, epsilon: float, first_only: bool = False
) -> str:
    """Apply one layer; `first_only` returns the first token alone, all that a pooler reads."""
    attention = f"{name}.attention.self"
    width = graph.tensor(f"{attention}.query.weight").shape[0]
    asking = x
    if first_only:
        asking = graph.node("Slice", x, graph.whole(0), graph.whole(1), graph.whole(1))
        query = graph.node(
            "Transpose", _split(graph, graph.linear(asking, f"{attention}.query"), heads, width),
            perm=[0, 2, 1, 3],
        )  # fmt: skip
        joined, parts = graph.linear(x, f"{attention}.key", f"{attention}.value"), 2
    else:
        names = (f"{attention}.{part}" for part in ("query", "key", "value"))
        joined, parts = graph.linear(x, *names), 3
    split = graph.node("Reshape", joined, graph.whole(0, 0, parts, heads, width // heads))
    turned = graph.node("Transpose", split, perm=[2, 0, 3, 1, 4])
    found = [
        graph.node("Gather", turned, graph.constant(np.array(i, np.int64)), axis=0)
        for i in range(parts)
    ]
    if not first_only:
        query = found[0]
    key, value = found[-2:]
    scale = graph.constant(np.array((width // heads) ** -0.5, np.float32))
    likeness = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 1, 3, 2]))
    weights = graph.node("Softmax", graph.node("Mul", likeness, scale), axis=-1)
    merged = graph.node("Transpose", graph.node("MatMul", weights, value), perm=[0, 2, 1, 3])
    flat = graph.node("Reshape", merged, graph.whole(0, 0, width))
    attended = graph.linear(flat, f"{name}.attention.output.dense")
    x = graph.norm(
        graph.node("Add", attended, asking), f"{name}.attention.output.LayerNorm", epsilon
    )
    wide = graph.node("Gelu", graph.linear(x, f"{name}.intermediate.dense"))
    narrow = graph.linear(wide, f"{name}.output.dense")
    return graph.norm(graph.node("Add", narrow, x), f"{name}.output.LayerNorm", epsilon)


def _split(graph: Graph, x: str, heads: int, width: int) -> str:
    return graph.node("Reshape", x, graph.whole(0, 0, heads, width // heads))
