"""The teacher, mn04, frame by frame: its features of every 0.32 s, and the tags of any window.

The teacher's last feature map has one column per 0.32 s of sound, as the student's has. Its mean
over frequency is the target of the student's frames. The teacher's classifier on the mean of some
frames gives the tags of a window, at no cost beyond the clip's own run. Its maps of the sizes that
the student has too (1/4, 1/8, 1/16 and 1/32 of the log-mel) are targets of the student's layers.
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
MAP_CHANNELS = (16, 16, 48, 64)
_LAST_SUMS = (1, 3, 7, 9)
"""Which of the ten residual sums are the last of their size; the first size has no counterpart."""


@dataclass(frozen=True)
class TeacherFrames:
    """What the teacher says of some clips of one length."""

    logits: Matrix
    """(clips, 527)"""
    frames: Matrix
    """(clips, 384, frames of 0.32 s)"""
    maps: list[npt.NDArray[np.float16]]
    """(clips, channels, bands, frames), from the finest to the coarsest"""


class Teacher:
    """mn04 with its last feature map as an output."""

    def __init__(self, graph: bytes) -> None:
        model = onnx.load_from_string(graph)
        pooled = [node for node in model.graph.node if node.op_type == "GlobalAveragePool"][-1]
        sums = [node.output[0] for node in model.graph.node if node.op_type == "Add"]
        self._maps = [*(sums[number] for number in _LAST_SUMS), pooled.input[0]]
        for name in self._maps:
            model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
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
        names = ["logits", *self._maps]
        runs = [self._session.run(names, {"log_mel": mel[None, None]}) for mel in log_mels]
        logits, *maps, features = (np.concatenate(parts) for parts in zip(*runs, strict=True))
        return TeacherFrames(
            logits, features.mean(axis=2), [rows.astype(np.float16) for rows in maps]
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
