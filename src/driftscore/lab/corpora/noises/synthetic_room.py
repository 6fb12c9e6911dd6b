"""Synthetic noise in a simulated box room: as `synthetic`, with the room's own response.

The room is 6 x 5 x 3 m, simulated by the image source method (`driftscore.lab.mixing.rooms`).
"""

from dataclasses import replace
from functools import partial

from driftscore.lab.corpora.noises import synthetic

ABOUT = replace(synthetic.ABOUT, title="Synthetic noise in a box room")
recordings = synthetic.recordings
missing = synthetic.missing
sample = partial(synthetic.draw, response="room")
