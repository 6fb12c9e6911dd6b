"""The mix of a clip in a condition, and files of such mixes that can be built again.

What is drawn for a mix (which recording, where in it, when the event begins) depends on dataset,
clip, noise, mixing and seed, not on the SNR or the model: along the SNR axis only the gain changes.

A file of mixes has one JSON line per mix: the condition, the clip and the record, or the error that
prevented the mix.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import soundfile

from driftscore.errors import FormatError
from driftscore.lab.conditions import Condition, canonical, generator, read_key
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.folders import load
from driftscore.lab.corpora.noises import find_noise
from driftscore.lab.mixing.loudness import shared_meter
from driftscore.lab.mixing.mixings import find_mixing
from driftscore.lab.mixing.record import MixRecord, mix
from driftscore.lab.mixing.sounds import Sound
from driftscore.storage.files import replacing

meter = lru_cache(maxsize=1)(shared_meter)
"""The loudness meter of this process; cleared when a run starts, as its folder may change."""


@dataclass(frozen=True)
class SavedMix:
    """The mix of one clip in one condition, or the error that prevented it."""

    condition: Condition
    clip: str
    record: MixRecord | None = None
    error: str = ""


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
    noise = find_noise(str(condition.noise), noise_home)
    background = noise.sample(seconds, rate, rng, avoid=clip.labels)
    snr_db = float(condition.snr_db or 0.0)
    return mixing.draw(event, background, snr_db=snr_db, meter=meter(), seed=seed, rng=rng)


def write_mixes(mixes: Iterable[SavedMix], path: str | Path) -> int:
    """Write mixes as JSON lines; return how many."""
    count = 0
    with replacing(path) as partial, open(partial, "w", encoding="utf-8") as handle:
        for saved in mixes:
            record = None if saved.record is None else json.loads(saved.record.to_json())
            content = {"condition": asdict(saved.condition), "clip": saved.clip, "record": record}
            error = {"error": saved.error} if saved.error else {}
            handle.write(canonical(content | error) + "\n")
            count += 1
    return count


def read_mixes(path: str | Path) -> Iterator[SavedMix]:
    """Yield the mixes of a file, which may come from anyone."""
    try:
        with open(path, encoding="utf-8") as handle:
            for line in handle:
                content = json.loads(line)
                condition = read_key(Condition, canonical(content["condition"]))
                clip, record, error = content["clip"], content["record"], content.get("error", "")
                fixed = None if record is None else MixRecord.from_json(json.dumps(record))
                yield SavedMix(condition, str(clip), fixed, str(error))
    except (FormatError, OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise FormatError(f"Cannot read the mixes {path}: {error}") from error


def write_audio(saved: SavedMix, folder: str | Path) -> Path:
    """Build a mix from the files that it names; write it as a wav of floats; return its path."""
    if saved.record is None:
        raise FormatError(f"{saved.clip} has no mix: {saved.error}")
    audio = mix(saved.record, load).audio
    digest = hashlib.sha256(f"{saved.condition.key} {saved.clip}".encode()).hexdigest()
    path = Path(folder) / f"{Path(saved.clip).stem}-{digest[:12]}.wav"
    with replacing(path) as partial:
        soundfile.write(partial, audio.samples, audio.rate, subtype="FLOAT", format="WAV")
    return path
