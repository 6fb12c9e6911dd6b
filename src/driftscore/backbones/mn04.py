"""mn04, a 0.98 M parameter AudioSet tagger (EfficientAT, MIT), joined to text by tag space.

    samples at 32 kHz -> log-mel (128, frames) -> 527 logits -> tag space
    text -> all-MiniLM-L6-v2 -> tag space

The weights are not part of driftscore. They are looked for at a path given, at
`$DRIFTSCORE_MN04` and in the cache; failing these they are fetched once from their
authors' release, and kept only if their sha256 is the one pinned here. They are read
without torch and converted once to an ONNX file in the cache. One clip at a time and
one thread: a clip's logits never depend on its neighbours or on the machine's cores.
"""

import os
import shutil
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

import numpy as np
import numpy.typing as npt

from driftscore.audio import Samples
from driftscore.backbones import tagspace
from driftscore.backbones._log_mel import FrontEnd, Spectrogram
from driftscore.backbones._log_mel import log_mel as _log_mel
from driftscore.backbones._mn04_graph import build_onnx
from driftscore.backbones._onnx import session
from driftscore.backbones._torch_zip import read_tensors
from driftscore.backbones.minilm import SentenceEncoder, load_encoder
from driftscore.backbones.protocol import Backbone
from driftscore.backbones.tagspace import TagSpace, load_space
from driftscore.errors import FormatError, UsageError
from driftscore.files import cache_home, replacing, sha256
from driftscore.vectors import Matrix, Vector

RATE = 32_000
SECONDS = 10.0
FRONT_END = FrontEnd(rate=RATE, n_fft=1024, window=800, hop=320, mels=128, top_hz=15_000.0)
FILE_NAME = "mn04_as_mAP_432.pt"
SHA256 = "899a8c6217063f6941793102a2780b3dd788ab11fce468d9cf5f0577c453321c"
SOURCE = f"https://github.com/fschmid56/EfficientAT/releases/download/v0.0.1/{FILE_NAME}"

_GRAPH_REVISION = 1
"""Part of the converted file's name; raise it whenever `build_onnx` changes its output."""


def log_mel(samples_32k: Samples) -> Spectrogram:
    """Return the tagger's input for one clip, (128, frames)."""
    return _log_mel(samples_32k, FRONT_END)


class Mn04(Backbone):
    """The tagger and the sentence encoder as one backbone."""

    name = "mn04"
    dim = tagspace.TAGS
    rate = RATE
    seconds = SECONDS
    parallel = os.cpu_count() or 1

    def __init__(self, tagger: "Tagger", encoder: SentenceEncoder, space: TagSpace) -> None:
        self.tagger = tagger
        self.encoder = encoder
        self.space = space
        self.fingerprint = f"mn04/{tagger.fingerprint}/{encoder.fingerprint}/{space.digest}"

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row a text."""
        return self.space.embed_sentences(self.encoder.encode(texts))

    def features(self, samples: Samples) -> Spectrogram:
        """Return the log-mel of one window."""
        return log_mel(samples)

    def encode(self, features: Spectrogram) -> Vector:
        """Return the unit row of one window's log-mel."""
        logits, _ = self.tagger.run(features)
        row: Vector = self.space.embed_logits(logits[None])[0]
        return row

    def _embed_window(self, samples: Samples) -> Vector:
        return self.encode(self.features(samples))


def load(
    weights: str | os.PathLike[str] | None = None,
    *,
    minilm: str | os.PathLike[str] | None = None,
) -> Mn04:
    """Load mn04 from `weights` or the cache, and the sentence encoder from its package."""
    return Mn04(load_tagger(weights), load_encoder(minilm), load_space())


class Tagger:
    """mn04 ready to run; `fingerprint` names the weights and the conversion."""

    def __init__(self, graph: bytes, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self._session = session(graph)

    def logits(self, samples_32k: Samples) -> npt.NDArray[np.float32]:
        """Return the 527 AudioSet logits of one clip."""
        return self.logits_and_embedding(samples_32k)[0]

    def logits_and_embedding(
        self, samples_32k: Samples
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return the 527 logits and the 384-d embedding of one clip."""
        return self.run(log_mel(samples_32k))

    def run(self, mel: Spectrogram) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return logits and embedding of one clip's log-mel."""
        inputs = {"log_mel": mel[None, None]}
        logits, embedding = self._session.run(["logits", "embedding"], inputs)
        return logits[0], embedding[0]


def load_tagger(weights: str | os.PathLike[str] | None = None) -> Tagger:
    """Return the tagger, from `weights` or from where `find_weights` finds them."""
    found = find_weights(weights)
    fingerprint = f"mn04-{SHA256[:12]}-{_GRAPH_REVISION}"
    graph, checksum = cache_home() / f"{fingerprint}.onnx", cache_home() / f"{fingerprint}.sha256"
    whole = graph.is_file() and checksum.is_file() and checksum.read_text() == sha256(graph)
    if not whole:
        with replacing(graph) as partial:
            partial.write_bytes(build_onnx(read_tensors(found)))
        with replacing(checksum) as partial:
            partial.write_text(sha256(graph))
    return Tagger(graph.read_bytes(), fingerprint)


def find_weights(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the weights' path, checked; the path given, the environment's, or the cache's."""
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
    """Return the sentence that says how to place the weights without us."""
    return f"Fetch {SOURCE} by any means and save it as {path}."


def _download(path: Path) -> None:
    """Fetch the weights to `path`, which comes to be only if the checksum is right."""
    with replacing(path) as partial:
        try:
            with urllib.request.urlopen(SOURCE, timeout=30) as answer, open(partial, "wb") as out:
                shutil.copyfileobj(answer, out)
        except (OSError, HTTPException) as error:
            raise FormatError(
                f"mn04's weights could not be fetched ({error}). {_by_hand(path)}"
            ) from error
        if (actual := sha256(partial)) != SHA256:
            raise FormatError(
                f"What came from {SOURCE} is not mn04 as published (sha256 {actual[:12]}...), so "
                f"it was thrown away. {_by_hand(path)}"
            )
