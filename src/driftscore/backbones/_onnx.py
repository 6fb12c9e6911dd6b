"""ONNX graphs by onnxruntime, one thread each: a result never depends on the machine's cores.

Callers run several clips or texts at once from threads of their own; a session may be
shared between them.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def session(graph: bytes) -> Any:
    """Return an onnxruntime session that runs a graph on one thread of the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def in_threads(function: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
    """Return `function` of each item, in order, computed on all cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(function, items))
