"""A file, played as if it were live.

Times follow the audio whatever the speed. The first sample has the time at which the file is
opened, or an earlier one if the file is read faster than it lasts: nothing lies in the future.
"""

import threading
import time
from collections.abc import Iterator

import soundfile

from driftscore.audio.decoding import decoded
from driftscore.errors import UsageError
from driftscore.live.blocks import BLOCK_S, AudioBlock


class PlayedFile:
    """A sound file at `speed` times real time; 0 for as fast as possible."""

    waits = True
    endless = False

    def __init__(self, path: str, *, speed: float = 1.0) -> None:
        if speed < 0:
            raise UsageError(f"The speed must be positive, or 0 for the fastest; got {speed:g}")
        self._path = path
        self._speed = speed

    def describe(self) -> str:
        """Return the path of the file."""
        return self._path

    def blocks(self, stop: threading.Event) -> Iterator[AudioBlock]:
        """Yield the blocks of the file, each when its time has come."""
        begun = time.monotonic()
        speed = self._speed or float("inf")
        first_s = begun - max(0.0, self._seconds() * (1 - 1 / speed)) if speed > 1 else begun
        position = 0
        with decoded(self._path) as (rate, parts):
            step = max(1, round(rate * BLOCK_S))
            for samples in parts:
                for first in range(0, len(samples), step):
                    part = samples[first : first + step]
                    due = begun + (position + len(part)) / rate / speed
                    if stop.wait(max(0.0, due - time.monotonic())):
                        return
                    yield AudioBlock(part, rate, first_s + position / rate)
                    position += len(part)

    def _seconds(self) -> float:
        """Return the length of the file; one that only ffmpeg reads is decoded for it."""
        try:
            return float(soundfile.info(self._path).duration)
        except (soundfile.LibsndfileError, OSError):
            with decoded(self._path) as (rate, parts):
                return sum(map(len, parts)) / rate
