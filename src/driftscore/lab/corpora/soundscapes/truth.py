"""What a soundscape is made of and what is true about it, as one JSON file.

A *recipe* says what is wanted and carries the seed. From it follows a `Soundscape`: every clip,
position and gain. The audio can be built again from the soundscape alone, as a mix from its record.
Files are relative to the folder of the recordings. Positions and lengths of parts are frames at the
recipe's rate; times of events are seconds.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from driftscore.errors import FormatError, UsageError
from driftscore.lab.conditions import canonical
from driftscore.lab.mixing.record import MixPart
from driftscore.storage.files import replacing

VERSION = 1
"""Raise it whenever the same recipe gives another soundscape."""

MIN_SECONDS, MAX_SECONDS = 60.0, 86_400.0
MIN_RATE, MAX_RATE = 8_000, 192_000


@dataclass(frozen=True)
class SoundscapeRecipe:
    """What a soundscape shall contain.

    `split` names the recordings that it is made of, as part of the seed: the same recipe with
    another split draws other times. Settings are chosen on one split and reported on another.
    `words` are the labels of its events, or how many labels to draw. `others` are events of labels
    that are none of the words. In one stretch of `quiet_s` seconds there is no event at all. The
    SNR of every event is drawn uniformly from `snr_db`, in dB.
    """

    split: str = "events"
    seconds: float = 7200.0
    seed: int = 1
    words: tuple[str, ...] | int = 12
    events: int = 80
    others: int = 40
    quiet_s: float = 1200.0
    snr_db: tuple[float, float] = (0.0, 15.0)
    rate: int = 32_000

    def __post_init__(self) -> None:
        if not MIN_SECONDS <= self.seconds <= MAX_SECONDS:
            raise UsageError(
                f"A soundscape has {MIN_SECONDS:g} to {MAX_SECONDS:g} seconds, got {self.seconds:g}"
            )
        if not 0 <= self.quiet_s <= self.seconds / 2:
            raise UsageError(
                f"quiet_s must be at most half of the {self.seconds:g} s, got {self.quiet_s:g}"
            )
        if min(self.events, self.others) < 0:
            raise UsageError(f"Events are counted from 0, got {self.events} and {self.others}")
        if not (all(map(math.isfinite, self.snr_db)) and self.snr_db[0] <= self.snr_db[1]):
            raise UsageError(f"snr_db must be two numbers, low and high, got {self.snr_db}")
        if not MIN_RATE <= self.rate <= MAX_RATE:
            raise UsageError(f"rate must be {MIN_RATE} to {MAX_RATE} Hz, got {self.rate}")
        labels = self.words if isinstance(self.words, tuple) else tuple(range(self.words))
        if not labels or len(set(labels)) < len(labels):
            raise UsageError(
                f"Words are labels, each once, or how many to draw, got {self.words!r}"
            )


@dataclass(frozen=True)
class TrueEvent:
    """One event of a soundscape; `wanted` is whether its label is one of the words."""

    label: str
    start_s: float
    end_s: float
    wanted: bool
    snr_db: float
    part: MixPart


@dataclass(frozen=True)
class Soundscape:
    """Everything that determines a soundscape, apart from the recordings that it names.

    `quiet_s` is when the quiet part starts and ends. `fade_s` is the fade of events, `crossfade_s`
    that between backgrounds. `scale_db` is added to every gain, so that nothing is clipped.
    """

    recipe: SoundscapeRecipe
    words: tuple[str, ...]
    frames: int
    quiet_s: tuple[float, float]
    backgrounds: tuple[MixPart, ...]
    events: tuple[TrueEvent, ...]
    ref_db: float
    scale_db: float
    fade_s: float
    crossfade_s: float

    @property
    def wanted(self) -> tuple[TrueEvent, ...]:
        """The events whose labels are words, in order of time."""
        return tuple(event for event in self.events if event.wanted)

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self.frames / self.recipe.rate

    @property
    def digest(self) -> str:
        """A digest of everything that determines the audio and the truth."""
        return hashlib.sha256(canonical({"version": VERSION, **asdict(self)}).encode()).hexdigest()

    def to_json(self) -> str:
        """Return the soundscape as JSON, one event per line."""
        content = {"version": VERSION, **asdict(self)}
        lists = {name: content.pop(name) for name in ("backgrounds", "events")}
        lines = [f' "{name}": {json.dumps(value)}' for name, value in sorted(content.items())]
        for name, entries in lists.items():
            inside = ",\n".join(f"  {canonical(entry)}" for entry in entries)
            lines.append(f' "{name}": [\n{inside}\n ]')
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def save(self, path: str | Path) -> None:
        """Write the soundscape as a JSON file."""
        with replacing(path) as partial:
            partial.write_text(self.to_json(), encoding="utf-8")


def truth_path(path: str | Path) -> Path:
    """Return where the truth of a soundscape is written: beside its audio."""
    return Path(path).with_suffix(".json")


def read_soundscape(path: str | Path) -> Soundscape:
    """Read the JSON file of a soundscape; raise `FormatError` for anything else."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        version = content.get("version") if isinstance(content, dict) else None
        if version not in (None, VERSION):
            raise FormatError(f"{path} has version {version!r}; this driftscore reads {VERSION}")
        return msgspec.convert(content, Soundscape)
    except OSError as error:
        raise FormatError(f"Cannot read the soundscape {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise FormatError(f"{path} is not the truth of a soundscape: {error}") from error
