"""What an audio-text model must be able to do.

Embeddings are unit float32 rows. A class that subclasses `Backbone` explicitly defines its first
five attributes, `encode` and `embed_text`, and inherits the rest.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Audio, Samples, sounding_windows
from driftscore.backbones.vectors import Matrix, Vector, unit_mean

Features = NDArray[np.float32]
LOGIT_SCALE = 20.0
"""Scale of the softmax over scores, for models that were not trained with one."""

CALIBRATIONS = Path(__file__).resolve().parent.parent / "models" / "calibrations"
"""The calibrations that come with our models."""
TAG_SPACE = CALIBRATIONS.parent / "tagspace.safetensors"
"""The tags that are the dimensions of our models."""


class Named(Protocol):
    """Anything that says which model it is, or was made by."""

    @property
    def name(self) -> str:
        """What people call the model."""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the model; empty if it is not known."""


@runtime_checkable
class Backbone(Protocol):
    """A model that maps sound and text into one space."""

    name: str
    """What people call the model."""
    fingerprint: str
    """Changes whenever an embedding may change: weights, front end, text side."""
    dim: int
    """Length of an embedding."""
    rate: int
    """Sample rate of the model's input, in Hz."""
    seconds: float
    """Length of the model's window."""

    caches_text: bool = True
    """Whether encoded texts are worth keeping in the text cache."""
    calibration_file: Path | None = None
    """The calibration that comes with the model, if there is one."""
    tag_file: Path | None = None
    """The tag space whose tags are the model's dimensions, if they are tags."""
    runtime: str = ""
    """What the model runs in, and why, in words; empty if there is nothing to say."""
    logit_scale: float = LOGIT_SCALE
    """Scale of the softmax over scores."""
    parallel: int = 1
    """How many windows may be encoded at the same time, from several threads: as many as there are
    cores if a window is encoded on one thread (ONNX), one if the library uses several threads for
    one window (torch)."""

    device: str = "cpu"
    """Where it runs: cpu, cuda, cuda:1 or mps."""
    batch: int = 1
    """How many windows `encode_batch` is best given: more than one on a GPU."""

    def encode(self, features: Features) -> Vector:
        """Return the unit embedding of the features of one window."""

    def encode_batch(self, features: Sequence[Features]) -> Matrix:
        """Return one unit row per window; the last bits of a row may depend on the others."""
        return np.stack([self.encode(one) for one in features])

    def embed_text(self, texts: Sequence[str]) -> Matrix:
        """Return one unit row per text, the same whatever else is in the list."""

    def features(self, samples: Samples) -> Features:
        """Return the model's input (usually a log-mel spectrogram) for one window of samples.

        Several threads may call it at the same time.
        """
        return samples

    def embed_audio(self, clips: Sequence[Audio]) -> Matrix:
        """Return one unit row per clip, the mean of its windows: independent of the other clips.

        One window per call keeps every shape fixed: a batched product picks its kernel by the
        size of the batch, and the last bits of a clip would depend on its neighbours.
        """
        return np.stack(
            [
                unit_mean(
                    self.encode(self.features(window.samples))
                    for window in sounding_windows(clip, rate=self.rate, seconds=self.seconds)
                )
                for clip in clips
            ]
        )

    def prepare(self) -> None:
        """Load what `encode` needs, if that has not been done; a thread may call it ahead."""
        return

    def unknown_labels(self, labels: Sequence[str]) -> list[str]:
        """Return the labels none of whose words the model knows, so that it only spells them."""
        return []

    @property
    def cache_key(self) -> str:
        """The key of this model's vectors in a cache: its fingerprint, and its runtime if any.

        Runtimes of one model agree up to the last bits, so their banks and heads may be mixed, but
        no number may depend on which of them happened to fill a cache.
        """
        alone = self.device == "cpu" and self.batch == 1
        return self.fingerprint if alone else f"{self.fingerprint}+batches on {self.device}"


@runtime_checkable
class LocalBackbone(Backbone, Protocol):
    """A backbone whose embedding of a window is a pooling of frames that are local in time.

    The frames of a recording are computed once, and any window at any hop is a cheap pooling of
    them. Frame j covers `frame_s` seconds around j * `frame_s`, and depends on nothing further away
    than `context_s`.
    """

    frame_s: float
    """Seconds from one frame to the next."""
    context_s: float
    """Seconds to each side that a frame depends on.

    `features` has as many columns (its last axis) for each frame, and each of them depends on less
    than a frame to each side.
    """

    def frames(self, features: Features) -> Features:
        """Return the frames of the features of a recording: (channels, frames)."""

    def pool(self, frames: Features) -> Vector:
        """Return the unit embedding of a window, given its frames."""
