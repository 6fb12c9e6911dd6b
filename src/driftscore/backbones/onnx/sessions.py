"""ONNX graphs in onnxruntime or OpenVINO, one thread per call.

Results therefore do not depend on the number of cores. Callers run several windows or texts at the
same time from their own threads; a session can be shared between threads.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import DriftscoreError, FormatError
from driftscore.privacy import disable_openvino_telemetry

InputArray = NDArray[np.generic]
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class SessionValue(Protocol):
    """An input or output of a graph."""

    name: str
    type: str


class Session(Protocol):
    """The part of an onnxruntime session that is used."""

    def run(
        self, outputs: Sequence[str] | None, inputs: Mapping[str, InputArray]
    ) -> list[NDArray[np.float32]]:
        """Return the outputs named (None: all of them) for the inputs given."""

    def get_inputs(self) -> Sequence[SessionValue]:
        """Return the graph's inputs."""

    def get_outputs(self) -> Sequence[SessionValue]:
        """Return the graph's outputs."""


def open_session(graph: bytes, data: Mapping[str, bytes] | None = None) -> Session:
    """Return an onnxruntime session that runs a graph on one thread of the CPU.

    `data` is the content of the files that the graph refers to (see `external_data`), by name.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if data:
        names, contents = list(data), list(data.values())
        sizes = [len(content) for content in contents]
        options.add_external_initializers_from_files_in_memory(names, contents, sizes)
    with _running("cannot be loaded"):
        session: Session = onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"]
        )
    return session


@contextmanager
def _running(what: str) -> Iterator[None]:
    """Turn the errors of a runtime, which has classes of its own, into one of ours."""
    try:
        yield
    except DriftscoreError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise FormatError(
            f"A graph of the model {what} ({lines[0][:200]}); its files do not fit together"
        ) from error


class LazySession:
    """A session that is opened when it is first run, so it costs nothing if all rows are cached.

    `graph` is the ONNX file, or a function that returns it. A pickled or copied session holds
    `graph` only and is opened again on its next run.
    """

    def __init__(self, graph: bytes | Callable[[], bytes]) -> None:
        self._graph = graph
        self._session: Session | None = None
        self._opening = threading.Lock()

    def __reduce__(self) -> tuple[type["LazySession"], tuple[bytes | Callable[[], bytes]]]:
        return type(self), (self._graph,)

    def run(
        self, outputs: Sequence[str] | None, inputs: Mapping[str, InputArray]
    ) -> list[NDArray[np.float32]]:
        """Run the graph, as an onnxruntime session does."""
        session = self.open()
        with _running("cannot be run"):
            return session.run(outputs, inputs)

    def open(self) -> Session:
        """Return the session, opened if it was not."""
        with self._opening:
            if self._session is None:
                graph = self._graph
                self._session = open_session(graph if isinstance(graph, bytes) else graph())
            return self._session


class OnnxRun:
    """A graph with one input and one output in onnxruntime: call it with an array."""

    def __init__(self, graph: bytes) -> None:
        self._session = open_session(graph)
        with _running("has no input"):
            self._input = self._session.get_inputs()[0].name

    def __call__(self, value: InputArray) -> NDArray[np.float32]:
        """Return the graph's output."""
        with _running("cannot be run"):
            return self._session.run(None, {self._input: value})[0]


class OpenvinoRun:
    """The same in OpenVINO, in float32 even where the processor is faster in less."""

    def __init__(self, graph: bytes) -> None:
        disable_openvino_telemetry()
        import openvino

        core = openvino.Core()
        cores = os.cpu_count() or 1
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": cores,
            "NUM_STREAMS": cores,
        }
        with _running("cannot be loaded"):
            self._compiled = core.compile_model(core.read_model(graph, b""), "CPU", settings)
        self._per_thread = threading.local()

    def __call__(self, value: InputArray) -> NDArray[np.float32]:
        """Return the graph's output; each thread uses a request of its own."""
        if not hasattr(self._per_thread, "request"):
            self._per_thread.request = self._compiled.create_infer_request()
        with _running("cannot be run"):
            outputs = self._per_thread.request.infer([value])
        output: NDArray[np.float32] = next(iter(outputs.values())).copy()
        return output


def in_threads(
    function: Callable[[Item], Answer], items: Iterable[Item], *, parallel: int | None = None
) -> list[Answer]:
    """Return `function` of each item, in order, `parallel` (default: all cores) at a time."""
    with ThreadPoolExecutor(parallel or os.cpu_count() or 1) as pool:
        return list(pool.map(function, items))
