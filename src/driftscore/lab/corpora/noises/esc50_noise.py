"""Noise from ESC-50 itself: its noise-like classes, and crowds of its human sounds.

Only clips of folds 1 to 4 that `esc50_public` does not test are used. A class is never mixed into
itself, nor a crowd into a sound that people make. A crowd is the sum of several clips, each at the
same level, named `esc50_noise:{file}|{file}|...` and generated again from that name.
"""

from pathlib import Path

import numpy as np

from driftscore.audio.recordings import Audio
from driftscore.lab.corpora.datasets import esc50, esc50_public
from driftscore.lab.corpora.folders import load
from driftscore.lab.corpora.noises.protocol import NoiseRecording

ABOUT = esc50_public.ABOUT
STEADY = (
    "rain", "sea_waves", "wind", "engine", "vacuum_cleaner", "train", "airplane",
    "washing_machine", "crackling_fire",
)  # fmt: skip
"""Classes whose clips are used as they are."""
HUMAN = (
    "laughing", "coughing", "sneezing", "clapping", "footsteps", "drinking_sipping", "breathing",
)  # fmt: skip
"""Classes that a crowd is made of."""
OF_A_CROWD = 8
_CROWDS = 24
_ALIKE = {"wind": ("sea_waves",), "sea_waves": ("wind", "rain"), "rain": ("sea_waves",)}
"""Classes that people take for each other in a noise: they are avoided, too."""
_LEVEL = 0.1
_SEPARATOR = "|"

missing, default_home = esc50.missing, esc50_public.default_home


def recordings(home: Path) -> list[NoiseRecording]:
    """Return the clips of noise-like classes, and a fixed number of crowds."""
    tested = esc50_public.listed()
    free = [clip for clip in esc50.clips(home) if clip.fold != "5" and clip.id not in tested]
    steady = [
        NoiseRecording(
            str(clip.path), clip.id, clip.labels[0].replace("_", " "),
            (clip.labels[0], *_ALIKE.get(clip.labels[0], ())),
        )
        for clip in free if clip.labels[0] in STEADY
    ]  # fmt: skip
    people = [str(clip.path) for clip in free if clip.labels[0] in HUMAN]
    crowds = []
    for number in range(_CROWDS if people else 0):  # the same number always has the same clips
        step = 1 + number % 7
        chosen = [people[(7 * number + step * k) % len(people)] for k in range(OF_A_CROWD)]
        file = f"esc50_noise:{_SEPARATOR.join(chosen)}"
        crowds.append(NoiseRecording(file, f"crowd-{number}", "crowd", HUMAN))
    return steady + crowds


def make(description: str, rate: int) -> Audio:
    """Return the sum of several clips at the same level."""
    parts = [load(file, rate).samples for file in description.split(_SEPARATOR)]
    total = np.zeros(max(map(len, parts)))
    for part in parts:
        total[: len(part)] += part / (np.sqrt(np.mean(np.square(part, dtype=np.float64))) + 1e-12)
    level = np.sqrt(np.mean(np.square(total)))
    return Audio((_LEVEL * total / max(level, 1e-12)).astype(np.float32), rate)
