"""The tagger of mn04: samples at 32 kHz -> log-mel (128, frames) -> 527 logits.

Its weights are not part of driftscore. They are looked for at the path given, at `$DRIFTSCORE_MN04`
and in the cache; if there are none, they are downloaded once from their authors' release and kept
only if their sha256 is the one below. They are read without torch and converted once to an ONNX
file in the cache. Each clip is run by itself on one thread, so its logits depend neither on other
clips nor on the number of cores.
"""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Samples
from driftscore.backbones.mn04.tagger_graph import build_onnx
from driftscore.backbones.mn04.torch_file import read_tensors
from driftscore.backbones.onnx.log_mel import FrontEnd, Spectrogram
from driftscore.backbones.onnx.log_mel import log_mel as _log_mel
from driftscore.backbones.onnx.sessions import LazySession
from driftscore.errors import DownloadError, FormatError, UsageError
from driftscore.files import cache_home, replacing, sha256

RATE = 32_000
SECONDS = 10.0
FRONT_END = FrontEnd(rate=RATE, n_fft=1024, window=800, hop=320, mels=128, top_hz=15_000.0)
FILE_NAME = "mn04_as_mAP_432.pt"
SHA256 = "899a8c6217063f6941793102a2780b3dd788ab11fce468d9cf5f0577c453321c"
SOURCE = f"https://github.com/fschmid56/EfficientAT/releases/download/v0.0.1/{FILE_NAME}"

_MOST_BYTES = 100_000_000  # the weights have 4 MB
_GRAPH_REVISION = 1
"""Part of the converted file's name; raise it whenever `build_onnx` changes its output."""


def log_mel(samples_32k: Samples) -> Spectrogram:
    """Return the tagger's input for one window, (128, frames)."""
    return _log_mel(samples_32k, FRONT_END)


class Tagger:
    """mn04 ready to run; `fingerprint` identifies the weights and the conversion."""

    def __init__(self, graph: bytes, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self._session = LazySession(graph)

    def logits(self, samples_32k: Samples) -> NDArray[np.float32]:
        """Return the 527 AudioSet logits of one clip."""
        return self.logits_and_embedding(samples_32k)[0]

    def logits_and_embedding(
        self, samples_32k: Samples
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the 527 logits and the 384-d embedding of one clip."""
        return self.run(log_mel(samples_32k))

    def run(self, mel: Spectrogram) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the logits and the embedding of the log-mel of one clip."""
        inputs = {"log_mel": mel[None, None]}
        logits, embedding = self._session.run(["logits", "embedding"], inputs)
        return logits[0], embedding[0]


def load_tagger(weights: str | os.PathLike[str] | None = None) -> Tagger:
    """Return the tagger, from `weights` or from where `find_weights` finds them."""
    found = find_weights(weights)
    fingerprint = f"mn04-{SHA256[:12]}-{_GRAPH_REVISION}"
    graph, checksum = cache_home() / f"{fingerprint}.onnx", cache_home() / f"{fingerprint}.sha256"
    intact = graph.is_file() and checksum.is_file() and checksum.read_text() == sha256(graph)
    if not intact:
        with replacing(graph) as partial:
            partial.write_bytes(build_onnx(read_tensors(found, sha256=SHA256)))
        with replacing(checksum) as partial:
            partial.write_text(sha256(graph))
    return Tagger(graph.read_bytes(), fingerprint)


def find_weights(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of the weights, verified: the path given, the environment's or the cache's.

    Weights that are in none of these places are downloaded to the cache.
    """
    named = given or os.environ.get("DRIFTSCORE_MN04")
    path = Path(named).expanduser() if named else cache_home() / FILE_NAME
    if path.is_dir():
        path = path / FILE_NAME
    if not path.is_file():
        if named:
            raise UsageError(f"There are no mn04 weights at {path}. {_by_hand(path)}")
        _download(path)
    elif (actual := sha256(path)) != SHA256:
        raise FormatError(
            f"{path} is not mn04 as published (sha256 {actual[:12]}..., expected {SHA256[:12]}...):"
            f" it is damaged or another file. {_by_hand(path)}"
        )
    return path


def _by_hand(path: Path) -> str:
    """Return the sentence that says how to download the weights without driftscore."""
    return f"Download {SOURCE} and save it as {path}."


def _download(path: Path) -> None:
    """Download the weights to `path`; a file with a wrong checksum is not kept."""
    # Imported here: it takes long to import and is needed once.
    from driftscore.downloads import download

    with replacing(path) as partial:
        try:
            download(SOURCE, partial, what=FILE_NAME, most=_MOST_BYTES)
        except DownloadError as error:
            raise DownloadError(f"{error}. {_by_hand(path)}") from error
        if (actual := sha256(partial)) != SHA256:
            raise DownloadError(
                f"The file from {SOURCE} is not mn04 as published (sha256 {actual[:12]}...) and "
                f"was deleted. {_by_hand(path)}"
            )
