"""An event in a soundscape of 10 s at a loudness SNR, as Scaper makes it, without reverb.

The details are in `driftscore.lab.mixing.soundscape`.
"""

import numpy as np

from driftscore.lab.mixing.loudness import LoudnessMeter
from driftscore.lab.mixing.record import MixRecord
from driftscore.lab.mixing.sounds import Excerpt, Sound
from driftscore.lab.mixing.soundscape import SOUNDSCAPE_S, draw_soundscape


def background_s(event_s: float) -> float:
    """Return the length of a soundscape, whatever the length of the event."""
    return SOUNDSCAPE_S


def draw(
    event: Sound,
    background: Excerpt,
    *,
    snr_db: float,
    meter: LoudnessMeter,
    seed: str = "",
    rng: np.random.Generator,
) -> MixRecord:
    """Fix a soundscape of one event, placed at a time that is drawn."""
    return draw_soundscape([event], background, snr_db=snr_db, meter=meter, seed=seed, rng=rng)
