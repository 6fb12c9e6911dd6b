"""The audio of a soundscape, block by block: memory does not grow with its length.

A block is the sum of the parts that reach into it. It is written as 16 bits, rounded to the
nearest value, so that the samples do not depend on the writer. How long a block is changes nothing.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from driftscore.errors import UsageError
from driftscore.lab.corpora.soundscapes.draw import Material
from driftscore.lab.corpora.soundscapes.truth import Soundscape, truth_path
from driftscore.lab.mixing.record import check_sound
from driftscore.lab.mixing.sounds import Excerpt
from driftscore.storage.files import check_output, replacing
from driftscore.system.progress import progress_bar

BLOCK_S = 20.0
FORMATS = {".flac": "FLAC", ".wav": "WAV"}
_STEPS = 32_767

Floats = NDArray[np.float64]


def write_soundscape(
    soundscape: Soundscape, path: str | Path, material: Material, *, show: bool | None = None
) -> None:
    """Write the audio of a soundscape as .flac or .wav, and its truth beside it as .json."""
    check_target(path)
    rate, format = soundscape.recipe.rate, FORMATS[Path(path).suffix.lower()]
    with (
        replacing(path) as partial,
        soundfile.SoundFile(partial, "w", rate, 1, subtype="PCM_16", format=format) as out,
        progress_bar("Soundscape (seconds)", round(soundscape.seconds), show=show) as advance,
    ):
        for block in soundscape_blocks(soundscape, material):
            out.write(block)
            advance(round(len(block) / rate))
    soundscape.save(truth_path(path))


def check_target(path: str | Path) -> None:
    """Refuse a file that no soundscape can be written to, before anything is drawn."""
    if (suffix := Path(path).suffix.lower()) not in FORMATS:
        raise UsageError(f"Unsupported format {suffix!r}: use .flac or .wav")
    check_output(path)


def soundscape_blocks(
    soundscape: Soundscape, material: Material, *, block_s: float = BLOCK_S
) -> Iterator[NDArray[np.int16]]:
    """Yield the samples of a soundscape that is made of these recordings."""
    rate, frames = soundscape.recipe.rate, soundscape.frames
    size, scale = max(1, round(block_s * rate)), 10 ** (soundscape.scale_db / 20)
    parts = [*soundscape.backgrounds, *(event.part for event in soundscape.events)]
    for start in range(0, frames, size):
        block = np.zeros(min(size, frames - start))
        for part in parts:
            low, high = max(start, part.start), min(start + len(block), part.start + part.frames)
            if low >= high:
                continue
            sound = material.sound(part.file, rate)
            check_sound(part, sound, "soundscape")
            at = np.arange(low - part.start, high - part.start)
            taken = Excerpt(sound, part.source_start + int(at[0]), len(at)).samples
            samples: Floats = 10 ** (part.gain_db / 20) * taken.astype(np.float64)
            event = part.role == "event"
            fade = int(soundscape.fade_s * rate) if event else round(soundscape.crossfade_s * rate)
            if event or part.start > 0:
                samples *= _ramp(at, fade)
            if event or part.start + part.frames < frames:
                samples *= _ramp(part.frames - 1 - at, fade)
            block[low - start : high - start] += samples
        yield np.rint(np.clip(scale * block, -1, 1) * _STEPS).astype(np.int16)


def _ramp(frames: NDArray[np.int64], fade: int) -> Floats:
    """Return a quarter sine over the first `fade` frames, then ones."""
    if fade < 2:
        return np.ones(len(frames))
    return np.sin(np.pi / 2 * np.minimum(frames / (fade - 1), 1.0))
