"""Soundscapes as Scaper 1.6.5 makes them: events at a loudness SNR over one background.

With L the integrated loudness, the background is scaled by ref_db - L(background) and an event by
ref_db + snr_db - L(event). The event is faded in and out by a quarter sine of 10 ms and placed in
a soundscape of 10 s. The SNR holds while the event sounds.

Two properties of Scaper are not copied. It converts rates with SoX, after cutting, and we with
soxr, before: the two differ by about 3e-4 of the level, mostly where the cut rings; at one rate
they agree to the last bits. And its SoX binding inverts samples beyond full scale, which lossy
files can decode to (1.02 becomes -0.98); ours keep their value.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driftscore.errors import AudioError, UsageError
from driftscore.lab.mixing.loudness import FLOOR, LoudnessMeter
from driftscore.lab.mixing.record import MixPart, MixRecord, check_mix, mix_part
from driftscore.lab.mixing.reverb import check_reverb
from driftscore.lab.mixing.sounds import Excerpt, Sound

REF_DB = -36.0
SOUNDSCAPE_S = 10.0
FADE_S = 0.01


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
class SoundscapeSettings:
    """How a soundscape is made.

    `placement` is a distribution to draw from, or the second at which each event begins. `reverb`
    is the amount of SoX reverb in [0, 1]; None, Scaper's default, is none.
    """

    placement: TruncatedNormal | tuple[float, ...] = TruncatedNormal()
    seconds: float = SOUNDSCAPE_S
    ref_db: float = REF_DB
    reverb: float | None = None

    def __post_init__(self) -> None:
        check_reverb(self.reverb)

    def times(self, events: int, rng: np.random.Generator) -> list[float]:
        """Return the second at which each event begins."""
        if isinstance(self.placement, TruncatedNormal):
            return [self.placement.draw(rng) for _ in range(events)]
        found = [float(time) for time in self.placement]
        if len(found) != events or min(found) < 0:
            raise UsageError(f"{events} events need as many times in seconds, got {found}")
        return found


def draw_soundscape(
    events: Sequence[Sound],
    background: Excerpt | None,
    settings: SoundscapeSettings = SoundscapeSettings(),  # noqa: B008 (frozen)
    *,
    snr_db: float,
    meter: LoudnessMeter,
    mixing: str = "scaper",
    seed: str = "",
    rng: np.random.Generator,
) -> MixRecord:
    """Fix a soundscape; without a background the events still have the level ref_db + snr_db."""
    if not events:
        raise UsageError("A soundscape needs at least one event")
    rate, seconds, ref_db = events[0].audio.rate, settings.seconds, settings.ref_db
    frames = int(seconds * rate)
    check_mix(snr_db, events, background, frames)
    times = settings.times(len(events), rng)
    parts = [] if background is None else [_background(background, ref_db, meter)]
    for event, time in zip(events, times, strict=True):
        parts.append(_event(event, time, seconds, ref_db + snr_db, meter))
    where = settings.placement
    placement = str(where) if isinstance(where, TruncatedNormal) else "given"
    fixed = (placement, FADE_S, ref_db, settings.reverb, seed)
    return MixRecord(mixing, snr_db, rate, frames, tuple(parts), *fixed)


def _background(background: Excerpt, ref_db: float, meter: LoudnessMeter) -> MixPart:
    loudness = meter(background.samples, background.sound.audio.rate)
    if loudness <= FLOOR:
        raise AudioError(
            f"{background.sound.file} is too quiet to be a background: {FLOOR:g} LUFS or less "
            f"from frame {background.start}"
        )
    return mix_part("background", background, 0, ref_db - loudness)


def _event(
    event: Sound, time_s: float, seconds: float, level_db: float, meter: LoudnessMeter
) -> MixPart:
    """Cut an event to the soundscape, then move it forward until it ends inside."""
    rate = event.audio.rate
    length_s = min(len(event.audio.samples) / rate, seconds)
    time_s = min(time_s, seconds - length_s)
    frames = int(length_s * rate)  # not round(): Scaper may lose the last frame this way
    if frames < int(FADE_S * rate):
        raise AudioError(f"{event.file} is shorter than its fade of {FADE_S * 1000:g} ms")
    taken = Excerpt(event, 0, frames)
    start = int(rate * time_s)
    return mix_part("event", taken, start, level_db - meter(taken.samples, rate))
