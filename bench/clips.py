"""Write sound files for the benchmarks: noise, of any number and length."""

import os
from pathlib import Path

import numpy as np
import soundfile

LABELS = "dog bark, siren, rain, speech, music"
RATE = 16_000
DISTINCT = 40
"""How many files of a folder have a content of their own; the others are hard links to them."""


def write_noise(path: Path, seconds: float, *, rate: int = RATE, seed: int = 0) -> Path:
    """Write 16-bit noise in blocks of one minute, so that a long file needs little memory."""
    rng = np.random.default_rng(seed)
    left = round(seconds * rate)
    with soundfile.SoundFile(path, "w", rate, 1, subtype="PCM_16") as sound:
        while left:
            frames = min(left, 60 * rate)
            sound.write(rng.integers(-3000, 3000, frames, np.int16))
            left -= frames
    return path


def write_clips(folder: Path, clips: int, *, seconds: float = 1.0) -> Path:
    """Write a folder of clips; after the first few dozen, contents repeat under new names."""
    folder.mkdir(parents=True)
    for number in range(clips):
        path = folder / f"{number:06d}.wav"
        if number < DISTINCT:
            write_noise(path, seconds, seed=number)
        else:
            os.link(folder / f"{number % DISTINCT:06d}.wav", path)
    return folder
