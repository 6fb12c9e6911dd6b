"""What the training of the audio tower uses of the package, imported in one place.

A module of the package that moves is followed here and nowhere else in the audio half.
"""

from functools import cache

from driftscore.backbones.mini import CONTEXT_S, Mini
from driftscore.backbones.mini import HOME as MODEL_HOME
from driftscore.backbones.mini import load as load_mini
from driftscore.backbones.mn04 import Tagger, load_tagger
from driftscore.backbones.mn04.tagger import FRONT_END, SHA256, build_onnx, find_weights
from driftscore.backbones.mn04.tagspace import load_space
from driftscore.backbones.mn04.torch_file import read_tensors
from driftscore.backbones.onnx.log_mel import FrontEnd
from driftscore.storage.files import replacing, sha256
from training.collect import SHARED

__all__ = [
    "CONTEXT_S",
    "FRONT_END",
    "MODEL_HOME",
    "FrontEnd",
    "Mini",
    "coarse_log_mel",
    "load_mini",
    "load_space",
    "log_mel",
    "replacing",
    "sha256",
    "tagger",
    "teacher_graph",
]


@cache
def tagger() -> Tagger:
    """Return the teacher, mn04, loaded once per process."""
    return load_tagger(SHARED / "models" / "mn04")


def teacher_graph() -> bytes:
    """Return the teacher as an ONNX file."""
    return build_onnx(read_tensors(find_weights(SHARED / "models" / "mn04"), sha256=SHA256))


log_mel = FRONT_END
"""The log-mel of teacher and student."""
coarse_log_mel = FrontEnd(rate=32_000, n_fft=1024, window=1024, hop=640, mels=64, top_hz=15_000.0)
"""A quarter of the numbers, for comparing recordings."""
