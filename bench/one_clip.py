"""Where the time of one clip goes: from the file to its scores, one thread.

A 10 s FLAC file at 44.1 kHz, 50 labels, the embedded model: decoding, resampling, log-mel,
network and scoring by themselves, and the whole, in turns.
"""

import tempfile
from pathlib import Path

import numpy as np
import soundfile

from bench.figures import Figure, in_turns, scaled
from driftscore import Head, build_bank, compile_head, load_backbone
from driftscore.audio import read
from driftscore.backbones import Backbone, Staged, embed_recording

LABELS, SECONDS, RATE = 50, 10, 44_100


def measure(*, quick: bool) -> list[Figure]:
    """Time the steps of one clip through `mini`."""
    model = load_backbone("mini")
    head = compile_head(build_bank(labels(), model, pack="generic5"), "das")
    with tempfile.TemporaryDirectory() as folder:
        return [figure(model, head, write_clip(Path(folder)), turns=5 if quick else 61)]


def labels() -> list[str]:
    """Return the labels that are listened for."""
    return [f"sound {number}" for number in range(LABELS)]


def write_clip(folder: Path) -> Path:
    """Write the clip: 10 s of noise."""
    path = folder / "clip.flac"
    noise = 0.1 * np.random.default_rng(0).standard_normal(SECONDS * RATE)
    soundfile.write(path, noise, RATE)
    return path


def figure(model: Backbone, head: Head, path: Path, *, turns: int) -> Figure:
    """Return the figure of one clip through any model in two stages; details feed the picture."""
    seconds = clip_steps(model, head, path, turns=turns)
    whole = scaled(seconds.pop("whole"), 1e3)
    steps = {name: scaled(values, 1e3).median for name, values in seconds.items()}
    said = ", ".join(f"{name} {value:.2f}" for name, value in steps.items())
    return Figure(
        f"one 10 s clip, {model.name}, file to scores",
        whole,
        "ms",
        note=f"{said} ms: {sum(steps.values()):.1f} ms together",
        details={"model": model.name, "steps_ms": steps},
    )


def clip_steps(model: Backbone, head: Head, path: Path, *, turns: int) -> dict[str, list[float]]:
    """Time each step on what the one before it made, and `whole`, in turns, in seconds."""
    if not isinstance(model, Staged):
        raise TypeError(f"{model.name} does its work in one stage; there are no steps to time")
    native = read(path)
    clip = read(native, rate=model.rate)
    features = model.features(clip.samples)
    row = model.encode(features)
    # These names are what the picture stacks, in this order.
    runs = {
        "decode": lambda: read(path),
        "resample": lambda: read(native, rate=model.rate),
        "mel": lambda: model.features(clip.samples),
        "encoder": lambda: model.encode(features),
        "scoring": lambda: head.scores(row),
        "whole": lambda: head.scores(embed_recording(path, model)),
    }
    return in_turns(runs, turns)
