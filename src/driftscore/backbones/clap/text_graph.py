"""CLAP's text tower as an ONNX graph: ids (rows, n), texts of one token length -> (rows, d).

The tower is a RoBERTa whose first token is pooled and projected into the joint space.
"""

import numpy as np

from driftscore.backbones.clap.config import TextConfig
from driftscore.backbones.onnx.bert import IR_VERSION, OPSET, add_layer, embed_ids
from driftscore.backbones.onnx.graph import Graph, Tensors
from driftscore.errors import FormatError


def build_text(tensors: Tensors, config: TextConfig) -> bytes:
    """Return an ONNX file with input `ids` (rows, n) and output `embedding` (rows, d), not unit."""
    if config["hidden_act"] != "gelu" or config["projection_hidden_act"] != "relu":
        raise FormatError(
            "The text tower of this checkpoint has activations other than gelu and relu, which the "
            "export does not support; use it with --runtime torch"
        )
    graph = Graph(tensors, model="CLAP", extra="export")
    model, heads = "text_model", config["num_attention_heads"]
    epsilon, layers = config["layer_norm_eps"], config["num_hidden_layers"]
    # RoBERTa counts positions from the one after the padding token's id.
    first = config["pad_token_id"] + 1
    x = embed_ids(graph, f"{model}.embeddings", first_position=first, epsilon=epsilon)
    for index in range(layers):
        last = index == layers - 1
        name = f"{model}.encoder.layer.{index}"
        x = add_layer(graph, x, name, heads=heads, epsilon=epsilon, first_only=last)
    token = graph.node("Squeeze", x, graph.integers(1))
    pooled = graph.node("Tanh", graph.linear(token, f"{model}.pooler.dense"))
    width = project(graph, pooled, "text_projection")
    return graph.serialise(
        "clap_text",
        [("ids", np.int64, ("rows", "length"))],
        [("embedding", np.float32, ("rows", width))],
        opset=OPSET,
        ir=IR_VERSION,
    )


def project(graph: Graph, x: str, name: str) -> int:
    """Add the two layers that project a tower into the joint space; return the width."""
    hidden = graph.node("Relu", graph.linear(x, f"{name}.linear1"))
    weight, bias = (graph.tensor(f"{name}.linear2.{part}") for part in ("weight", "bias"))
    product = graph.node("MatMul", hidden, graph.constant(weight.T))
    graph.node("Add", product, graph.constant(bias), out="embedding")
    return int(weight.shape[0])
