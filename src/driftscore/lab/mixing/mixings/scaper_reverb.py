"""As `scaper`, with the SoX reverb that Acevedo et al. applied to every soundscape (reverb=0).

Scaper's `reverb=0` is the smallest amount of the effect, not its absence: see
`driftscore.lab.mixing.reverb`.
"""

from functools import partial

from driftscore.lab.mixing.soundscape import draw_soundscape, soundscape_s

draw = partial(draw_soundscape, reverb=0.0, mixing="scaper_reverb")
background_s = soundscape_s
