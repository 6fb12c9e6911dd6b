"""How close the audio tower is to the machine's peak, and the effect of batches and int8.

One thread. The peak is the fastest float32 matrix product of numpy and torch over several sizes.
The work of the tower is counted from its shape, matrix products only.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import one_clip
from bench.checkpoints import SHAPES, Shape, write_checkpoint
from bench.figures import Figure, Spread, in_turns, ratio, scaled
from driftscore import Backbone, build_bank, compile_head, load_backbone
from driftscore.backbones.clap.export import export

THREADS = 1
_BATCH = "torch, batch of 8"


def measure(*, quick: bool) -> list[Figure]:
    """Time the towers, the peak, a torch batch of 8 and int8, in turns on one thread."""
    import torch

    torch.set_num_threads(1)
    turns = 2 if quick else 9
    figures: list[Figure] = []
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["DRIFTSCORE_CACHE"] = str(Path(folder) / "cache")
            towers = _load(shape, Path(folder))
            figures += _tower_figures(towers, turns)
            if shape == next(iter(SHAPES)):
                figures.append(_clip_figure(towers, Path(folder), turns))
    return figures


@dataclass(frozen=True)
class _Towers:
    """One checkpoint in every runtime."""

    shape: str
    reference: Any
    """The torch runtime; its own model is called directly for batches."""
    models: dict[str, Backbone]
    int8: Backbone
    agreement: dict[str, float]
    """Smallest cosine of int8 with float32, for sounds and for texts."""


def _load(shape: str, folder: Path) -> _Towers:
    name = str(write_checkpoint(shape, folder / "model"))
    export(name)
    small = export(name, folder / "int8", int8=True)
    runtimes = ["onnx"]
    return _Towers(
        shape,
        load_backbone(name, runtime="torch"),
        {runtime: load_backbone(name, runtime=runtime) for runtime in runtimes},
        load_backbone(small.home, runtime="onnx"),
        dict(small.manifest.agreement),
    )


def _tower_figures(towers: _Towers, turns: int) -> list[Figure]:
    samples = (0.1 * np.random.default_rng(0).standard_normal(480_000)).astype(np.float32)
    mel = towers.reference.features(samples)
    peaks: list[float] = []
    runs: dict[str, Callable[[], object]] = {"torch": lambda: towers.reference.encode(mel)}
    for runtime, model in towers.models.items():
        runs[runtime] = partial(model.encode, mel)
    runs[_BATCH] = _batch_of_8(towers.reference, mel)
    runs["int8"] = lambda: towers.int8.encode(mel)
    runs["peak"] = lambda: peaks.append(_peak_gflops())
    seconds = in_turns(runs, turns)
    peak, gflop = Spread.of(peaks), tower_gflop(SHAPES[towers.shape])
    return [
        Figure(
            "float32 matrix product peak, one thread", peak, "GFLOP/s",
            note=f"one window of the {towers.shape} tower has {gflop:.1f} GFLOP of products",
        ),
        *(
            _runtime_figure(towers.shape, runtime, seconds, gflop / peak.median)
            for runtime in ("torch", *towers.models)
        ),
        _batch_figure(towers.shape, seconds),
        _int8_figure(towers, seconds),
    ]  # fmt: skip


def _batch_of_8(reference: Any, mel: NDArray[np.float32]) -> Callable[[], None]:
    import torch

    eight = torch.from_numpy(np.stack([mel] * 8))[:, None]

    def batch() -> None:
        with torch.inference_mode():
            reference.towers.model.get_audio_features(input_features=eight)

    return batch


def _runtime_figure(
    shape: str, runtime: str, seconds: dict[str, list[float]], peak_seconds: float
) -> Figure:
    """Return one window's time in a runtime; `peak_seconds` is its time at the machine's peak."""
    share = peak_seconds / float(np.median(seconds[runtime]))
    ours = Figure(
        f"{shape} tower, one window, {runtime}",
        scaled(seconds[runtime], 1e3),
        "ms",
        note=f"{share:.0%} of the peak, counting products only",
    )
    if runtime == "torch":
        return ours
    torch_s = seconds["torch"]
    times = ratio(torch_s, seconds[runtime])
    return replace(ours, peer="torch", theirs=scaled(torch_s, 1e3), ratio=times)


def _batch_figure(shape: str, seconds: dict[str, list[float]]) -> Figure:
    each = [value / 8 for value in seconds[_BATCH]]
    return Figure(
        f"{shape} tower, torch with batches of 8, per window", scaled(each, 1e3), "ms",
        peer="torch, one window per call", theirs=scaled(seconds["torch"], 1e3),
        ratio=ratio(seconds["torch"], each),
        note="one window is enough work for a core; in a batch the last bits of a window would "
        "depend on the other windows",
    )  # fmt: skip


def _int8_figure(towers: _Towers, seconds: dict[str, list[float]]) -> Figure:
    return Figure(
        f"{towers.shape} tower, int8 (only on request)", scaled(seconds["int8"], 1e3), "ms",
        peer="onnx, float32", theirs=scaled(seconds["onnx"], 1e3),
        ratio=ratio(seconds["onnx"], seconds["int8"]),
        note="smallest cosine with float32: "
        f"sounds {towers.agreement['audio_cosine']:.4f}, "
        f"texts {towers.agreement['text_cosine']:.4f}, with random weights; the effect on labels "
        "must be measured with real weights",
    )  # fmt: skip


def _clip_figure(towers: _Towers, folder: Path, turns: int) -> Figure:
    """Return the steps of one clip through the tower in onnxruntime."""
    model, name = towers.models["onnx"], f"{towers.shape} shape in onnxruntime"
    bank = build_bank(one_clip.labels(), model, drifts=False, progress=False)
    head = compile_head(bank, "cosine")
    line = one_clip.figure(model, head, one_clip.write_clip(folder), turns=turns)
    work = f"one 10 s clip, {name}, file to scores"
    return replace(line, work=work, details=dict(line.details) | {"model": name})


def _peak_gflops() -> float:
    """Return the highest rate of a square float32 product, with numpy and with torch."""
    import torch

    best = 0.0
    for size in (512, 1024, 1536):
        a = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
        for factor in (a, torch.from_numpy(a)):
            start = time.perf_counter()
            factor @ factor
            best = max(best, 2 * size**3 / (time.perf_counter() - start) / 1e9)
    return best


def tower_gflop(config: Shape, *, image: int = 256, patch: int = 4) -> float:
    """Return the work of the matrix products of one window, in GFLOP."""
    width, window, tokens = config["patch_embeds_hidden_size"], 64, (image // patch) ** 2
    total = 2.0 * tokens * patch**2 * width
    for stage, depth in enumerate(config["depths"]):
        # Query, key and value; the output; the two products of the MLP.
        dense = 2 * tokens * width * (3 + 1 + 4 + 4) * width
        attention = 2 * 2 * tokens * window * width
        total += depth * (dense + attention)
        if stage + 1 < len(config["depths"]):
            tokens, width = tokens // 4, width * 2
            total += 2 * tokens * (2 * width) * width
    return total / 1e9
