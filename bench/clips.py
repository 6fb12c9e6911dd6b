"""Sound files for the benchmarks: noise, as many and as long as wanted, little of it on disk."""

import os
from pathlib import Path

import numpy as np
import soundfile

LABELS = "dog bark, siren, rain, speech, music"
RATE = 16_000
DISTINCT = 40


def write_noise(path: Path, seconds: float, *, rate: int = RATE, seed: int = 0) -> Path:
    """Write 16-bit noise as a stream, a minute at a time: ten hours take no memory."""
    rng = np.random.default_rng(seed)
    left = round(seconds * rate)
    with soundfile.SoundFile(path, "w", rate, 1, subtype="PCM_16") as sound:
        while left:
            frames = min(left, 60 * rate)
            sound.write(rng.integers(-3000, 3000, frames, np.int16))
            left -= frames
    return path


def write_clips(folder: Path, clips: int, *, seconds: float = 1.0) -> Path:
    """Write a folder of clips: many names, and under them a few dozen contents in turn."""
    folder.mkdir(parents=True)
    for number in range(clips):
        path = folder / f"{number:06d}.wav"
        if number < DISTINCT:
            write_noise(path, seconds, seed=number)
        else:
            os.link(folder / f"{number % DISTINCT:06d}.wav", path)
    return folder
