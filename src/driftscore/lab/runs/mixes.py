"""The mix of a clip in a condition, and files of such mixes that can be built again.

What is drawn for a mix (which recording, where in it, when the event begins) depends on dataset,
clip, noise, mixing and seed, not on the SNR or the model: along the SNR axis only the gain changes.

A file of mixes has one JSON line per mix: the condition, the clip and the record, or the error that
prevented the mix.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import soundfile

from driftscore.errors import DriftscoreError, FormatError
from driftscore.files import replacing
from driftscore.lab.conditions import Condition, canonical, read_condition
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.loading import load
from driftscore.lab.corpora.noises import find_noise
from driftscore.lab.mixing.loudness import LoudnessMeter, shared_meter
from driftscore.lab.mixing.mixings import find_mixing
from driftscore.lab.mixing.record import Mix, MixRecord, mix
from driftscore.lab.mixing.sounds import Sound
from driftscore.lab.seeds import generator


@dataclass(frozen=True)
class SavedMix:
    """The mix of one clip in one condition, or the error that prevented it."""

    condition: Condition
    clip: str
    record: MixRecord | None = None
    error: str = ""

    @property
    def name(self) -> str:
        """A short name for files, different for different mixes."""
        digest = hashlib.sha256(f"{self.condition.key} {self.clip}".encode()).hexdigest()
        return f"{Path(self.clip).stem}-{digest[:12]}"

    def to_json(self) -> str:
        """Return the mix as one line of JSON."""
        record = None if self.record is None else json.loads(self.record.to_json())
        content = {"condition": asdict(self.condition), "clip": self.clip, "record": record}
        return canonical(content | ({"error": self.error} if self.error else {}))

    @staticmethod
    def from_json(text: str) -> "SavedMix":
        """Read a line of a file of mixes; raise `FormatError` for anything else."""
        try:
            content = json.loads(text)
            condition = read_condition(canonical(content["condition"]))
            clip, record = str(content["clip"]), content["record"]
        except (FormatError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise FormatError(f"This is not a line of a file of mixes: {error}") from error
        if record is None:
            return SavedMix(condition, clip, error=str(content.get("error", "")))
        return SavedMix(condition, clip, MixRecord.from_json(json.dumps(record)))


def record_of(
    condition: Condition, clip: Clip, rate: int, noise_home: str | Path | None = None
) -> MixRecord:
    """Fix the mix of a clip in a noisy condition: files, positions, gains."""
    key = ("mix", condition.dataset, clip.id, condition.noise, condition.mixing, condition.seed)
    rng, seed = generator(*key), canonical(key)
    file = str(clip.path)
    event = Sound(file, load(file, rate), ", ".join(clip.labels))
    mixing = find_mixing(str(condition.mixing))
    seconds = mixing.background_s(event.audio.seconds)
    background = find_noise(str(condition.noise), noise_home).sample(
        seconds, rate, rng, home=noise_home, avoid=clip.labels
    )
    snr_db = float(condition.snr_db or 0.0)
    return mixing.draw(event, background, snr_db=snr_db, meter=_meter(), seed=seed, rng=rng)


def build(record: MixRecord) -> Mix:
    """Build a mix from its record, with the files that it names."""
    return mix(record, load)


def saved_mix(condition: Condition, clip: Clip, rate: int, noise_home: str | None) -> SavedMix:
    """Return the mix of a clip, or the error that prevents it."""
    try:
        return SavedMix(condition, clip.id, record_of(condition, clip, rate, noise_home))
    except DriftscoreError as error:
        return SavedMix(condition, clip.id, error=str(error))


def write_mixes(mixes: Iterable[SavedMix], path: str | Path) -> int:
    """Write mixes as JSON lines; return how many."""
    count = 0
    with replacing(path) as partial, open(partial, "w", encoding="utf-8") as handle:
        for count, saved in enumerate(mixes, start=1):  # noqa: B007 (the last one is the result)
            handle.write(saved.to_json() + "\n")
    return count


def read_mixes(path: str | Path) -> Iterator[SavedMix]:
    """Yield the mixes of a file."""
    try:
        with open(path, encoding="utf-8") as handle:
            for line in handle:
                yield SavedMix.from_json(line)
    except (OSError, ValueError) as error:
        raise FormatError(f"Cannot read the mixes {path}: {error}") from error


def write_audio(saved: SavedMix, folder: str | Path) -> Path:
    """Build a mix and write it as a wav file of floats; return its path."""
    if saved.record is None:
        raise FormatError(f"{saved.clip} has no mix: {saved.error}")
    audio = build(saved.record).audio
    path = Path(folder) / f"{saved.name}.wav"
    with replacing(path) as partial:
        soundfile.write(partial, audio.samples, audio.rate, subtype="FLOAT", format="WAV")
    return path


def without_model(condition: Condition) -> Condition:
    """Return a condition without its model: mixes depend on its sample rate only."""
    return replace(condition, backbone="", model="")


@lru_cache(maxsize=1)
def _meter() -> LoudnessMeter:
    return shared_meter()


def forget_meter() -> None:
    """Open the loudness cache again for the next mix: the cache folder may have changed."""
    _meter.cache_clear()
