"""Put an event into noise at a chosen SNR; every mix can be built again from its record.

First everything is fixed (files, positions, gains) in a `MixRecord`, then it is applied.
Two mixings, whose SNRs are different numbers and never share a column:

- `additive`: the noise runs under the whole clip, scaled so that over the event's active
  part power(event) / power(noise) = 10 ** (snr_db / 10). The event is left as it is.
- `scaper`: as Scaper 1.6.5 does it. L is integrated loudness: the background is scaled by
  ref_db - L(background), an event by ref_db + snr_db - L(event), faded in and out by a
  quarter sine of 10 ms, and placed in a soundscape of 10 s. The SNR holds while the event
  sounds. A mix beyond full scale is left so: samples are floats. `reverb=None` is Scaper's
  default; Acevedo et al. used 0, which is some (see `reverb`).

The *active part* is made of the blocks of 20 ms whose level is within 50 dB of the loudest
one: what is not digital silence or padding. Positions are frames at the record's rate.

Two things of Scaper's are not copied. It converts rates by SoX, after cutting, and we by
soxr, before: the two differ by some 3e-4 of the level, most of it where the cut rings; at one
rate they agree to the last bits. And its SoX binding turns samples beyond full scale, which
lossy files decode to, into their opposite (1.02 becomes -0.98); ours stay what they are.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Audio, Samples
from driftscore.errors import AudioError, FormatError, MismatchError, UsageError
from driftscore.lab import sounds
from driftscore.lab.loudness import FLOOR, LoudnessMeter
from driftscore.lab.reverb import check_reverb, reverberated
from driftscore.lab.sounds import Sound, Stretch

MIXINGS = ("additive", "scaper")
REF_DB = -36.0
SOUNDSCAPE_S = 10.0
FADE_S = 0.01
ACTIVE_BLOCK_S = 0.02
ACTIVE_DB = 50.0
_VERSION = 1

Floats = NDArray[np.float64]
Role = Literal["background", "event"]
Reader = Callable[[str, int], Audio]


@dataclass(frozen=True)
class TruncatedNormal:
    """When an event begins: a normal draw in seconds, drawn again while out of bounds."""

    mean_s: float = 3.0
    deviation_s: float = 1.5
    low_s: float = 0.0
    high_s: float = 6.0

    def __post_init__(self) -> None:
        if not (self.low_s <= self.mean_s <= self.high_s and self.deviation_s > 0):
            raise UsageError(f"A placement needs low <= mean <= high and a deviation > 0: {self}")

    def draw(self, rng: np.random.Generator) -> float:
        """Return one draw."""
        while not self.low_s <= (value := rng.normal(self.mean_s, self.deviation_s)) <= self.high_s:
            pass
        return float(value)

    def __str__(self) -> str:
        values = (self.mean_s, self.deviation_s, self.low_s, self.high_s)
        return f"truncnorm({', '.join(f'{value:g}' for value in values)})"


@dataclass(frozen=True)
class Part:
    """One sound of a mix: what is taken of it, how loud, and where it begins in the mix."""

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
    """All that makes a mix: rebuilding it needs nothing else but the sounds it names."""

    mixing: str
    snr_db: float
    rate: int
    frames: int
    parts: tuple[Part, ...]
    placement: str
    fade_s: float = 0.0
    ref_db: float | None = None
    reverb: float | None = None
    seed: str = ""
    """What the generator was made from: a note, since the draws themselves stand above."""

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        return json.dumps({"version": _VERSION, **asdict(self)}, sort_keys=True, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> "MixRecord":
        """Read a record, or say what is wrong with it."""
        try:
            fields: dict[str, Any] = json.loads(text)
            version = fields.pop("version")
            fields["parts"] = tuple(Part(**part) for part in fields["parts"])
            record = MixRecord(**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError(f"This is not the record of a mix: {error}") from error
        if version != _VERSION:
            raise FormatError(
                f"The record of a mix has version {version}; this driftscore reads {_VERSION}"
            )
        return record


@dataclass(frozen=True, eq=False)
class Mix:
    """A mix, and its background alone at the level it has in the mix."""

    audio: Audio
    background: Audio


def draw_additive(event: Sound, background: Stretch, *, snr_db: float, seed: str = "") -> MixRecord:
    """Fix an additive mix: the background, as long as the event, at a power SNR."""
    rate, frames = event.audio.rate, len(event.audio.samples)
    _check(snr_db, [event], background, frames)
    active = active_part(event.audio.samples, rate)
    signal, noise = (_power(s[active]) for s in (event.audio.samples, background.samples))
    if noise == 0:
        raise AudioError(
            f"{background.sound.file} is silent where {event.file} sounds; "
            "draw another stretch of it"
        )
    gain_db = 10 * math.log10(signal) - 10 * math.log10(noise) - snr_db
    parts = (_part("background", background, 0, gain_db), _part("event", _whole(event), 0, 0.0))
    return MixRecord("additive", snr_db, rate, frames, parts, "whole clip", seed=seed)


def draw_scaper(
    events: Sequence[Sound],
    background: Stretch | None,
    *,
    snr_db: float,
    placement: TruncatedNormal | Sequence[float] = TruncatedNormal(),  # noqa: B008 (frozen)
    seconds: float = SOUNDSCAPE_S,
    ref_db: float = REF_DB,
    reverb: float | None = None,
    meter: LoudnessMeter,
    seed: str = "",
    rng: np.random.Generator,
) -> MixRecord:
    """Fix a soundscape as Scaper does: events at a loudness SNR over one background.

    `placement` is a distribution to draw from, or the second at which each event begins.
    Without a background the events stand at ref_db + snr_db all the same.
    """
    if not events:
        raise UsageError("A soundscape needs at least one event")
    check_reverb(reverb)
    rate = events[0].audio.rate
    frames = int(seconds * rate)
    _check(snr_db, events, background, frames)
    if isinstance(placement, TruncatedNormal):
        times = [placement.draw(rng) for _ in events]
    else:
        times = [float(time) for time in placement]
    if len(times) != len(events) or min(times) < 0:
        raise UsageError(f"{len(events)} events need as many times in seconds, not {times}")
    parts = [] if background is None else [_scaper_background(background, ref_db, meter)]
    for event, time in zip(events, times, strict=True):
        parts.append(_scaper_event(event, time, seconds, ref_db + snr_db, meter))
    where = str(placement) if isinstance(placement, TruncatedNormal) else "given"
    return MixRecord(
        "scaper", snr_db, rate, frames, tuple(parts), where, FADE_S, ref_db, reverb, seed
    )


def mix(record: MixRecord, *, read: Reader = sounds.load) -> Mix:
    """Build a mix from its record; `read` finds a sound by its file and rate."""
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
    whole = layers["background"] + layers["event"]
    return Mix(_audio(whole, record.rate), _audio(layers["background"], record.rate))


def active_part(samples: Samples, rate: int) -> NDArray[np.bool_]:
    """Return which samples belong to the active part of an event."""
    block = max(1, round(ACTIVE_BLOCK_S * rate))
    starts = np.arange(0, len(samples), block)
    sizes = np.diff(np.r_[starts, len(samples)])
    powers = np.add.reduceat(samples.astype(np.float64) ** 2, starts) / sizes
    return np.repeat(powers > powers.max() * 10 ** (-ACTIVE_DB / 10), sizes)


def _scaper_background(background: Stretch, ref_db: float, meter: LoudnessMeter) -> Part:
    loudness = meter(background.samples, background.sound.audio.rate)
    if loudness <= FLOOR:
        raise AudioError(
            f"{background.sound.file} is too quiet to be a background: {FLOOR:g} LUFS or less "
            f"from frame {background.start}"
        )
    return _part("background", background, 0, ref_db - loudness)


def _scaper_event(
    event: Sound, time_s: float, seconds: float, level_db: float, meter: LoudnessMeter
) -> Part:
    """Cut an event to the soundscape, then move it forward until it ends within."""
    rate = event.audio.rate
    length_s = min(len(event.audio.samples) / rate, seconds)
    time_s = min(time_s, seconds - length_s)
    frames = int(length_s * rate)  # not round(): Scaper may lose the last frame this way
    if frames < int(FADE_S * rate):
        raise AudioError(f"{event.file} is shorter than its fade of {FADE_S * 1000:g} ms")
    taken = Stretch(event, 0, frames)
    start = int(rate * time_s)
    return _part("event", taken, start, level_db - meter(taken.samples, rate))


def _rendered(part: Part, record: MixRecord, read: Reader) -> Floats:
    """Return a part's samples as they are added, cut where the mix ends."""
    sound = Sound(part.file, read(part.file, record.rate))
    if sound.sha256 != part.sha256:
        raise MismatchError(
            f"{part.file} is not what the mix was made from (sha256 {sound.sha256[:12]}, "
            f"recorded {part.sha256[:12]}): the file, or what decodes it, has changed"
        )
    taken = Stretch(sound, part.source_start, part.frames).samples
    samples: Floats = 10 ** (part.gain_db / 20) * taken.astype(np.float64)
    fade = int(record.fade_s * record.rate)
    if part.role == "event" and fade > 0:
        window = np.sin(np.linspace(0, np.pi / 2, fade))
        samples[:fade] *= window
        samples[-fade:] *= window[::-1]
    return samples[: record.frames - part.start]


def _check(snr_db: float, events: Sequence[Sound], background: Stretch | None, frames: int) -> None:
    """Refuse what cannot be mixed, in words."""
    if not math.isfinite(snr_db):
        raise UsageError(f"An SNR is a finite number of dB, not {snr_db!r}")
    rates = {event.audio.rate for event in events}
    rates |= {background.sound.audio.rate} if background else set()
    if len(rates) > 1:
        raise UsageError(f"The sounds of one mix need one rate, not {sorted(rates)} Hz")
    for event in events:
        if not event.audio.samples.any():
            raise AudioError(f"{event.file} is silent: every sample is zero")
    if background and background.frames != frames:
        raise UsageError(f"The mix has {frames} frames, its background {background.frames}")


def _whole(sound: Sound) -> Stretch:
    return Stretch(sound, 0, len(sound.audio.samples))


def _part(role: Role, stretch: Stretch, start: int, gain_db: float) -> Part:
    sound = stretch.sound
    return Part(
        role,
        sound.file,
        sound.label,
        sound.sha256,
        stretch.start,
        stretch.frames,
        start,
        float(gain_db),
    )


def _power(samples: Samples) -> float:
    return float(np.mean(samples.astype(np.float64) ** 2))


def _audio(samples: Floats, rate: int) -> Audio:
    return Audio(samples.astype(np.float32), rate)
