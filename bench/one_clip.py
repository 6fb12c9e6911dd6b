"""Where the time of one clip goes: from the file to its scores, on one thread.

A 10 s FLAC file at 44.1 kHz, 50 labels, the embedded model. Decoding, resampling, log-mel,
network, scoring and all of it together are timed in turns.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

from bench.figures import Figure, in_turns, scaled
from driftscore import Backbone, Head, build_bank, compile_head, load_backbone
from driftscore.audio.recordings import read
from driftscore.text.presets import PromptSettings

THREADS = 1
LABELS, SECONDS, RATE = 50, 10, 44_100


def measure(*, quick: bool) -> list[Figure]:
    """Time the steps of one clip through `mini`."""
    model = load_backbone("mini")
    bank = build_bank(labels(), model, settings=PromptSettings(pack="generic5"))
    head = compile_head(bank, "das")
    with tempfile.TemporaryDirectory() as folder:
        return [figure(model, head, write_clip(Path(folder)), turns=5 if quick else 61)]


def labels() -> list[str]:
    """Return the labels."""
    return [f"sound {number}" for number in range(LABELS)]


def write_clip(folder: Path) -> Path:
    """Write the clip: 10 s of noise."""
    path = folder / "clip.flac"
    noise = 0.1 * np.random.default_rng(0).standard_normal(SECONDS * RATE)
    soundfile.write(path, noise, RATE)
    return path


def figure(model: Backbone, head: Head, path: Path, *, turns: int) -> Figure:
    """Return the figure of one clip through a model; its details are drawn as a picture."""
    seconds = clip_steps(model, head, path, turns=turns)
    total = scaled(seconds.pop("total"), 1e3)
    steps = {name: scaled(values, 1e3).median for name, values in seconds.items()}
    by_step = ", ".join(f"{name} {value:.2f}" for name, value in steps.items())
    return Figure(
        f"one 10 s clip, {model.name}, file to scores",
        total,
        "ms",
        note=f"{by_step} ms: {sum(steps.values()):.1f} ms together",
        details={"model": model.name, "steps_ms": steps},
    )


def clip_steps(model: Backbone, head: Head, path: Path, *, turns: int) -> dict[str, list[float]]:
    """Return the seconds of each step, given the result of the one before it, and of `total`."""
    native = read(path)
    clip = read(native, rate=model.rate)
    features = model.features(clip.samples)
    row = model.encode(features)
    # The picture stacks the steps under these names, in this order.
    runs: dict[str, Callable[[], object]] = {
        "decode": lambda: read(path),
        "resample": lambda: read(native, rate=model.rate),
        "mel": lambda: model.features(clip.samples),
        "encoder": lambda: model.encode(features),
        "scoring": lambda: head.scores(row),
        "total": lambda: head.scores(model.embed_audio([read(path)])),
    }
    return in_turns(runs, turns)
