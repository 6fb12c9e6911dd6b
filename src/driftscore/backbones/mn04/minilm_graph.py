"""all-MiniLM-L6-v2 as an ONNX graph, built from its tensors: ids (1, n) -> unit vector (1, d).

The mean over all tokens, scaled to unit norm: what sentence-transformers computes, for one text
without padding.
"""

import numpy as np

from driftscore.backbones.onnx.bert import IR_VERSION, OPSET, add_layer, embed_ids
from driftscore.backbones.onnx.graph import Graph, Tensors

NORM_EPSILON = 1e-12


def build_onnx(tensors: Tensors, *, layers: int, heads: int) -> bytes:
    """Return an ONNX file with input `ids` int64 (1, n) and output `embedding` (1, width)."""
    graph = Graph(tensors, model="all-MiniLM-L6-v2", extra="mn04")
    x = embed_ids(graph, "embeddings", first_position=0, epsilon=NORM_EPSILON)
    for index in range(layers):
        x = add_layer(graph, x, f"encoder.layer.{index}", heads=heads, epsilon=NORM_EPSILON)
    mean = graph.node("ReduceMean", x, graph.integers(1), keepdims=0)
    size = graph.node("ReduceL2", mean, graph.integers(1), keepdims=1)
    graph.node("Div", mean, size, out="embedding")
    width = graph.tensor("embeddings.word_embeddings.weight").shape[1]
    return graph.serialise(
        "sentence_encoder",
        [("ids", np.int64, (1, "length"))],
        [("embedding", np.float32, (1, width))],
        opset=OPSET,
        ir=IR_VERSION,
    )
