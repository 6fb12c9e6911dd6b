"""The tagger of mn04: samples at 32 kHz -> log-mel (128, frames) -> 527 logits.

Its weights are not part of driftscore. They are looked for at the path given, at `$DRIFTSCORE_MN04`
and in the cache; if there are none, they are downloaded once from their authors' release and kept
only if their sha256 is the one below. They are read without torch and converted once to an ONNX
file in the cache. Each clip is run by itself on one thread, so its logits depend neither on other
clips nor on the number of cores.

The network is a MobileNetV3-Large at width 0.4 over (1, 1, 128, frames): a stem, fifteen inverted
residual blocks, a 1x1 convolution, the mean over frequency and time (the 384-d embedding) and two
linear layers (the 527 logits). Each batch norm is folded into the convolution before it:

    w' = w g / sqrt(var + eps),   b' = bias - mean g / sqrt(var + eps)
"""

import os
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Samples
from driftscore.backbones.mn04.torch_file import read_tensors
from driftscore.backbones.onnx.graph import Graph, Tensors
from driftscore.backbones.onnx.log_mel import EFFICIENT_AT, Spectrogram
from driftscore.backbones.onnx.sessions import OnnxSession, open_session
from driftscore.errors import DownloadError, FormatError, UsageError
from driftscore.storage.files import cache_home, replacing, sha256

FRONT_END = EFFICIENT_AT
RATE = FRONT_END.rate
SECONDS = 10.0
FILE_NAME = "mn04_as_mAP_432.pt"
SHA256 = "899a8c6217063f6941793102a2780b3dd788ab11fce468d9cf5f0577c453321c"
SOURCE = f"https://github.com/fschmid56/EfficientAT/releases/download/v0.0.1/{FILE_NAME}"

_MAX_BYTES = 100_000_000  # the weights have 4 MB
_GRAPH_REVISION = 1
"""Part of the converted file's name; raise it whenever `build_onnx` changes its output."""


class Tagger:
    """mn04 ready to run; `fingerprint` identifies the weights and the conversion."""

    def __init__(self, graph: bytes, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self._session = OnnxSession(partial(open_session, graph))

    def run(self, mel: Spectrogram) -> NDArray[np.float32]:
        """Return the 527 AudioSet logits of the log-mel of one clip."""
        return self._session.run("logits", {"log_mel": mel[None, None]})[0]

    def logits(self, samples_32k: Samples) -> NDArray[np.float32]:
        """Return the 527 AudioSet logits of one clip."""
        return self.run(FRONT_END(samples_32k))

    def logits_and_embedding(
        self, samples_32k: Samples
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the 527 logits and the 384-d embedding of one clip."""
        inputs = {"log_mel": FRONT_END(samples_32k)[None, None]}
        logits, embedding = self._session.open().run(["logits", "embedding"], inputs)
        return logits[0], embedding[0]


def load_tagger(weights: str | os.PathLike[str] | None = None) -> Tagger:
    """Return the tagger, from `weights` or from where `find_weights` finds them."""
    fingerprint = f"mn04-{SHA256[:12]}-{_GRAPH_REVISION}"
    graph, checksum = cache_home() / f"{fingerprint}.onnx", cache_home() / f"{fingerprint}.sha256"
    intact = (
        graph.is_file() and checksum.is_file() and checksum.read_bytes() == sha256(graph).encode()
    )
    if not intact:
        Graph({}, model="mn04", extra="mn04")  # a missing extra is reported before the download
    path = find_weights(weights)
    if not intact:
        with replacing(graph) as partial:
            partial.write_bytes(build_onnx(read_tensors(path, sha256=SHA256)))
        with replacing(checksum) as partial:
            partial.write_text(sha256(graph))
    return Tagger(graph.read_bytes(), fingerprint)


def find_weights(weights: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of the weights, verified: `weights`, the environment's or the cache's.

    Weights that are in none of these places are downloaded to the cache; a file with a wrong
    checksum is not kept.
    """
    named = weights or os.environ.get("DRIFTSCORE_MN04")
    path = Path(named).expanduser() if named else cache_home() / FILE_NAME
    if path.is_dir():
        path = path / FILE_NAME
    by_hand = f"Download {SOURCE} and save it as {path}."
    if path.is_file():
        if (actual := sha256(path)) != SHA256:
            raise FormatError(
                f"{path} is not mn04 as published (sha256 {actual[:12]}..., expected "
                f"{SHA256[:12]}...): it is damaged or another file. {by_hand}"
            )
        return path
    if named:
        raise UsageError(f"There are no mn04 weights at {path}. {by_hand}")
    # Imported here: it takes long to import and is needed once.
    from driftscore.storage.downloads import download

    with replacing(path) as partial_file:
        try:
            download(SOURCE, partial_file, what=FILE_NAME, most=_MAX_BYTES)
        except DownloadError as error:
            raise DownloadError(f"{error}. {by_hand}") from error
        if (actual := sha256(partial_file)) != SHA256:
            raise DownloadError(
                f"The file from {SOURCE} is not mn04 as published (sha256 {actual[:12]}...) and "
                f"was deleted. {by_hand}"
            )
    return path


_EPSILON = 0.001
_BLOCKS = (
    # expanded channels, channels out, squeeze and excite, activation, stride
    (8, 8, False, "Relu", 1),
    (24, 16, False, "Relu", 2),
    (32, 16, False, "Relu", 1),
    (32, 16, True, "Relu", 2),
    (48, 16, True, "Relu", 1),
    (48, 16, True, "Relu", 1),
    (96, 32, False, "HardSwish", 2),
    (80, 32, False, "HardSwish", 1),
    (72, 32, False, "HardSwish", 1),
    (72, 32, False, "HardSwish", 1),
    (192, 48, True, "HardSwish", 1),
    (272, 48, True, "HardSwish", 1),
    (272, 64, True, "HardSwish", 2),
    (384, 64, True, "HardSwish", 1),
    (384, 64, True, "HardSwish", 1),
)


class _Graph(Graph):
    """A graph with mn04's kinds of layers; each method adds one and returns its output."""

    def convolution(self, x: str, name: str, norm: str, *, stride: int = 1) -> str:
        """Add a convolution without bias with the batch norm that follows it folded in."""
        weight = self.tensor(f"{name}.weight").astype(np.float64)
        gain = self.tensor(f"{norm}.weight") / np.sqrt(
            self.tensor(f"{norm}.running_var").astype(np.float64) + _EPSILON
        )
        bias = self.tensor(f"{norm}.bias") - self.tensor(f"{norm}.running_mean") * gain
        out, per_group, kernel, _ = weight.shape
        return self.node(
            "Conv",
            x,
            self.constant((weight * gain[:, None, None, None]).astype(np.float32)),
            self.constant(bias.astype(np.float32)),
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=out if per_group == 1 and kernel > 1 and name != "features.0.0" else 1,
        )

    def activation(self, x: str, kind: str) -> str:
        """Add a relu or a hard swish, x clip(x + 3, 0, 6) / 6."""
        if kind == "Relu":
            return self.node("Relu", x)
        return self.node("Mul", x, self.node("HardSigmoid", x, alpha=1 / 6, beta=0.5))

    def gemm(self, x: str, name: str) -> str:
        """Add a linear layer over (1, channels)."""
        weight, bias = self.tensor(f"{name}.weight"), self.tensor(f"{name}.bias")
        return self.node("Gemm", x, self.constant(weight), self.constant(bias), transB=1)


def build_onnx(tensors: Tensors) -> bytes:
    """Return an ONNX file with input `log_mel` and outputs `logits` and `embedding`."""
    graph = _Graph(tensors, model="mn04", extra="mn04")
    x = graph.convolution("log_mel", "features.0.0", "features.0.1", stride=2)
    x, channels = graph.activation(x, "HardSwish"), 8
    for number, (expanded, out, squeeze, activation, stride) in enumerate(_BLOCKS, start=1):
        name, part, y = f"features.{number}.block", 0, x
        if expanded != channels:
            y = graph.convolution(y, f"{name}.{part}.0", f"{name}.{part}.1")
            y, part = graph.activation(y, activation), part + 1
        y = graph.convolution(y, f"{name}.{part}.0", f"{name}.{part}.1", stride=stride)
        y, part = graph.activation(y, activation), part + 1
        if squeeze:  # scale the channels by a gate computed from their means
            layer, part = f"{name}.{part}.conc_se_layers.0", part + 1
            means = graph.node("Flatten", graph.node("GlobalAveragePool", y))
            hidden = graph.node("Relu", graph.gemm(means, f"{layer}.fc1"))
            gate = graph.node("Sigmoid", graph.gemm(hidden, f"{layer}.fc2"))
            shape = graph.integers(1, expanded, 1, 1)
            y = graph.node("Mul", y, graph.node("Reshape", gate, shape))
        y = graph.convolution(y, f"{name}.{part}.0", f"{name}.{part}.1")
        x = graph.node("Add", x, y) if stride == 1 and out == channels else y
        channels = out
    x = graph.convolution(x, "features.16.0", "features.16.1")
    x = graph.node("GlobalAveragePool", graph.activation(x, "HardSwish"))
    embedding = graph.node("Flatten", x)
    x = graph.activation(graph.gemm(embedding, "classifier.2"), "HardSwish")
    logits = graph.gemm(x, "classifier.5")
    graph.node("Identity", embedding, out="embedding")
    graph.node("Identity", logits, out="logits")
    return graph.serialise(
        "mn04",
        [("log_mel", np.float32, (1, 1, 128, "frames"))],
        [("logits", np.float32, (1, 527)), ("embedding", np.float32, (1, 384))],
        opset=17,
        ir=8,
    )
