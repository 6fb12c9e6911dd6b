"""Soundscapes with the words of every label set: `python -m training.corpora.event_families`.

A *family* is a set of words with recordings, distractors and backgrounds. Settings of the detector
are chosen on the families of part "choose" and reported on those of part "report", which have other
recordings, other backgrounds and, but for `urban` and `short`, other words. Besides clips as they
are, the events are

    long     clips of drilling, music, engines, repeated with cross-fades to 10 to 60 s
    short    the first 0.1 to 1 s of shots, knocks, glass, barks, from the loudest attack on

for every second clip of the labels in `LONG` and `SHORT` (all of them in the families `short`, at
10 dB). Distractors are all labels at hand that resemble no word, and every family has words that
never occur. Written once to `event_families/` of the training folder, the truth beside each.
"""

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import soundfile

from driftscore.audio.recordings import Samples
from driftscore.errors import AudioError
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.folders import load
from driftscore.lab.corpora.noises.protocol import NoiseRecording
from driftscore.lab.corpora.soundscapes.draw import Material, draw
from driftscore.lab.corpora.soundscapes.render import write_soundscape
from driftscore.lab.corpora.soundscapes.truth import (
    Soundscape,
    SoundscapeRecipe,
    read_soundscape,
    truth_path,
)
from driftscore.lab.mixing.mixings.additive import active_part
from driftscore.text.prompts import words as spelled
from training.collect import WORK
from training.corpora import sets, shared_events
from training.corpora.recordings import AUDIBLE, manifest, shared_audio, split_labels

FOLDER = WORK / "event_families"
RATE = 32_000
LONG_S, SHORT_S = (10.0, 60.0), (0.1, 1.0)
CROSSFADE_S = 0.25
LONG = frozenset((
    "air conditioner", "blender", "boiling water", "chainsaw", "children playing",
    "crackling fire", "dishwasher", "drilling", "engine", "engine idling", "fridge", "frying pan",
    "hand saw", "helicopter", "jackhammer", "juicer", "microwave", "rain", "sea waves", "siren",
    "snoring", "stove burner", "stove fan", "street music", "train", "vacuum cleaner",
    "washing machine", "water flowing", "wind", "airplane", "crickets", "keyboard typing",
))  # fmt: skip
SHORT = frozenset((
    "glass breaking", "gun shot", "door knock", "door wood knock", "door slam", "dog", "dog bark",
    "mouse click", "cupboard", "plates", "fireworks", "can opening",
))  # fmt: skip
ALIKE = (
    ("dog", "dog bark"), ("bird", "chirping birds", "crow", "rooster", "hen", "chicken"),
    ("siren", "clock alarm", "phone ringing", "car horn"),
    ("car horn", "train"),
    ("drilling", "jackhammer", "hand saw", "chainsaw", "engine idling", "juicer", "blender"),
    ("engine", "engine idling", "train", "helicopter", "airplane", "air conditioner", "chainsaw",
     "jackhammer"),
    ("air conditioner", "vacuum cleaner", "fridge", "stove fan", "microwave", "dishwasher",
     "washing machine", "wind", "airplane", "stove burner", "juicer", "blender"),
    ("gun shot", "fireworks", "thunderstorm", "door slam", "cupboard", "drawer"),
    ("door slam", "door knock", "door wood knock", "footsteps", "chopping", "cupboard"),
    ("drawer", "cupboard", "door wood creaks", "keys", "cutlery"),
    ("street music", "church bells"), ("lion", "cow", "donkey", "sheep", "monkey"),
    ("water flowing", "pouring water", "boiling water", "water drops", "clean dishes", "rain",
     "toilet flush", "sea waves", "frying pan", "dishwasher", "brushing teeth"),
    ("cutlery", "plates", "clean dishes", "glass breaking", "keys", "can opening"),
    ("speech", "children playing", "laughter", "laughing", "crying baby"),
    ("coughing", "clearing throat", "sneezing", "breathing", "snoring"),
    ("eat", "drinking sipping", "peel"), ("keyboard", "keyboard typing", "mouse click"),
    ("book", "page turning", "peel", "sweep", "brushing teeth"), ("frog", "crickets", "insects"),
    ("frying pan", "crackling fire", "rain", "stove burner", "boiling water"),
    ("cat", "crying baby", "sheep"), ("sheep", "cow"), ("pig", "lion", "snoring"),
)  # fmt: skip
"""Labels that may be taken for each other: one of them is never a distractor of another."""
DISHES = ("clean dishes", "cutlery", "plates", "eat")
"""What is audible in a restaurant, besides what the manifest says."""


@dataclass(frozen=True)
class Family:
    """Words with the sets that their clips come from; `absent` words never occur."""

    name: str
    part: str
    sets: tuple[str, ...]
    words: tuple[str, ...]
    absent: tuple[str, ...]
    snr_db: tuple[float, float] = (0.0, 15.0)
    seconds: float = 5400.0
    events: int = 96
    others: int = 48
    quiet_s: float = 900.0
    seed: int = 1


FAMILIES = (
    Family(
        "urban_choose", "choose", ("urban_choose",),
        ("air conditioner", "car horn", "children playing", "dog bark", "drilling",
         "engine idling", "gun shot", "jackhammer", "siren", "street music"),
        ("cat", "church bells", "coughing", "toilet flush"),
    ),
    Family(
        "kitchen_choose", "choose", ("kitchen_choose",),
        ("blender", "book", "chopping", "cutlery", "dishwasher", "eat", "frying pan",
         "stove burner", "sweep", "water flowing"),
        ("siren", "dog bark", "keyboard typing", "sneezing"),
    ),
    Family(
        "home_choose", "choose", ("esc50_choose",),
        ("brushing teeth", "can opening", "cat", "chirping birds", "church bells", "clapping",
         "clock alarm", "cow", "footsteps", "hand saw", "keyboard typing", "siren",
         "vacuum cleaner", "washing machine"),
        ("gun shot", "frying pan", "helicopter", "street music"),
    ),
    Family(
        "short_choose", "choose", ("urban_choose", "esc50_train"),
        ("dog bark", "glass breaking", "gun shot", "door wood knock", "mouse click"),
        ("siren", "rooster"), (10.0, 10.0), events=60, seconds=3600.0, quiet_s=600.0,
    ),
    Family(
        "urban", "report", ("urban",),
        ("air conditioner", "car horn", "children playing", "dog bark", "drilling",
         "engine idling", "gun shot", "jackhammer", "siren", "street music"),
        ("frog", "glass breaking", "sneezing", "vacuum cleaner"),
    ),
    Family(
        "kitchen", "report", ("kitchen",),
        ("boiling water", "clean dishes", "cupboard", "drawer", "fridge", "juicer", "microwave",
         "peel", "plates", "stove fan"),
        ("cat", "jackhammer", "crying baby", "church bells"),
    ),
    Family(
        "office_animals", "report", ("office", "animals"),
        ("clearing throat", "door slam", "keyboard", "keys", "laughter", "page turning",
         "phone ringing", "lion", "donkey", "frog", "chicken", "monkey"),
        ("siren", "vacuum cleaner", "chainsaw", "gun shot"),
    ),
    Family(
        "everyday", "report", ("esc50",),
        ("airplane", "chainsaw", "coughing", "crackling fire", "crickets", "crying baby",
         "door wood creaks", "helicopter", "pig", "rain", "rooster", "snoring", "sneezing",
         "toilet flush"),
        ("drilling", "blender", "speech", "dog bark"),
    ),
    Family(
        "short", "report", ("urban", "esc50", "office"),
        ("glass breaking", "gun shot", "door knock"),
        ("siren", "rooster", "clapping"), (10.0, 10.0), events=48, seconds=3600.0, quiet_s=600.0,
    ),
)  # fmt: skip


def family_clips(name: str) -> Iterable[Clip]:
    """Return the clips of a label set."""
    if name == "esc50":
        return shared_events.clips(shared_audio())
    if name == "esc50_train":
        base = shared_audio()
        rows = [row for row in manifest(base, "train") if row["label"]]
        return [Clip(base / row["file"], (row["label"],), None, row["file"]) for row in rows]
    labelled = getattr(sets, name)
    clips: list[Clip] = labelled.clips(labelled.default_home())
    return [clip for clip in clips if name != "animals" or _is_complete(clip)]


def _is_complete(clip: Clip) -> bool:
    """Return whether a clip can be read to its end; some of the animals cannot."""
    try:
        load(str(clip.path), RATE)
    except AudioError:
        return False
    return True


def alike(label: str) -> set[str]:
    """Return the labels that may be taken for this one, with itself."""
    return {label}.union(*(group for group in ALIKE if label in group))


def backgrounds(part: str) -> list[NoiseRecording]:
    """Return the recorded test noises to report in, or the places of `train` to choose in."""
    home = shared_audio()
    if part == "report":
        return sets.noise.recordings(home)
    return [
        NoiseRecording(
            str(home / row["file"]),
            row["file"],
            row["environment"],
            sets.audible(split_labels(AUDIBLE[row["environment"]])),
        )
        for row in manifest(home, "train")
        if row["environment"] in AUDIBLE
    ]


def altered(samples: Samples, label: str, rng: np.random.Generator) -> Samples:
    """Return a clip as a long or a short event; unchanged if its label is neither."""
    active = np.flatnonzero(active_part(samples, RATE))
    if not len(active):
        return samples
    clip = samples[active[0] : active[-1] + 1]
    if label in SHORT:
        blocks = len(clip) // 640
        level = (clip[: blocks * 640].reshape(blocks, 640) ** 2).mean(axis=1)
        loudest = int(level.argmax()) if blocks else 0
        quiet = np.flatnonzero(level[:loudest] < level[loudest : loudest + 1] / 100)
        first = 640 * (int(quiet[-1]) + 1 if len(quiet) else 0)
        return clip[first : first + round(float(rng.uniform(*SHORT_S)) * RATE)]
    fade = min(round(CROSSFADE_S * RATE), len(clip) // 4)
    ramp = np.sin(np.pi / 2 * np.arange(fade) / max(1, fade - 1)).astype(np.float32)
    length, looped = round(float(rng.uniform(*LONG_S)) * RATE), clip.copy()
    while len(looped) < length and fade:
        joint = looped[-fade:] * ramp[::-1] + clip[:fade] * ramp
        looped = np.concatenate([looped[:-fade], joint, clip[fade:]])
    return looped[:length]


def material(family: Family) -> Material:
    """Return the clips of the words, of the distractors, and the backgrounds of a family."""
    clips: dict[str, list[str]] = {}
    paths: dict[str, Path] = {}
    resembling = set().union(*(alike(word) for word in (*family.words, *family.absent)))
    names: tuple[str, ...] = ("urban_choose", "kitchen_choose", "esc50_choose", "esc50_train")
    if family.part == "report":
        names = ("urban", "kitchen", "office", "animals", "esc50")
    for name in dict.fromkeys((*family.sets, *names)):
        for number, clip in enumerate(family_clips(name)):
            label = spelled(clip.labels[0])
            if label == "door wood knock" and "door knock" in family.words:
                label = "door knock"
            if (label not in family.words and label in resembling) or (
                label in family.words and name not in family.sets
            ):
                continue
            file, path = f"{name}/{clip.id}", Path(clip.path)
            every = family.name.startswith("short")
            if (label in LONG | SHORT) and (number % 2 or (every and label in SHORT)):
                path = FOLDER / "clips" / f"{file.replace('/', '_')}.flac"
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    seed = int.from_bytes(hashlib.sha256(file.encode()).digest()[:8], "big")
                    samples = load(str(clip.path), RATE).samples
                    changed = altered(samples, label, np.random.default_rng(seed))
                    soundfile.write(path, changed, RATE, subtype="PCM_16")
            clips.setdefault(label, []).append(file)
            paths[file] = path
    places = []
    for noise in backgrounds(family.part):
        file = f"noise/{noise.id}"
        paths[file] = Path(noise.file)
        if "restaurant" in noise.environment:
            noise = replace(noise, avoid=(*noise.avoid, *DISHES))
        if not noise.contains(family.absent):
            places.append(replace(noise, file=file))
    return Material(clips, places, paths)


def soundscape(family: Family) -> tuple[Path, Soundscape]:
    """Return the audio and the truth of a family, written if they are not there yet."""
    path = FOLDER / f"{family.part}-{family.name}-{family.seed}.flac"
    if not truth_path(path).is_file():
        recordings = material(family)
        recipe = SoundscapeRecipe(
            f"{family.part} {family.name}", family.seconds, family.seed, family.words,
            family.events, family.others, family.quiet_s, family.snr_db, RATE,
        )  # fmt: skip
        drawn = draw(recipe, recordings)
        # Words that never occur are looked for as well.
        write_soundscape(
            replace(drawn, words=(*drawn.words, *family.absent)), path, recordings, show=False
        )
    return path, read_soundscape(truth_path(path))


def main() -> None:
    """Write the soundscapes that are missing."""
    for family in FAMILIES:
        path, truth = soundscape(family)
        lengths = [event.end_s - event.start_s for event in truth.wanted]
        quantiles = np.quantile(lengths, (0.1, 0.5, 0.9)).round(1).tolist()
        print(f"{path.name}: {len(truth.wanted)} events of {quantiles} s", file=sys.stderr)


if __name__ == "__main__":
    main()
