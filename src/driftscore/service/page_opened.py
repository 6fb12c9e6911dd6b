"""The recording of `driftscore serve FILE --events EVENTS`: listen to its events, and answer.

It may be a night: only the parts that are asked for are read from disk. The answers go where those
of `driftscore review EVENTS` are, into the store beside the list of events.
"""

import tempfile
from pathlib import Path

import numpy as np
import soundfile

from driftscore.audio import recordings
from driftscore.audio.decoding import check_file
from driftscore.audio.recordings import Audio, native_blocks, read_blocks
from driftscore.audio.spectrogram import MAX_COLUMNS, Picture, spectrogram
from driftscore.decisions.review import Review
from driftscore.errors import UsageError

_GLIMPSE_S = 0.25  # of each column of the overview


class OpenedRecording:
    """A recording on disk, its events and the answers about them."""

    def __init__(self, path: Path, events: Path) -> None:
        check_file(path)
        self.path = path
        self._review = Review(events)
        self._numbers = [
            number
            for number, event in enumerate(self._review.events)
            if Path(event.source).name == path.name
        ]
        if not self._numbers:
            files = sorted({event.source for event in self._review.events})
            named = f"those of {', '.join(files[:3])}" if files else "none at all"
            raise UsageError(f"{events} has no events of {path.name}; it has {named}")
        try:
            soundfile.info(path)
        except soundfile.LibsndfileError:  # ffmpeg reads it, but cannot go to a place of it at once
            self._folder = tempfile.TemporaryDirectory(prefix="driftscore-")
            path = Path(self._folder.name) / "copy.wav"
            with (
                native_blocks(self.path) as (rate, blocks),
                soundfile.SoundFile(path, "w", rate, 1, "PCM_16", format="RF64") as copy,
            ):
                for block in blocks:
                    copy.write(block)
        self._readable = path
        self.seconds = float(soundfile.info(path).duration)

    @property
    def labels(self) -> list[str]:
        """The labels of the events."""
        return sorted({self._review.events[number].label for number in self._numbers})

    def events(self) -> list[dict[str, object]]:
        """Return the events in order of time, each with its number and the answer about it."""
        names = ("label", "start_s", "end_s", "score", "verdict")
        numbered = [(number, self._review.events[number]) for number in self._numbers]
        numbered.sort(key=lambda pair: pair[1].start_s)
        return [{"id": n, **{name: getattr(e, name) for name in names}} for n, e in numbered]

    def answer(self, number: int, verdict: str) -> bool:
        """Keep the answer about an event; return whether there is such an event."""
        if number not in self._numbers:
            return False
        self._review.answer(number, verdict)
        return True

    def part(self, start_s: float, seconds: float, rate: int) -> Audio:
        """Return a part at a sample rate, moved back at the end of the recording."""
        return read_part(self._readable, start_s, seconds, rate)

    def overview(self) -> Picture:
        """Return a spectrogram of a short piece of each of its columns."""
        rate = soundfile.info(self._readable).samplerate
        if self.seconds <= MAX_COLUMNS * _GLIMPSE_S:
            return spectrogram(self.part(0.0, self.seconds, rate))
        starts = (np.arange(MAX_COLUMNS) + 0.5) / MAX_COLUMNS * self.seconds
        pieces = [self.part(start, _GLIMPSE_S, rate).samples for start in starts.tolist()]
        drawn = spectrogram(Audio(np.concatenate(pieces), rate))
        return Picture(drawn.levels, self.seconds, drawn.low_hz, drawn.high_hz)


def read_part(path: Path, start_s: float, seconds: float, rate: int) -> Audio:
    """Return a part of a file at a sample rate, moved back at its end."""
    audio = recordings.read_part(path, start_s, start_s + seconds, full_length=True)
    return read_blocks((audio.rate, iter([audio.samples])), rate=rate, name=path.name)
