"""Noise under the complete clip at a power SNR, measured over the clip's active part.

power(event) / power(noise) = 10 ** (snr_db / 10) over the active part, the event left as it is.
The *active part* consists of the blocks of 20 ms whose level is within 50 dB of the loudest block:
everything but digital silence and padding.
"""

import math

import numpy as np
from numpy.typing import NDArray

from driftscore.audio.recordings import Samples
from driftscore.errors import AudioError
from driftscore.lab.mixing.loudness import LoudnessMeter
from driftscore.lab.mixing.record import MixRecord, check_mix, mix_part
from driftscore.lab.mixing.sounds import Excerpt, Sound

ACTIVE_BLOCK_S = 0.02
ACTIVE_DB = 50.0


def background_s(event_s: float) -> float:
    """Return the length of the event: the noise is as long as the clip."""
    return event_s


def draw(
    event: Sound,
    background: Excerpt,
    *,
    snr_db: float,
    meter: LoudnessMeter | None = None,
    seed: str = "",
    rng: np.random.Generator | None = None,
) -> MixRecord:
    """Fix an additive mix; nothing is measured in loudness and nothing is drawn."""
    rate, frames = event.audio.rate, len(event.audio.samples)
    check_mix(snr_db, [event], background, frames)
    active = active_part(event.audio.samples, rate)
    signal, noise = (
        float(np.mean(samples[active].astype(np.float64) ** 2))
        for samples in (event.audio.samples, background.samples)
    )
    if noise == 0:
        raise AudioError(
            f"{background.sound.file} is silent in the active part of {event.file}; "
            "draw another excerpt of it"
        )
    gain_db = 10 * math.log10(signal) - 10 * math.log10(noise) - snr_db
    parts = (mix_part("background", background, 0, gain_db), mix_part("event", event.full, 0, 0.0))
    return MixRecord("additive", snr_db, rate, frames, parts, "whole clip", seed=seed)


def active_part(samples: Samples, rate: int) -> NDArray[np.bool_]:
    """Return which samples belong to the active part of an event."""
    block = max(1, round(ACTIVE_BLOCK_S * rate))
    starts = np.arange(0, len(samples), block)
    sizes = np.diff(np.r_[starts, len(samples)])
    powers = np.add.reduceat(samples.astype(np.float64) ** 2, starts) / sizes
    return np.repeat(powers > powers.max() * 10 ** (-ACTIVE_DB / 10), sizes)
