"""The record of a mix: everything that is needed to build the mix again.

First all choices (files, positions, gains) are fixed in a `MixRecord`, then they are applied by
`mix`. A record is one line of JSON. Positions and lengths are frames at the record's rate.

A mix beyond full scale is not clipped: samples are floats.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from driftscore import schema
from driftscore.audio import Audio
from driftscore.errors import AudioError, FormatError, MismatchError, UsageError
from driftscore.lab.mixing.reverb import reverberated
from driftscore.lab.mixing.sounds import Excerpt, Sound

_VERSION = 1
_MOST_FRAMES = 200_000_000  # more than an hour at 48 kHz

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
    source_start: int
    frames: int
    start: int
    gain_db: float


@dataclass(frozen=True)
class MixRecord:
    """Everything that determines a mix, apart from the sounds that it names."""

    mixing: str
    snr_db: float
    rate: int
    frames: int
    parts: tuple[MixPart, ...]
    placement: str
    fade_s: float = 0.0
    ref_db: float | None = None
    reverb: float | None = None
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
        """Read a record; raise `FormatError` for anything else."""
        try:
            fields = json.loads(text)
            schema.table({"version": schema.count}, open_=True)(fields, "")
            if (version := fields.pop("version")) != _VERSION:
                raise FormatError(f"it has version {version}; this driftscore reads {_VERSION}")
            _FIELDS(fields, "")
            fields["parts"] = tuple(MixPart(**part) for part in fields["parts"])
            record = MixRecord(**fields)
            _check_times(record)
        except (FormatError, ValueError, RecursionError) as error:
            raise FormatError(f"This is not the record of a mix: {error}") from error
        return record


def _name(value: object, key: str) -> None:
    """Accept any text: names of files that are not UTF-8 have surrogates."""
    if not isinstance(value, str):
        schema.text(value, key)


def _or_none(check: schema.Check) -> schema.Check:
    return lambda value, key: None if value is None else check(value, key)


_PART = schema.table(
    {
        "role": schema.choice("background", "event"),
        "file": _name,
        "label": _name,
        "sha256": schema.text,
        "source_start": schema.count,
        "frames": schema.count,
        "start": schema.count,
        "gain_db": schema.number(-400, 400),
    }
)
_FIELDS = schema.table(
    {
        "mixing": schema.text,
        "snr_db": schema.number(),
        "rate": schema.count,
        "frames": schema.count,
        "parts": schema.items(_PART, most=1000),
        "placement": schema.text,
    },
    {
        "fade_s": schema.number(0, 3600),
        "ref_db": _or_none(schema.number()),
        "reverb": _or_none(schema.number(0, 1)),
        "seed": _name,
    },
)
"""What a record must be: it may come from anyone."""


def _check_times(record: MixRecord) -> None:
    """Raise an error for a record whose parts cannot be put into its mix."""
    fade = int(record.fade_s * record.rate)
    if not 1 <= record.rate <= 10_000_000 or not 1 <= record.frames <= _MOST_FRAMES:
        raise FormatError(f"{record.frames} frames at {record.rate} Hz are not a mix")
    for part in record.parts:
        shortest = fade if part.role == "event" else 0
        if part.start > record.frames or not shortest <= part.frames <= _MOST_FRAMES:
            raise FormatError(f"{part.file} is not inside the mix")


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
    for part in record.parts:
        samples = _rendered(part, record, read)
        layers[part.role][part.start : part.start + len(samples)] += samples
    if record.reverb is not None:
        for role, dry in layers.items():
            layers[role] = reverberated(dry, record.rate, reverb=record.reverb)
    total = layers["background"] + layers["event"]
    return Mix(_audio(total, record.rate), _audio(layers["background"], record.rate))


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


def _rendered(part: MixPart, record: MixRecord, read: Reader) -> Floats:
    """Return the samples of a part as they are added, cut where the mix ends."""
    sound = Sound(part.file, read(part.file, record.rate))
    if sound.sha256 != part.sha256:
        raise MismatchError(
            f"{part.file} is not what the mix was made from (sha256 {sound.sha256[:12]}, "
            f"recorded {part.sha256[:12]}): the file or its decoder has changed"
        )
    taken = Excerpt(sound, part.source_start, part.frames).samples
    samples: Floats = 10 ** (part.gain_db / 20) * taken.astype(np.float64)
    fade = int(record.fade_s * record.rate)
    if part.role == "event" and fade > 0:
        window = np.sin(np.linspace(0, np.pi / 2, fade))
        samples[:fade] *= window
        samples[-fade:] *= window[::-1]
    return samples[: record.frames - part.start]


def _audio(samples: Floats, rate: int) -> Audio:
    return Audio(samples.astype(np.float32), rate)
