"""The validation set of the audio tower, clean and in noise: `python -m training.validation`.

Clips: the 200 of `train/esc50` whose licence keeps them out of training. Noise: recordings of
`train/ambient` that are kept out of training for the same reason, babble of a speech package
that is not trained on, and mains hum, a kind of noise that training does not contain. A clip is
mixed with one noise per SNR (additive, over the clip's active part). All choices are made on this
set; nothing is chosen by `events` or `noise`.

Written to `training/work/`: `validation.npz` with log-mels (n, 64, frames), the teacher's logits
of the clean clip, the label's index and the SNR (NaN for clean), and `text_rows.npz` with label
names in tag space.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from driftscore.backbones.mini import front_end as mini_frontend
from training.collect import RATE, SHARED, WORK, decode, is_free, read_segments, shared_rows
from training.mixtures import VALIDATION_PACKAGE, Samples, add_at_snr, babble, looped
from training.teacher import samples_of, tagger

SNRS_DB = (20.0, 10.0, 6.0, 0.0)
Matrix = npt.NDArray[np.float32]
RECORDED: dict[str, tuple[str, ...]] = {
    "road": ("engine", "car_horn", "siren"),
    "carousel": ("laughing",),
    "church": ("church_bells",),
    "laboratory": (),
    "night-village": ("crickets", "insects", "dog"),
    "temple": ("church_bells", "chirping_birds"),
    "underwater": (),
    "ceiling-fan": (),
    "dryer": ("washing_machine", "vacuum_cleaner"),
    "airplane": ("airplane", "helicopter"),
    "submarine": (),
    "jungle": ("chirping_birds", "insects", "crickets", "frog"),
    "river": ("pouring_water", "rain", "sea_waves"),
    "waterfall": ("rain", "sea_waves", "pouring_water"),
    "wind-in-trees": ("wind",),
    "light-rain": ("rain", "thunderstorm"),
    "tuning-radio": (),
    "vinyl-effect": ("crackling_fire",),
    "sailboat": ("sea_waves", "wind"),
    "boiling-water": ("pouring_water", "water_drops"),
    "slide-projector": ("keyboard_typing", "mouse_click"),
    "windshield-wipers": ("rain",),
}
"""Recordings `moodist_*` of `train/ambient` and the classes that each contains."""


def held_out_clips() -> list[tuple[Path, str]]:
    """Return (file, label) of the clips of `train/esc50` that are kept out of training."""
    rows = [r for r in shared_rows() if not is_free(r) and "/esc50/" in r["file"]]
    return [(SHARED / "audio" / r["file"], r["label"]) for r in rows]


def esc50_labels() -> list[str]:
    """Return the 50 class names, sorted."""
    return sorted({r["label"] for r in shared_rows() if "/esc50/" in r["file"]})


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


def make_validation() -> None:
    """Write `validation.npz`."""
    labels = np.load(WORK / "text_rows.npz")["esc_names"].tolist()
    recorded, rng = _recorded_noises(), np.random.default_rng(20_261_116)
    mels, logits, answers, snrs = [], [], [], []
    for path, label in held_out_clips():
        clip = decode(path.read_bytes())
        teacher = tagger().logits(clip)
        for snr_db in (None, *SNRS_DB):
            mixed = clip
            if snr_db is not None:
                noise = looped(_noise_for(label, recorded, rng), clip.size, rng)
                mixed = add_at_snr(clip, noise, snr_db)
            mels.append(mini_frontend.log_mel(mixed).astype(np.float16))
            logits.append(teacher)
            answers.append(labels.index(label))
            snrs.append(np.nan if snr_db is None else snr_db)
    np.savez(WORK / "validation.npz", mel=mels, logits=logits, answers=answers, snr_db=snrs)


def make_text_rows() -> None:
    """Write `text_rows.npz`: label names in tag space, for the loss and for scoring ESC-50."""
    from driftscore.backbones.mn04.minilm import load_encoder
    from driftscore.backbones.mn04.tagspace import load_space

    space, encoder = load_space(), load_encoder()
    words: set[str] = {name.lower() for name in space.names}
    for corpus in ("VGGSound", "FSD50k"):
        listed = json.loads((SHARED / "text" / f"{corpus}_class_labels_indices.json").read_text())
        words |= {name.replace("_", " ").lower() for name in listed}
    names, labels = sorted(words), esc50_labels()

    def rows(texts: list[str]) -> Matrix:
        prompts = [f"the sound of {text.replace('_', ' ')}" for text in texts]
        return space.embed_sentences(encoder.encode(prompts))

    found = {"rows": rows(names), "esc_rows": rows(labels)}
    np.savez(WORK / "text_rows.npz", names=names, esc_names=labels, **found)


@dataclass(frozen=True)
class Scores:
    """Mean cosine to the teacher's clean embedding and accuracy, on clean and noisy clips."""

    cosine: float
    clean: float
    noisy: dict[float, float]
    noisy_cosine: float


@dataclass(frozen=True)
class HeldOut:
    """The validation set in memory."""

    mel: Tensor
    target: Tensor
    answers: Tensor
    snr_db: Tensor
    text: Tensor

    @torch.no_grad()
    def measure(self, tower: nn.Module) -> Scores:
        """Return the scores of a tower."""
        tower.eval()
        parts = [tower(part[:, None].float()) for part in self.mel.split(50)]
        rows = functional.normalize(torch.cat(parts), dim=1)
        cosines = (rows * self.target).sum(dim=1)
        right = ((rows @ self.text.T).argmax(dim=1) == self.answers).float()
        clean = self.snr_db.isnan()
        noisy = {snr: float(right[self.snr_db == snr].mean()) for snr in SNRS_DB}
        cosine, noisy_cosine = float(cosines[clean].mean()), float(cosines[~clean].mean())
        return Scores(cosine, float(right[clean].mean()), noisy, noisy_cosine)


def read_held_out(mu: Tensor, sigma: Tensor) -> HeldOut:
    """Return the validation set, with targets z-scored by the given statistics."""
    with np.load(WORK / "validation.npz") as file, np.load(WORK / "text_rows.npz") as text:
        logits = torch.from_numpy(file["logits"].astype(np.float32))
        return HeldOut(
            torch.from_numpy(file["mel"]),
            functional.normalize((logits - mu) / sigma, dim=1),
            torch.from_numpy(file["answers"]),
            torch.from_numpy(file["snr_db"].astype(np.float32)),
            torch.from_numpy(text["esc_rows"]),
        )


def main() -> None:
    """Write both files."""
    make_text_rows()
    make_validation()


if __name__ == "__main__":
    main()
