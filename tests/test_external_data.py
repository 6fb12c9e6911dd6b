"""The scanner of ONNX files against the onnx package: it finds every file that a graph names."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftscore.backbones.onnx.external_data import check_no_external_data, external_files
from driftscore.errors import FormatError

from .small_onnx_clap import text_graph, weights

onnx: Any = pytest.importorskip("onnx", reason="ONNX IS NOT INSTALLED")


def tensor(place: str) -> Any:
    made = onnx.numpy_helper.from_array(np.ones(3, np.float32), "t")
    made.data_location = onnx.TensorProto.EXTERNAL
    made.external_data.add(key="location", value=place)
    made.external_data.add(key="offset", value="0")
    return made


def test_files_are_found_wherever_a_tensor_can_be() -> None:
    model = text_graph(weights())
    helper = onnx.helper
    model.graph.initializer.append(tensor("initializer"))
    inner = helper.make_graph(
        [helper.make_node("Constant", [], ["x"], value=tensor("in a subgraph"))], "g", [], []
    )
    model.graph.node.append(helper.make_node("If", ["c"], ["y"], then_branch=inner))
    model.graph.node.append(helper.make_node("Odd", [], ["z"], many=[tensor("in a list")]))
    sparse = onnx.SparseTensorProto(values=tensor("sparse values"), indices=tensor("indices"))
    model.graph.sparse_initializer.append(sparse)
    node = helper.make_node("Constant", [], ["f"], value=tensor("in a function"))
    model.functions.append(
        helper.make_function("d", "F", [], ["f"], [node], [helper.make_opsetid("", 14)])
    )
    found = external_files(model.SerializeToString(), where="x")
    assert found == tuple(
        sorted(
            ("initializer", "in a subgraph", "in a list", "sparse values", "indices",
             "in a function")
        )
    )  # fmt: skip


def test_a_graph_of_its_own_has_none() -> None:
    graph = text_graph(weights()).SerializeToString()
    assert external_files(graph, where="x") == ()
    check_no_external_data(graph, where="x")


def test_an_export_of_ours_may_not_refer_to_other_files() -> None:
    model = text_graph(weights())
    model.graph.initializer.append(tensor("/etc/passwd"))
    with pytest.raises(FormatError, match="refers to another file"):
        check_no_external_data(model.SerializeToString(), where="x")


@given(st.binary(max_size=200), st.integers(0, 3000))
def test_damage_is_an_error_or_a_result_but_nothing_else(noise: bytes, at: int) -> None:
    graph = text_graph(weights()).SerializeToString()
    for content in (noise, graph[:at], graph[:at] + noise + graph[at + len(noise) :]):
        with suppress(FormatError):
            external_files(content, where="x")
