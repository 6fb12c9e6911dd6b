"""An event in a soundscape of 10 s at a loudness SNR, as Scaper makes it, without reverb.

The details are in `driftscore.lab.mixing.soundscape`.
"""

from functools import partial

from driftscore.lab.mixing.soundscape import draw_soundscape, soundscape_s

draw = partial(draw_soundscape, mixing="scaper")
background_s = soundscape_s
