"""The two towers of `mini`: loading, checking and running them.

The audio tower is local in time: its frames are computed once for a recording, and the embedding of
a window is a pooling of its frames (`LocalBackbone`).

Windows and texts are encoded one by one, so that an embedding does not depend on its neighbours.
"""

import hashlib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
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
_AGAIN = "reinstall driftscore"
_UNKNOWN = 0  # the id of a piece that did not occur in training
_FRONT_END_REVISION = 1
"""Part of the fingerprint; raise it whenever a change of the front end changes an embedding."""


@dataclass(frozen=True)
class _File:
    """A file of the model: call it for its content, which must have the manifest's checksum."""

    path: Path
    sha256: str

    def __call__(self) -> bytes:
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise FormatError(f"{self.path} cannot be read ({error}); {_AGAIN}") from error
        if (actual := hashlib.sha256(content).hexdigest()) != self.sha256:
            raise FormatError(
                f"{self.path} is damaged or edited (sha256 {actual[:12]}..., expected "
                f"{self.sha256[:12]}...); {_AGAIN}"
            )
        return content

    def __reduce__(self) -> tuple[type, tuple[type, bytes]]:
        """Pickle the content: a process on another machine may have no such file."""
        return partial, (bytes, self())


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

    def __init__(self, home: Path, sums: Mapping[str, str]) -> None:
        digest = hashlib.sha256(f"mini/{_FRONT_END_REVISION}".encode())
        for name in sorted(sums):
            digest.update(bytes.fromhex(sums[name]))
        self.fingerprint = f"mini/{digest.hexdigest()}"
        graphs = ("audio.onnx", "pool.onnx", "text.onnx")
        self._audio, self._pool, self._text = (
            LazySession(_File(home / name, sums[name])) for name in graphs
        )
        self._pieces = _File(home / "tokenizer.json", sums["tokenizer.json"])().decode()

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return open_tokenizer(self._pieces)

    def prepare(self) -> None:
        """Open the sessions of the audio tower."""
        self._audio.open()
        self._pool.open()

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
    """Load the model that comes with the package, or another build of it from a folder.

    A graph is read, and its checksum compared, when it is first run.
    """
    folder = Path(home)
    try:
        sums = tomllib.loads((folder / MANIFEST).read_text(encoding="utf-8"))["sha256"]
        validate(sums, table(dict.fromkeys(_FILES, text), open_=True), where=MANIFEST)
        if missing := [name for name in sums if not (folder / name).is_file()]:
            raise FormatError(f"{missing[0]} is missing")
    except (OSError, KeyError, TypeError, ValueError, FormatError) as error:
        raise FormatError(f"The model in {home} is incomplete ({error}); {_AGAIN}") from error
    model = Mini(folder, sums)
    if folder == HOME:
        model.calibration_file = shipped_calibration(model.name)
    return model
