"""The two towers of `mini`: loading, checking and running them.

The audio tower is local in time: its frames are computed once for a recording, and the embedding of
a window is a pooling of its frames (`LocalBackbone`).

Windows and texts are encoded one by one, so that an embedding does not depend on its neighbours.
"""

import hashlib
import os
import tomllib
from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np

from driftscore.audio import Samples
from driftscore.backbones.mini import front_end
from driftscore.backbones.onnx.sessions import LazySession, in_threads
from driftscore.backbones.onnx.tokenizer import Tokenizer, open_tokenizer, without_known_words
from driftscore.backbones.protocol import Features, LocalBackbone, shipped_calibration
from driftscore.errors import FormatError, UsageError
from driftscore.schema import table, text, validate
from driftscore.vectors import Matrix, Vector

HOME = Path(__file__).resolve().parents[2] / "models" / "mini"
MANIFEST = "manifest.toml"
_FILES = ("audio.onnx", "pool.onnx", "text.onnx", "tokenizer.json")
_UNKNOWN = 0  # the id of a piece that did not occur in training
_FRONT_END_REVISION = 1
"""Part of the fingerprint; raise it whenever a change of the front end changes an embedding."""


class Mini(LocalBackbone):
    """The audio tower and the text tower that come with the package."""

    name = "mini"
    dim = 527
    rate = front_end.RATE
    seconds = front_end.SECONDS
    runtime = "onnxruntime, one thread per window"
    parallel = os.cpu_count() or 1
    frame_s = front_end.FRAME_S
    context_s = front_end.CONTEXT_S

    def __init__(self, files: Mapping[str, bytes], sums: Mapping[str, str]) -> None:
        digest = hashlib.sha256(f"mini/{_FRONT_END_REVISION}".encode())
        for name in sorted(sums):
            digest.update(bytes.fromhex(sums[name]))
        self.fingerprint = f"mini/{digest.hexdigest()}"
        self._audio = LazySession(files["audio.onnx"])
        self._pool = LazySession(files["pool.onnx"])
        self._text = LazySession(files["text.onnx"])
        self._pieces = files["tokenizer.json"].decode()

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return open_tokenizer(self._pieces)

    def features(self, samples: Samples) -> Features:
        """Return the log-mel of one window."""
        return front_end.log_mel(samples)

    def encode(self, features: Features) -> Vector:
        """Return the unit embedding of the log-mel of one window."""
        return self.pool(self.frames(features))

    def frames(self, features: Features) -> Features:
        """Return the frames of a log-mel, (384, frames)."""
        found: Features = self._audio.run(["features"], {"log_mel": features[None, None]})[0][0]
        return found

    def pool(self, frames: Features) -> Vector:
        """Return the unit embedding of a window, given its frames."""
        row: Vector = self._pool.run(["embedding"], {"features": frames[None]})[0][0]
        return row

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text; a word without a known piece is an error."""
        ids = [self._ids(text) for text in texts]
        return np.stack(in_threads(self._embed_ids, ids))

    def unknown_labels(self, labels: Sequence[str]) -> list[str]:
        """Return the labels that are made of pieces of words only, as those of another language."""
        return without_known_words(self._pieces, labels)

    def _embed_ids(self, ids: list[int]) -> Vector:
        row: Vector = self._text.run(["embedding"], {"ids": np.array([ids], np.int64)})[0][0]
        return row

    def _ids(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text).ids
        if _UNKNOWN in ids:
            for word in text.split():
                if set(self._tokenizer.encode(word).ids) <= {_UNKNOWN}:
                    raise UsageError(
                        f"The model mini does not know any piece of {word!r}: it reads English "
                        "words, so name the sound in English"
                    )
        return ids


def load(home: str | PathLike[str] = HOME) -> Mini:
    """Load the model that comes with the package, or another build of it from a folder."""
    model = Mini(*_checked_files(Path(home)))
    if Path(home) == HOME:
        model.calibration_file = shipped_calibration(model.name)
    return model


def _checked_files(home: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the model's files and their checksums, which must be those in the manifest."""
    again = "reinstall driftscore"
    try:
        sums = tomllib.loads((home / MANIFEST).read_text(encoding="utf-8"))["sha256"]
        validate(sums, table(dict.fromkeys(_FILES, text), open_=True), where=MANIFEST)
        files = {name: (home / name).read_bytes() for name in sums}
    except (OSError, KeyError, TypeError, ValueError, FormatError) as error:
        raise FormatError(f"The model in {home} is incomplete ({error}); {again}") from error
    for name, expected in sums.items():
        if (actual := hashlib.sha256(files[name]).hexdigest()) != expected:
            raise FormatError(
                f"{home / name} is damaged or edited (sha256 {actual[:12]}..., expected "
                f"{expected[:12]}...); {again}"
            )
    return files, sums
