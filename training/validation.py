"""The validation sets of the audio tower, clean and in noise: `python -m training.validation`.

- `esc50`: the 200 clips of `train/esc50` whose licence keeps them out of training
- `urban`: fold 3 of UrbanSound8K, `kitchen`: folds 1 and 2 of Kitchen20, as written by the tools of
  the shared folder into `sets/urban` and `sets/kitchen` of the training folder

Noise: recordings of `train/ambient` that are kept out of training, babble of a speech package that
is not trained on, and mains hum, a kind of noise that training does not contain. A clip is mixed
with one noise per SNR (additive, over the clip's active part). All choices are made on these sets;
nothing is chosen by `events`, `noise` or other folds.

Written to the training folder: `validation_<set>.npz` with the log-mels of all clips one after
another (128, frames), the frame at which each begins (`edges`), the teacher's logits of the clean
clip, the label's index and the SNR (NaN for clean); and `text_rows.npz` with label names in tag
space, by the text tower that ships.

`python -m training.validation --home FOLDER` measures an exported model, of any edition, and the
teacher instead. The folder must be complete, with a text tower (`training.seal --home FOLDER`).

`--pool --home FOLDER` measures the cosine to the teacher on segments of the pool, which the model
was trained on: how far it is above that of the sets is what the student knows by heart.

`--reporting` makes or measures the sets that nothing is chosen on: fold 2 of UrbanSound8K, folds 3
to 5 of Kitchen20, the office sounds of DCASE 2016 and a set of animals (the two repositories of
`training.teacher`), in the same noises.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.collect import (
    RATE,
    SHARED,
    WORK,
    decode,
    is_free,
    read_segments,
    repository_files,
    shared_rows,
)
from training.mixtures import VALIDATION_PACKAGE, Samples, add_at_snr, babble, looped
from training.product import MODEL_HOME, Mini, load_mini, load_space, tagger
from training.teacher import TEST_REPOSITORIES, samples_of

SNRS_DB = (10.0, 0.0)
POOL_CLIPS = 120
SETS = ("esc50", "urban", "kitchen")
REPORTED = ("urban_report", "kitchen_report", "office", "animals")
FOLDERS = {
    "urban": "urban/fold3",
    "kitchen": "kitchen/choose",
    "urban_report": "urban/fold2",
    "kitchen_report": "kitchen/report",
    "office": "reported/office",
    "animals": "reported/animals",
}
OFFICE = {
    "clearthroat": "clear throat", "cough": "cough", "doorslam": "door slam", "drawer": "drawer",
    "keyboard": "keyboard", "keysDrop": "keys dropped on a desk", "knock": "knock",
    "laughter": "laughter", "pageturn": "page turning", "phone": "phone ringing",
    "speech": "speech",
}  # fmt: skip
ANIMALS = {
    "Kedi": "cat", "Kopek": "dog", "Kus": "bird", "Inek": "cow", "Aslan": "lion", "Koyun": "sheep",
    "Kurbaga": "frog", "Tavuk": "chicken", "Esek": "donkey", "Maymun": "monkey",
}  # fmt: skip
"""Labels of the two repositories in words, as in `word_test_labels.toml`."""
Matrix = npt.NDArray[np.float32]
RECORDED: dict[str, tuple[str, ...]] = {
    "road": ("engine", "car_horn", "siren", "engine_idling", "street_music", "jackhammer"),
    "carousel": ("laughing", "children_playing", "street_music"),
    "church": ("church_bells",),
    "laboratory": (),
    "night-village": ("crickets", "insects", "dog", "dog_bark"),
    "temple": ("church_bells", "chirping_birds"),
    "underwater": (),
    "ceiling-fan": ("air_conditioner", "stove_fan", "fridge", "microwave"),
    "dryer": ("washing_machine", "vacuum_cleaner", "air_conditioner", "dishwasher", "stove_fan"),
    "airplane": ("airplane", "helicopter", "air_conditioner", "engine_idling", "stove_fan"),
    "submarine": ("engine_idling", "fridge"),
    "jungle": ("chirping_birds", "insects", "crickets", "frog"),
    "river": ("pouring_water", "rain", "sea_waves", "water_flowing", "clean_dishes"),
    "waterfall": ("rain", "sea_waves", "pouring_water", "water_flowing", "frying_pan"),
    "wind-in-trees": ("wind",),
    "light-rain": ("rain", "thunderstorm", "frying_pan", "water_flowing"),
    "tuning-radio": (),
    "vinyl-effect": ("crackling_fire", "frying_pan"),
    "sailboat": ("sea_waves", "wind"),
    "boiling-water": ("pouring_water", "water_drops", "boiling_water", "stove_burner"),
    "slide-projector": ("keyboard_typing", "mouse_click"),
    "windshield-wipers": ("rain",),
}
"""Recordings `moodist_*` of `train/ambient` and the classes that each contains."""


def clips_of(name: str) -> list[tuple[Path, str]]:
    """Return (file, label) of the clips of a validation set."""
    if name == "esc50":
        rows = [r for r in shared_rows() if not is_free(r) and "/esc50/" in r["file"]]
        return [(SHARED / "audio" / r["file"], r["label"]) for r in rows]
    home = WORK / "sets" / FOLDERS[name]
    return [(path, path.parent.name) for path in sorted(home.glob("*/*.wav"))]


def write_repository_sets() -> None:
    """Write the office sounds and the animals as folders of clips, each content once."""
    office, animals = TEST_REPOSITORIES
    for name, source, words in (("office", office, OFFICE), ("animals", animals, ANIMALS)):
        written: set[bytes] = set()
        for path, contents in repository_files(source):
            text = Path(path).name if name == "office" else path
            label = next((word for key, word in words.items() if text.startswith(key)), "")
            if label and contents not in written:
                written.add(contents)
                target = WORK / "sets" / FOLDERS[name] / label.replace(" ", "_") / Path(path).name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(contents)


def _recorded_noises() -> dict[str, Samples]:
    """Return the recorded noises by name."""
    home = SHARED / "audio" / "train" / "ambient"
    return {name: decode((home / f"moodist_{name}.ogg").read_bytes()) for name in RECORDED}


def _babble(rng: np.random.Generator) -> Samples:
    """Return six voices at once, ten seconds."""
    spoken = [s for s in read_segments() if s.package == VALIDATION_PACKAGE]
    chosen = [spoken[int(i)] for i in rng.choice(len(spoken), size=6, replace=False)]
    voices = [looped(samples_of(s.start, s.length), 10 * RATE, rng) for s in chosen]
    return babble(voices, rng)


def _hum(rng: np.random.Generator) -> Samples:
    """Return mains hum with its harmonics and a little hiss, ten seconds."""
    t, base = np.arange(10 * RATE) / RATE, rng.choice((50.0, 60.0))
    harmonics = range(1, 21)
    waves = [
        rng.random() / h * np.sin(2 * np.pi * base * h * t + 6 * rng.random()) for h in harmonics
    ]
    return (0.1 * np.sum(waves, axis=0) + 0.002 * rng.normal(size=t.size)).astype(np.float32)


def _noise_for(label: str, recorded: dict[str, Samples], rng: np.random.Generator) -> Samples:
    """Return a random noise that does not contain the label: 70 % recorded, 20 % babble."""
    kind = rng.random()
    if kind < 0.1:
        return _hum(rng)
    if kind < 0.3:
        return _babble(rng)
    names = [name for name, classes in RECORDED.items() if label not in classes]
    return recorded[names[int(rng.integers(len(names)))]]


def make_set(name: str, recorded: dict[str, Samples]) -> None:
    """Write `validation_<name>.npz`."""
    labels = np.load(WORK / "text_rows.npz")[f"{name}_names"].tolist()
    rng = np.random.default_rng([20_261_118, (*SETS, *REPORTED).index(name)])
    mini = load_mini()
    mels, logits, answers, snrs = [], [], [], []
    for path, label in clips_of(name):
        clip = decode(path.read_bytes())
        teacher = tagger().logits(clip)
        for snr_db in (None, *SNRS_DB):
            mixed = clip
            if snr_db is not None:
                noise = looped(_noise_for(label, recorded, rng), clip.size, rng)
                mixed = add_at_snr(clip, noise, snr_db)
            mels.append(mini.features(mixed).astype(np.float16))
            logits.append(teacher)
            answers.append(labels.index(label))
            snrs.append(np.nan if snr_db is None else snr_db)
    np.savez(
        WORK / f"validation_{name}.npz",
        mels=np.hstack(mels),
        edges=np.cumsum([0, *(mel.shape[1] for mel in mels)]),
        logits=logits,
        answers=answers,
        snr_db=snrs,
    )


def make_text_rows(home: Path = MODEL_HOME) -> None:
    """Write `text_rows.npz`: label names in tag space, for the loss and for scoring."""
    names: set[str] = {name.lower() for name in load_space().names}
    for corpus in ("VGGSound", "FSD50k"):
        listed = json.loads((SHARED / "text" / f"{corpus}_class_labels_indices.json").read_text())
        names |= {name.replace("_", " ").lower() for name in listed}
    labels = {name: sorted({label for _, label in clips_of(name)}) for name in (*SETS, *REPORTED)}
    labels["esc50"] = sorted({r["label"] for r in shared_rows() if "/esc50/" in r["file"]})
    texts, mini = {"": sorted(names), **labels}, load_mini(home)
    arrays = {}
    for name, words in texts.items():
        prompts = [f"the sound of {word.replace('_', ' ')}" for word in words]
        arrays[f"{name}_rows"], arrays[f"{name}_names"] = mini.embed_text(prompts), np.array(words)
    np.savez(WORK / "text_rows.npz", **arrays)


@dataclass(frozen=True)
class ValidationSet:
    """One set in memory: clips as log-mels, the teacher's clean embeddings, labels."""

    mels: list[Tensor]
    teacher: Tensor
    answers: Tensor
    snr_db: Tensor
    text: Tensor

    @torch.no_grad()
    def measure(self, tower: nn.Module) -> dict[str, float]:
        """Return accuracy and mean cosine to the teacher, clean and by SNR, of a tower."""
        tower.eval()
        rows = torch.cat([tower(mel[None, None].float()) for mel in self.mels])
        return self.scores(functional.normalize(rows, dim=1))

    def scores(self, rows: Tensor) -> dict[str, float]:
        """Return accuracy and mean cosine to the teacher, clean and by SNR, of embeddings."""
        cosines = (rows * self.teacher).sum(dim=1)
        right = ((rows @ self.text.T).argmax(dim=1) == self.answers).float()
        found = {}
        for snr_db in (None, *SNRS_DB):
            chosen = self.snr_db.isnan() if snr_db is None else self.snr_db == snr_db
            name = "clean" if snr_db is None else f"{snr_db:.0f}_db"
            found[name] = round(100 * float(right[chosen].mean()), 2)
            found[f"{name}_cosine"] = round(float(cosines[chosen].mean()), 4)
        return found


def read_sets(
    mu: Tensor, sigma: Tensor, names: Sequence[str] = SETS
) -> tuple[dict[str, ValidationSet], Tensor]:
    """Return the sets that were written, by name, and the text rows of the loss."""
    sets = {}
    with np.load(WORK / "text_rows.npz") as text:
        for name in names:
            path = WORK / f"validation_{name}.npz"
            if not path.exists():
                continue
            with np.load(path) as file:
                logits = torch.from_numpy(file["logits"].astype(np.float32))
                sets[name] = ValidationSet(
                    list(torch.from_numpy(file["mels"]).split(np.diff(file["edges"]).tolist(), 1)),
                    functional.normalize((logits - mu) / sigma, dim=1),
                    torch.from_numpy(file["answers"]),
                    torch.from_numpy(file["snr_db"].astype(np.float32)),
                    torch.from_numpy(text[f"{name}_rows"]),
                )
        return sets, torch.from_numpy(text["_rows"])


def embedded(model: Mini, mels: Iterable[Tensor]) -> Tensor:
    """Return the embeddings of log-mels by an exported model."""
    return torch.from_numpy(np.stack([model.encode(mel.float().numpy()) for mel in mels]))


def measure_exported(home: Path, names: Sequence[str]) -> None:
    """Print the scores of an exported model, and those of the teacher on the clean clips."""
    make_text_rows(home)
    space, model = load_space(), load_mini(home)
    sets, _ = read_sets(torch.from_numpy(space.mu), torch.from_numpy(space.sigma), names)
    for name, part in sets.items():
        print(json.dumps({"set": name, **part.scores(embedded(model, part.mels))}), flush=True)
        print(json.dumps({"set": name, "teacher": part.scores(part.teacher)["clean"]}), flush=True)


def measure_pool(home: Path) -> None:
    """Print the mean cosine to the teacher on segments of the pool, by kind of source."""
    space, segments = load_space(), read_segments()
    with np.load(WORK / "teacher.npz") as file:
        logits, weights = file["rows"][:, : len(space.mu)], file["weights"]
    teacher = torch.from_numpy((logits - space.mu) / space.sigma)
    rng, model = np.random.default_rng(0), load_mini(home)
    for kind in dict.fromkeys(segment.kind for segment in segments):
        share = weights * [s.kind == kind and s.length > 2 * RATE for s in segments]
        drawn = rng.choice(len(share), POOL_CLIPS, p=share / share.sum())
        clips = [samples_of(segments[n].start, segments[n].length) for n in drawn]
        rows = embedded(model, [torch.from_numpy(model.features(clip)) for clip in clips])
        cosine = functional.cosine_similarity(rows, teacher[torch.from_numpy(drawn)]).mean()
        print(json.dumps({"pool": kind, "cosine": round(float(cosine), 4)}), flush=True)


def main() -> None:
    """Write the files, or measure an exported model."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--home", type=Path, help="folder of an exported model to measure")
    parser.add_argument("--reporting", action="store_true", help="the sets to report on")
    parser.add_argument("--pool", action="store_true", help="with --home: segments of the pool")
    options = parser.parse_args()
    if options.pool:
        measure_pool(options.home)
        return
    names = REPORTED if options.reporting else SETS
    if options.home:
        measure_exported(options.home, names)
        return
    write_repository_sets()
    make_text_rows()
    recorded = _recorded_noises()
    for name in names:
        make_set(name, recorded)


if __name__ == "__main__":
    main()
