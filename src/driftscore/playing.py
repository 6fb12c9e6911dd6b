"""Play a part of a recording through a player that is installed; none is required."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import soundfile

from driftscore.audio import Audio, native_blocks
from driftscore.decoding import Samples, check_file

PLAYERS: tuple[tuple[str, ...], ...] = (
    ("ffplay", "-nodisp", "-autoexit", "-loglevel", "quiet"),
    ("afplay",),
    ("pw-play",),
    ("paplay",),
    ("aplay", "--quiet"),
    ("play", "-q"),
)
"""Programs that play a wav, with their arguments; the first one that is installed is used."""
_MOST_S = 60.0


def find_player() -> tuple[str, ...] | None:
    """Return the command of an installed player, None if there is none."""
    return next((command for command in PLAYERS if shutil.which(command[0])), None)


def excerpt(path: str | os.PathLike[str], start_s: float, end_s: float) -> Audio:
    """Read a part of a recording, at most a minute; formats that can be sought in are quick."""
    start_s, end_s = max(0.0, start_s), min(end_s, start_s + _MOST_S)
    check_file(Path(path))
    try:
        with soundfile.SoundFile(os.fspath(path)) as file:
            file.seek(min(file.frames, round(start_s * file.samplerate)))
            samples = file.read(round((end_s - start_s) * file.samplerate), dtype="float32")
            return Audio(samples, file.samplerate)
    except (soundfile.LibsndfileError, RuntimeError):  # a format that only ffmpeg reads
        return _streamed(path, start_s, end_s)


def _streamed(path: str | os.PathLike[str], start_s: float, end_s: float) -> Audio:
    parts: list[Samples] = []
    with native_blocks(path) as (rate, blocks):
        place = 0
        for block in blocks:
            first, last = round(start_s * rate) - place, round(end_s * rate) - place
            parts.append(block[max(0, first) : max(0, last)])
            place += len(block)
            if place >= end_s * rate:
                break
    return Audio(np.concatenate([np.zeros(0, np.float32), *parts]), rate)


@contextmanager
def playing(audio: Audio, player: tuple[str, ...]) -> Iterator[None]:
    """Play samples while the block runs; what is not over by then is cut short."""
    with tempfile.TemporaryDirectory(prefix="driftscore-") as folder:
        path = Path(folder) / "event.wav"
        soundfile.write(path, audio.samples, audio.rate, subtype="PCM_16")
        with subprocess.Popen(
            [*player, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield
            finally:
                process.kill()
