"""A small lab for tests: a labelled folder, a noise folder, a grid over both."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from driftscore.lab.runs import embedding
from driftscore.lab.runs.grid import Grid, parse_grid
from driftscore.lab.runs.store import Store

RATE = 16_000
WriteWav = Callable[..., Path]
"""The fixture `write_wav`: writes noise, or given samples, as a wav."""
RULES = (
    "cosine", "das", "zs_text", "zs_text:matched", "zs_audio", "zs_audio_oracle", "tgap",
    "tgap_audio", "prompt_ensemble", "noisy_ensemble", "debias",
)  # fmt: skip


def tone(hertz: float, seconds: float = 0.8, seed: int = 0) -> NDArray[np.float64]:
    time = np.arange(round(seconds * RATE)) / RATE
    rng = np.random.default_rng(seed)
    return 0.2 * np.sin(2 * np.pi * hertz * time) + 0.01 * rng.standard_normal(len(time))


def write(path: Path, samples: NDArray[np.float64]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, RATE, subtype="PCM_16")
    return path


def build(home: Path, *, clips: int = 4, multi: bool = False) -> Path:
    """Write three classes of tones with folds and two noise recordings; return the folder."""
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


def padded(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a clip with 0.2 s of digital silence before and 0.5 s after it."""
    return np.concatenate([np.zeros(RATE // 5), samples, np.zeros(RATE // 2)])


WORDS = ("dog", "siren", "sea waves")
"""Labels of `build_recordings` that no background of it contains."""


def build_recordings(folder: Path) -> Path:
    """Write recordings as the shared ones: six labels and two backgrounds, for both splits."""
    lines = ["file,split,label,environment,avoid_classes,active_s"]
    rng = np.random.default_rng(5)
    for split, train in (("events", ""), ("train", "train/")):
        for number, label in enumerate((*WORDS, "rain", "wind", "engine")):
            for clip in range(3):
                file = f"{train}clips/{label}-{clip}.wav"
                sound = tone(200 + 150 * number, 1.0 + clip, seed=number)
                write(folder / file, padded(sound))
                lines.append(f"{file},{split},{label.replace(' ', '_')},,,1.0")
    for name, avoid in (("park", "wind rain"), ("road", "engine")):
        noise = 0.05 * rng.standard_normal(20 * RATE)
        write(folder / f"noise/{name}.wav", noise if name == "park" else noise.cumsum() / 50)
        lines.append(f"noise/{name}.wav,noise,{name},{name},{avoid},20")
        write(folder / f"train/ambient/{name}.wav", noise)
        lines.append(f"train/ambient/{name}.wav,train,,{name},,20")
    (folder / "manifest.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def small_grid(
    home: Path,
    *,
    rules: Sequence[str] = RULES,
    more: str = "",
    snrs: str = '["clean", 10, 0]',
    mixings: str = '["additive"]',
    backbone: str = "fake",
) -> Grid:
    quoted = ", ".join(f'"{rule}"' for rule in rules)
    return parse_grid(
        f'datasets = ["folder"]\nnoises = ["recorded"]\nmixings = {mixings}\nsnrs = {snrs}\n'
        f'backbones = ["{backbone}"]\nrules = [{quoted}]\nseeds = [0, 1]\n'
        f'packs = ["generic5"]\n{more}\n'
        '[homes]\nfolder = "clips"\nrecorded = "noise"\n',
        name="small",
        folder=home,
    )


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use few anchors and chunks of a few clips: the same work in little time."""
    monkeypatch.setattr(embedding, "ANCHORS", 4)
    monkeypatch.setattr(embedding, "ANCHOR_S", 1.0)
    monkeypatch.setattr(embedding, "CHUNK", 5)


def content(store: Store) -> list[tuple[object, ...]]:
    """Return the content of the rows of a store, without times and versions."""
    return [
        (
            r.cell.key,
            r.metric,
            r.value,
            r.n,
            r.failed,
            r.gain,
            dict(r.details),
            None if r.outcomes is None else r.outcomes.tolist(),
            r.error,
        )
        for r in store.rows()
    ]
