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

import numpy as np

from driftscore.errors import AudioError, UsageError
from driftscore.lab.mixing.loudness import FLOOR, LoudnessMeter
from driftscore.lab.mixing.record import MixPart, MixRecord, check_mix, mix_part
from driftscore.lab.mixing.sounds import Excerpt, Sound

REF_DB = -36.0
SOUNDSCAPE_S = 10.0
FADE_S = 0.01
MEAN_S, DEVIATION_S, MIN_S, MAX_S = 3.0, 1.5, 0.0, 6.0
"""When an event begins: a normal draw in seconds, drawn again while out of bounds."""


def draw_time(rng: np.random.Generator) -> float:
    """Return the second at which an event begins."""
    while not MIN_S <= (value := rng.normal(MEAN_S, DEVIATION_S)) <= MAX_S:
        pass
    return float(value)


def draw_soundscape(
    events: Sound | Sequence[Sound],
    background: Excerpt | None,
    *,
    times: Sequence[float] | None = None,
    reverb: float | None = None,
    snr_db: float,
    meter: LoudnessMeter,
    mixing: str = "scaper",
    seed: str = "",
    rng: np.random.Generator,
) -> MixRecord:
    """Fix a soundscape of one event, or of several.

    Without a background the events still have the level ref_db + snr_db. `times` are the seconds at
    which the events begin; None draws them. `reverb` is the amount of SoX reverb in [0, 1]; None,
    Scaper's default, is none.
    """
    events = [events] if isinstance(events, Sound) else events
    if not events:
        raise UsageError("A soundscape needs at least one event")
    if reverb is not None and not 0 <= reverb <= 1:
        raise UsageError(f"reverb must be None or a number from 0 to 1, got {reverb!r}")
    rate = events[0].audio.rate
    frames = int(SOUNDSCAPE_S * rate)
    check_mix(snr_db, events, background, frames)
    placement = "given"
    if times is None:
        times = [draw_time(rng) for _ in events]
        placement = f"truncnorm({MEAN_S:g}, {DEVIATION_S:g}, {MIN_S:g}, {MAX_S:g})"
    elif len(times) != len(events) or min(times) < 0:
        raise UsageError(f"{len(events)} events need as many times in seconds, got {times}")
    parts: list[MixPart] = []
    if background is not None:
        loudness = meter(background.samples, rate)
        if loudness <= FLOOR:
            raise AudioError(
                f"{background.sound.file} is too quiet to be a background: {FLOOR:g} LUFS or less "
                f"from frame {background.start}"
            )
        parts.append(mix_part("background", background, 0, REF_DB - loudness))
    for event, time_s in zip(events, times, strict=True):
        # An event is cut to the soundscape, then moved forward until it ends inside.
        length_s = min(len(event.audio.samples) / rate, SOUNDSCAPE_S)
        event_frames = int(length_s * rate)  # not round(): Scaper may lose the last frame this way
        if event_frames < int(FADE_S * rate):
            raise AudioError(f"{event.file} is shorter than its fade of {FADE_S * 1000:g} ms")
        taken = Excerpt(event, 0, event_frames)
        start = int(rate * min(time_s, SOUNDSCAPE_S - length_s))
        gain_db = REF_DB + snr_db - meter(taken.samples, rate)
        parts.append(mix_part("event", taken, start, gain_db))
    fixed = (placement, FADE_S, REF_DB, reverb, seed)
    return MixRecord(mixing, snr_db, rate, frames, tuple(parts), *fixed)


def soundscape_s(event_s: float) -> float:
    """Return the length of a soundscape, whatever the length of the event."""
    return SOUNDSCAPE_S
