"""ONNX graphs by onnxruntime or OpenVINO, one thread each: a result never depends on the cores.

Callers run several clips or texts at once from threads of their own; a session may be
shared between them.
"""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def session(graph: bytes) -> Any:
    """Return an onnxruntime session that runs a graph on one thread of the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


class LazySession:
    """A session that is made when it is first run: where all is cached, it never is."""

    def __init__(self, graph: bytes) -> None:
        self._graph = graph
        self._session: Any = None
        self._making = threading.Lock()

    def run(self, outputs: list[str], inputs: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Run the graph, as an onnxruntime session does."""
        with self._making:
            self._session = self._session or session(self._graph)
        answers: list[NDArray[Any]] = self._session.run(outputs, inputs)
        return answers


class OnnxRun:
    """A graph with one input and one output in onnxruntime: call it with an array."""

    def __init__(self, graph: bytes) -> None:
        self._session = session(graph)
        self._input = self._session.get_inputs()[0].name

    def __call__(self, value: NDArray[Any]) -> NDArray[np.float32]:
        """Return the graph's answer."""
        answer: NDArray[np.float32] = self._session.run(None, {self._input: value})[0]
        return answer


class OpenvinoRun:
    """The same in OpenVINO, in float32 whatever the machine would prefer."""

    def __init__(self, graph: bytes) -> None:
        import openvino

        core = openvino.Core()
        cores = os.cpu_count() or 1
        self._compiled = core.compile_model(
            core.read_model(graph, b""),
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": "f32",
                "INFERENCE_NUM_THREADS": cores,
                "NUM_STREAMS": cores,
            },
        )
        self._own = threading.local()

    def __call__(self, value: NDArray[Any]) -> NDArray[np.float32]:
        """Return the graph's answer; each thread has a request of its own."""
        if not hasattr(self._own, "request"):
            self._own.request = self._compiled.create_infer_request()
        answers = self._own.request.infer([value])
        answer: NDArray[np.float32] = next(iter(answers.values())).copy()
        return answer


def in_threads(
    function: Callable[[Item], Answer], items: Iterable[Item], *, at_once: int | None = None
) -> list[Answer]:
    """Return `function` of each item, in order, computed on all cores or `at_once` at a time."""
    with ThreadPoolExecutor(at_once or os.cpu_count() or 1) as pool:
        return list(pool.map(function, items))
