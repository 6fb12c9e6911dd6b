"""The teacher, mn04, frame by frame: its features of every 0.32 s, and the tags of any window.

The teacher's last feature map has one column per 0.32 s of sound, as the student's has. Its mean
over frequency is the target of the student's frames. The teacher's classifier on the mean of some
frames gives the tags of a window, at no cost beyond the clip's own run.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from training.product import teacher_graph

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TeacherFrames:
    """What the teacher says of some clips of one length."""

    logits: Matrix
    """(clips, 527)"""
    frames: Matrix
    """(clips, 384, frames of 0.32 s)"""


class Teacher:
    """mn04 with its last feature map as an output."""

    def __init__(self, graph: bytes) -> None:
        model = onnx.load_from_string(graph)
        pooled = [node for node in model.graph.node if node.op_type == "GlobalAveragePool"][-1]
        self._map = pooled.input[0]
        model.graph.output.append(helper.make_tensor_value_info(self._map, TensorProto.FLOAT, None))
        arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        linear = [node for node in model.graph.node if node.op_type == "Gemm"][-2:]
        self._layers = [[arrays[name] for name in node.input[1:]] for node in linear]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def label(self, log_mels: list[Matrix]) -> TeacherFrames:
        """Return logits and frames of log-mels of one length, each (128, frames)."""
        names = ["logits", self._map]
        runs = [self._session.run(names, {"log_mel": mel[None, None]}) for mel in log_mels]
        return TeacherFrames(
            np.concatenate([logits for logits, _ in runs]),
            np.concatenate([features.mean(axis=2) for _, features in runs]),
        )

    def window_logits(self, frames: Matrix) -> Matrix:
        """Return the logits of windows given by their frames, (clips, 384, frames)."""
        (inner, inner_bias), (outer, outer_bias) = self._layers
        hidden = frames.mean(axis=2) @ inner.T + inner_bias
        hidden = hidden * np.clip(hidden / 6 + 0.5, 0, 1)
        logits: Matrix = hidden @ outer.T + outer_bias
        return logits


@cache
def load_teacher() -> Teacher:
    """Return the teacher, loaded once per process."""
    return Teacher(teacher_graph())
