"""As `scaper`, with the SoX reverb that Acevedo et al. applied to every soundscape (reverb=0).

Scaper's `reverb=0` is the smallest amount of the effect, not its absence: see
`driftscore.lab.mixing.reverb`.
"""

import numpy as np

from driftscore.lab.mixing.loudness import LoudnessMeter
from driftscore.lab.mixing.record import MixRecord
from driftscore.lab.mixing.sounds import Excerpt, Sound
from driftscore.lab.mixing.soundscape import SOUNDSCAPE_S, SoundscapeSettings, draw_soundscape

SETTINGS = SoundscapeSettings(reverb=0.0)


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
    """Fix a soundscape of one event with reverb, placed at a time that is drawn."""
    return draw_soundscape(
        [event],
        background,
        SETTINGS,
        snr_db=snr_db,
        meter=meter,
        mixing="scaper_reverb",
        seed=seed,
        rng=rng,
    )
