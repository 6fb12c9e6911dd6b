"""The embedded model: a real zero-shot model of a few megabytes, with nothing to download.

    samples at 32 kHz -> log-mel -> audio tower -> 527 unit dimensions, one for each AudioSet tag
    English text -> pieces -> text tower -> the same 527 dimensions

Both towers were trained here (see `training/` and docs/model-card.md) and come with the
package. Their checksums are verified on loading. Clips and texts go through one by one.
"""

import hashlib
import os
import tomllib
from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Samples
from driftscore.backbones import mini_frontend
from driftscore.backbones._onnx import LazySession, in_threads
from driftscore.backbones.protocol import Backbone
from driftscore.errors import FormatError, UsageError
from driftscore.vectors import Matrix, Vector

HOME = Path(__file__).resolve().parent.parent / "models" / "mini"
MANIFEST = "manifest.toml"
_UNKNOWN = 0  # the id of a piece that was never seen in training
_FRONT_END_REVISION = 1
"""Part of the fingerprint; raise it whenever the front end changes an embedding."""


class Mini(Backbone):
    """The embedded audio and text towers."""

    name = "mini"
    dim = 527
    rate = mini_frontend.RATE
    seconds = mini_frontend.SECONDS
    parallel = os.cpu_count() or 1

    def __init__(self, files: dict[str, bytes]) -> None:
        digest = hashlib.sha256(f"mini/{_FRONT_END_REVISION}".encode())
        for name in sorted(files):
            digest.update(hashlib.sha256(files[name]).digest())
        self.fingerprint = f"mini/{digest.hexdigest()}"
        self._audio = LazySession(files["audio.onnx"])
        self._text = LazySession(files["text.onnx"])
        self._pieces = files["tokenizer.json"].decode()

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self._pieces)

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row a text; a word that it knows no piece of is an error."""
        ids = [self._ids(text) for text in texts]
        return np.stack(in_threads(self._embed_ids, ids))

    def features(self, samples: Samples) -> NDArray[np.float32]:
        """Return the log-mel of one window."""
        return mini_frontend.log_mel(samples)

    def encode(self, features: NDArray[np.float32]) -> Vector:
        """Return the unit row of one window's log-mel."""
        row: Vector = self._audio.run(["embedding"], {"log_mel": features[None, None]})[0][0]
        return row

    def _embed_window(self, samples: Samples) -> Vector:
        return self.encode(self.features(samples))

    def _embed_ids(self, ids: list[int]) -> Vector:
        row: Vector = self._text.run(["embedding"], {"ids": np.array([ids], np.int64)})[0][0]
        return row

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        if _UNKNOWN in ids:
            for word in text.split():
                if set(self._tokenizer.encode(word).ids) <= {_UNKNOWN}:
                    raise UsageError(
                        f"The model mini knows no piece of {word!r}; it reads English words, "
                        "so name the sound in English"
                    )
        return ids


def load(home: str | PathLike[str] = HOME) -> Mini:
    """Load the embedded model, or another build of it from a folder."""
    return Mini(_checked_files(Path(home)))


def _checked_files(home: Path) -> dict[str, bytes]:
    """Read the model's files and refuse any that is not as it was sealed."""
    again = "reinstall driftscore"
    try:
        sums = tomllib.loads((home / MANIFEST).read_text(encoding="utf-8"))["sha256"]
        files = {name: (home / name).read_bytes() for name in sums}
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise FormatError(f"The model in {home} is not whole ({error}); {again}") from error
    for name, expected in sums.items():
        if (actual := hashlib.sha256(files[name]).hexdigest()) != expected:
            raise FormatError(
                f"{home / name} is damaged or edited (sha256 {actual[:12]}..., expected "
                f"{expected[:12]}...); {again}"
            )
    return files
