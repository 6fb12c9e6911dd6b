"""The audio of a soundscape, block by block: memory does not grow with its length.

A block is the sum of the parts that reach into it. It is written as 16 bits, rounded to the
nearest value, so that the samples do not depend on the writer. How long a block is changes nothing.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from driftscore.errors import MismatchError, UsageError
from driftscore.files import cache_home, replacing, sha256
from driftscore.lab.conditions import canonical
from driftscore.lab.corpora.folders import root
from driftscore.lab.corpora.loading import load
from driftscore.lab.corpora.places import shared_audio
from driftscore.lab.corpora.soundscapes.drawing import draw
from driftscore.lab.corpora.soundscapes.truth import (
    VERSION,
    Soundscape,
    SoundscapeRecipe,
    read_soundscape,
)
from driftscore.lab.mixing.record import MixPart
from driftscore.lab.mixing.sounds import Excerpt, Sound
from driftscore.progress import progress_bar

BLOCK_S = 20.0
FORMATS = {".flac": "FLAC", ".wav": "WAV"}
_STEPS = 32_767

Floats = NDArray[np.float64]


def truth_path(path: str | Path) -> Path:
    """Return where the truth of a soundscape is written: beside its audio."""
    return Path(path).with_suffix(".json")


def write_soundscape(
    soundscape: Soundscape, path: str | Path, *, home: str | None = None, show: bool | None = None
) -> None:
    """Write the audio of a soundscape as .flac or .wav, and its truth beside it as .json."""
    if (suffix := Path(path).suffix.lower()) not in FORMATS:
        raise UsageError(f"Unsupported format {suffix!r}: use .flac or .wav")
    rate = soundscape.recipe.rate
    with (
        replacing(path) as partial,
        soundfile.SoundFile(partial, "w", rate, 1, subtype="PCM_16", format=FORMATS[suffix]) as out,
        progress_bar("Soundscape (seconds)", round(soundscape.seconds), show=show) as advance,
    ):
        for block in soundscape_blocks(soundscape, home=home):
            out.write(block)
            advance(round(len(block) / rate))
    soundscape.save(truth_path(path))


def cached_soundscape(
    recipe: SoundscapeRecipe, *, home: str | Path | None = None, show: bool | None = None
) -> tuple[Path, Soundscape]:
    """Return the audio and the truth of a recipe from the cache folder, made there if need be.

    The name of the file is a digest of the recipe and of the manifest of the recordings.
    """
    manifest = root(shared_audio() if home is None else home, "manifest.csv") / "manifest.csv"
    key = canonical([VERSION, asdict(recipe), sha256(manifest)])
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    path = cache_home() / "soundscapes" / f"{recipe.split}-{recipe.seed}-{name}.flac"
    if path.is_file() and truth_path(path).is_file():
        return path, read_soundscape(truth_path(path))
    place = None if home is None else str(home)
    made = draw(recipe, home=place)
    write_soundscape(made, path, home=place, show=show)
    return path, made


def soundscape_blocks(
    soundscape: Soundscape, *, home: str | None = None, block_s: float = BLOCK_S
) -> Iterator[NDArray[np.int16]]:
    """Yield the samples of a soundscape; recordings are read from `home` or the shared ones."""
    place = root(shared_audio() if home is None else home, "manifest.csv")
    size = max(1, round(block_s * soundscape.recipe.rate))
    scale = 10 ** (soundscape.scale_db / 20)
    parts = [*soundscape.backgrounds, *(event.part for event in soundscape.events)]
    for start in range(0, soundscape.frames, size):
        block = np.zeros(min(size, soundscape.frames - start))
        for part in parts:
            low, high = max(start, part.start), min(start + len(block), part.start + part.frames)
            if low < high:
                samples = _part(part, soundscape, place, low - part.start, high - part.start)
                block[low - start : high - start] += samples
        yield np.rint(np.clip(scale * block, -1, 1) * _STEPS).astype(np.int16)


def _part(part: MixPart, soundscape: Soundscape, place: Path, low: int, high: int) -> Floats:
    """Return the samples of a part from one of its frames to another, with gain and fades."""
    rate = soundscape.recipe.rate
    sound = Sound(part.file, load(str(place / part.file), rate))
    if sound.sha256 != part.sha256:
        raise MismatchError(
            f"{part.file} is not what the soundscape was made from (sha256 {sound.sha256[:12]}, "
            f"recorded {part.sha256[:12]}): the file or its decoder has changed"
        )
    taken = Excerpt(sound, part.source_start + low, high - low).samples
    samples: Floats = 10 ** (part.gain_db / 20) * taken.astype(np.float64)
    is_event = part.role == "event"
    fade = int(soundscape.fade_s * rate) if is_event else round(soundscape.crossfade_s * rate)
    at = np.arange(low, high)
    if is_event or part.start > 0:
        samples *= _ramp(at, fade)
    if is_event or part.start + part.frames < soundscape.frames:
        samples *= _ramp(part.frames - 1 - at, fade)
    return samples


def _ramp(frames: NDArray[np.int64], fade: int) -> Floats:
    """Return a quarter sine over the first `fade` frames, then ones."""
    if fade < 2:
        return np.ones(len(frames))
    ramp: Floats = np.sin(np.pi / 2 * np.minimum(frames / (fade - 1), 1.0))
    return ramp
