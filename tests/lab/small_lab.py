"""A small bench for the lab's tests: a labelled folder, a noise folder, a grid over both."""

import numpy as np
import soundfile

from driftscore.lab import listening
from driftscore.lab.grid import parse_grid

RATE = 16_000
RULES = (
    "cosine", "das", "zs_text", "zs_text:matched", "zs_audio", "zs_audio_oracle", "tgap",
    "tgap_audio", "prompt_ensemble", "noisy_ensemble", "debias",
)  # fmt: skip


def tone(hertz, seconds=0.8, seed=0):
    time = np.arange(round(seconds * RATE)) / RATE
    rng = np.random.default_rng(seed)
    return 0.2 * np.sin(2 * np.pi * hertz * time) + 0.01 * rng.standard_normal(len(time))


def write(path, samples):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, RATE, subtype="PCM_16")
    return path


def build(home, *, clips=4, multi=False):
    """Write three classes of tones with folds and two places of noise; return the homes."""
    lines = ["file,labels,fold"]
    for number, label in enumerate(("dog bark", "siren", "rain")):
        for clip in range(clips):
            name = f"{label}-{clip}.wav"
            write(home / "clips" / name, tone(200 * 3**number, seed=10 * number + clip))
            labels = f"{label};engine" if multi and clip % 2 else label
            lines.append(f"{name},{labels},{clip % 2}")
    (home / "clips" / "labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rng = np.random.default_rng(1)
    for place in ("street", "cafe"):
        noise = rng.standard_normal(3 * RATE) * 0.1
        write(home / "noise" / f"{place}.wav", noise if place == "street" else noise.cumsum() / 50)
    (home / "noise" / "noise.csv").write_text(
        "file,environment,avoid\nstreet.wav,busy street,siren\ncafe.wav,cafe,\n", encoding="utf-8"
    )
    return home


def small_grid(home, *, rules=RULES, more="", snrs='["clean", 10, 0]', mixings='["additive"]'):
    quoted = ", ".join(f'"{rule}"' for rule in rules)
    return parse_grid(
        f'datasets = ["folder"]\nnoises = ["recorded"]\nmixings = {mixings}\nsnrs = {snrs}\n'
        f'backbones = ["fake"]\nrules = [{quoted}]\nseeds = [0, 1]\npacks = ["generic5"]\n{more}\n'
        '[homes]\nfolder = "clips"\nrecorded = "noise"\n',
        name="small",
        folder=home,
    )


def quick(monkeypatch):
    """Take few anchors, a small pool and chunks of a few clips: the same work in little time."""
    monkeypatch.setattr(listening, "ANCHORS", 4)
    monkeypatch.setattr(listening, "ANCHOR_S", 1.0)
    monkeypatch.setattr(listening, "CHUNK", 5)


def content(store):
    """Return what a store's rows say, without when and how fast."""
    return [
        (r.cell.key, r.metric, r.value, r.n, r.failed, r.difference, r.low, r.high,
         dict(r.details), None if r.outcomes is None else r.outcomes.tolist(), r.error)
        for r in store.rows()
    ]  # fmt: skip
