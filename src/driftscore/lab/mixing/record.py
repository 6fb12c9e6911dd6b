"""The record of a mix: everything that is needed to build the mix again.

First all choices (files, positions, gains) are fixed in a `MixRecord`, then they are applied by
`mix`. A record is one line of JSON. Positions and lengths are frames at the record's rate.

A mix beyond full scale is not clipped: samples are floats.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Audio
from driftscore.errors import AudioError, FormatError, MismatchError, UsageError
from driftscore.lab.mixing.reverb import reverberated
from driftscore.lab.mixing.sounds import Excerpt, Sound

_VERSION = 1
MAX_FRAMES = 200_000_000  # more than an hour at 48 kHz

Frames = Annotated[int, msgspec.Meta(ge=0, le=MAX_FRAMES)]
Floats = NDArray[np.float64]
Role = Literal["background", "event"]
Reader = Callable[[str, int], Audio]
"""Loads a sound by its file and rate."""


@dataclass(frozen=True)
class MixPart:
    """One sound of a mix: which excerpt of it, its gain, and where it begins in the mix."""

    role: Role
    file: str
    label: str
    sha256: str
    source_start: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    frames: Frames
    start: Annotated[int, msgspec.Meta(ge=0, le=2**40)]  # in a soundscape of hours
    gain_db: Annotated[float, msgspec.Meta(ge=-400, le=400)]


@dataclass(frozen=True)
class MixRecord:
    """Everything that determines a mix, apart from the sounds that it names."""

    mixing: str
    snr_db: float
    rate: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
    frames: Annotated[int, msgspec.Meta(ge=1, le=MAX_FRAMES)]
    parts: Annotated[tuple[MixPart, ...], msgspec.Meta(max_length=1000)]
    placement: str
    fade_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0
    ref_db: float | None = None
    reverb: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    seed: str = ""
    """What the generator was made from; for information, since the draws are recorded above."""

    @property
    def environment(self) -> str:
        """What the background is, in words."""
        return next((part.label for part in self.parts if part.role == "background"), "")

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        return json.dumps({"version": _VERSION, **asdict(self)}, sort_keys=True, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> "MixRecord":
        """Read a record, which may come from anyone; raise `FormatError` for anything else."""
        try:
            content = json.loads(text)
            version = content.get("version") if isinstance(content, dict) else None
            if version != _VERSION:
                raise FormatError(f"it has version {version!r}; this driftscore reads {_VERSION}")
            record = msgspec.convert(content, MixRecord)
            written = json.loads(record.to_json())
            if written | content != written:
                raise FormatError("it has keys that are not those of a record")
        except (FormatError, ValueError, RecursionError) as error:
            raise FormatError(f"This is not the record of a mix: {error}") from error
        for part in record.parts:
            min_frames = int(record.fade_s * record.rate) if part.role == "event" else 0
            if part.start > record.frames or part.frames < min_frames:
                raise FormatError(
                    f"This is not the record of a mix: {part.file} is not inside the mix"
                )
        return record


@dataclass(frozen=True, eq=False)
class Mix:
    """A mix, and its background alone at the level it has in the mix."""

    audio: Audio
    background: Audio


def mix(record: MixRecord, read: Reader) -> Mix:
    """Build a mix from its record; `read` loads a sound by its file and rate."""
    layers: dict[Role, Floats] = {
        "background": np.zeros(record.frames),
        "event": np.zeros(record.frames),
    }
    fade = int(record.fade_s * record.rate)
    for part in record.parts:
        sound = Sound(part.file, read(part.file, record.rate))
        check_sound(part, sound, "mix")
        taken = Excerpt(sound, part.source_start, part.frames).samples
        samples: Floats = 10 ** (part.gain_db / 20) * taken.astype(np.float64)
        if part.role == "event" and fade > 0:
            window = np.sin(np.linspace(0, np.pi / 2, fade))
            samples[:fade] *= window
            samples[-fade:] *= window[::-1]
        inside = samples[: record.frames - part.start]
        layers[part.role][part.start : part.start + len(inside)] += inside
    if record.reverb is not None:
        for role, dry in layers.items():
            layers[role] = reverberated(dry, record.rate, reverb=record.reverb)
    total = layers["background"] + layers["event"]
    return Mix(
        Audio(total.astype(np.float32), record.rate),
        Audio(layers["background"].astype(np.float32), record.rate),
    )


def check_sound(part: MixPart, sound: Sound, what: str) -> None:
    """Raise an error unless a sound is the one that a part of a mix or soundscape was made from."""
    if sound.sha256 != part.sha256:
        raise MismatchError(
            f"{part.file} is not what the {what} was made from (sha256 {sound.sha256[:12]}, "
            f"recorded {part.sha256[:12]}): the file or its decoder has changed"
        )


def mix_part(role: Role, excerpt: Excerpt, start: int, gain_db: float) -> MixPart:
    """Return the part of a mix that an excerpt is, from frame `start` on."""
    sound = excerpt.sound
    where = (excerpt.start, excerpt.frames, start)
    return MixPart(role, sound.file, sound.label, sound.sha256, *where, float(gain_db))


def check_mix(
    snr_db: float, events: Sequence[Sound], background: Excerpt | None, frames: int
) -> None:
    """Raise an error that says what prevents a mix, if anything does."""
    if not math.isfinite(snr_db):
        raise UsageError(f"snr_db must be a finite number of dB, got {snr_db!r}")
    rates = {event.audio.rate for event in events}
    rates |= {background.sound.audio.rate} if background else set()
    if len(rates) > 1:
        raise UsageError(f"The sounds of a mix must have one rate, got {sorted(rates)} Hz")
    for event in events:
        if not event.audio.samples.any():
            raise AudioError(f"{event.file} is silent: every sample is zero")
    if background and background.frames != frames:
        raise UsageError(f"The mix has {frames} frames, its background {background.frames}")
