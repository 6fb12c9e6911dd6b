"""The model that comes with the package: a few megabytes, nothing to download.

    samples at 32 kHz -> log-mel -> audio tower -> 527 unit dimensions, one per AudioSet tag
    English text -> pieces -> text tower -> the same 527 dimensions

Both towers were trained by `training/` (see docs/model-card.md). Their checksums are verified when
they are loaded.

The audio tower is local in time: its frames are computed once for a recording, and the embedding of
a window is a pooling of its frames (`LocalBackbone`). Its input is its teacher's log-mel. The tower
makes one frame of 32 log-mel frames; a frame depends on 214 log-mel frames to each side.
Windows and texts are encoded one by one, so that an embedding does not depend on its neighbours.
"""

import hashlib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from driftscore.audio.recordings import Samples
from driftscore.backbones.devices import CPU, onnx_providers
from driftscore.backbones.onnx.log_mel import EFFICIENT_AT
from driftscore.backbones.onnx.sessions import (
    OnnxSession,
    in_threads,
    open_session,
    open_tokenizer,
    read_intact,
    without_known_words,
)
from driftscore.backbones.protocol import CALIBRATIONS, TAG_SPACE, Features, LocalBackbone
from driftscore.backbones.vectors import Matrix, Vector
from driftscore.errors import FormatError, UsageError
from driftscore.system.lazy import lazy_property

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

FRONT_END = EFFICIENT_AT
RATE = FRONT_END.rate
SECONDS = 10.0
FRAME_S = 32 * FRONT_END.hop / RATE
"""Seconds from one frame of the tower to the next."""
CONTEXT_S = (214 + 2) * FRONT_END.hop / RATE
"""Seconds to each side that a frame depends on: the tower's reach and that of the log-mel."""
HOME = Path(__file__).resolve().parents[1] / "models" / "mini"
MANIFEST = "manifest.toml"
_FILES = ("audio.onnx", "pool.onnx", "text.onnx", "tokenizer.json")
_AGAIN = "reinstall driftscore"
_UNKNOWN = 0  # the id of a piece that did not occur in training
_FRONT_END_REVISION = 2
"""Part of the fingerprint; raise it whenever a change of the front end changes an embedding."""


@dataclass(frozen=True)
class _Graph:
    """A graph of the model: call it for the open session."""

    path: Path
    sha256: str
    device: str = CPU

    def __call__(self) -> "InferenceSession":
        content = read_intact(self.path, self.sha256, advice=_AGAIN)
        return open_session(content, device=self.device)

    def __reduce__(self) -> tuple[type, tuple[object, bytes]]:
        """Pickle the content: a process on another machine may have no such file."""
        content = read_intact(self.path, self.sha256, advice=_AGAIN)
        return partial, (partial(open_session, device=self.device), content)


class Mini(LocalBackbone):
    """The audio tower and the text tower that come with the package."""

    name = "mini"
    dim = 527
    rate = RATE
    seconds = SECONDS
    runtime = "onnxruntime, one thread per window"
    parallel = os.cpu_count() or 1
    frame_s = FRAME_S
    context_s = CONTEXT_S
    tag_file = TAG_SPACE

    def __init__(self, home: Path, sums: Mapping[str, str], device: str = CPU) -> None:
        self.device = device
        digest = hashlib.sha256(f"mini/{_FRONT_END_REVISION}".encode())
        for name in sorted(sums):
            digest.update(bytes.fromhex(sums[name]))
        self.fingerprint = f"mini/{digest.hexdigest()}"
        *graphs, pieces = _FILES
        self._audio, self._pool, self._text = (
            OnnxSession(_Graph(home / name, sums[name], device)) for name in graphs
        )
        self._pieces = read_intact(home / pieces, sums[pieces], advice=_AGAIN).decode()

    @lazy_property
    def _tokenizer(self) -> "Tokenizer":
        return open_tokenizer(self._pieces)

    def __getstate__(self) -> dict[str, object]:
        """Leave the tokenizer out: several of its words have one row, and its copy keeps one."""
        return {name: value for name, value in vars(self).items() if name != "_tokenizer"}

    def prepare(self) -> None:
        """Open the sessions of the audio tower."""
        self._audio.open()
        self._pool.open()

    def features(self, samples: Samples) -> Features:
        """Return the log-mel of one window; less than a second is repeated up to a second."""
        return FRONT_END(np.resize(samples, RATE) if samples.size < RATE else samples)

    def encode(self, features: Features) -> Vector:
        """Return the unit embedding of the log-mel of one window."""
        return self.pool(self.frames(features))

    def frames(self, features: Features) -> Features:
        """Return the frames of a log-mel, (384, frames)."""
        rows: Features = self._audio.run("features", {"log_mel": features[None, None]})[0]
        return rows

    def pool(self, frames: Features) -> Vector:
        """Return the unit embedding of a window, given its frames."""
        row: Vector = self._pool.run("embedding", {"features": frames[None]})[0]
        return row

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text; a word without a known piece is an error."""
        batches = []
        for text in texts:
            ids = self._tokenizer.encode(text).ids
            for word in text.split() if _UNKNOWN in ids else ():
                if set(self._tokenizer.encode(word).ids) <= {_UNKNOWN}:
                    raise UsageError(
                        f"The model mini does not know any piece of {word!r}: it reads English "
                        "words, so name the sound in English"
                    )
            batches.append({"ids": np.array([ids], np.int64)})
        return np.concatenate(in_threads(partial(self._text.run, "embedding"), batches))

    def unknown_labels(self, labels: Sequence[str]) -> list[str]:
        """Return the labels that are made of pieces of words only, as those of another language."""
        return without_known_words(self._pieces, labels)


def load(home: str | PathLike[str] = HOME, *, device: str = CPU) -> Mini:
    """Load the model that comes with the package, or another build of it from a folder.

    A graph is read, and its checksum compared, when it is first run.
    """
    onnx_providers(device)
    folder = Path(home)
    try:
        stated = tomllib.loads((folder / MANIFEST).read_text(encoding="utf-8"))["sha256"]
        sums = {name: bytes.fromhex(text).hex() for name, text in stated.items()}
        if missing := [n for n in {*sums, *_FILES} if n not in sums or not (folder / n).is_file()]:
            raise FormatError(f"{missing[0]} is missing")
    except (OSError, KeyError, TypeError, ValueError, AttributeError, FormatError) as error:
        advice = _AGAIN if folder == HOME else "mini:FOLDER takes a folder with a build of mini"
        raise FormatError(f"The model in {home} is incomplete ({error}); {advice}") from error
    model = Mini(folder, sums, device)
    if folder == HOME:
        model.calibration_file = CALIBRATIONS / "mini.safetensors"
    return model
