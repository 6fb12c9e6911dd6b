"""How near the audio tower is to what the machine can do, and what batches and int8 would bring.

One thread. The peak is the best float32 matrix product of numpy's and torch's libraries over
several sizes; the tower's work is counted from its shape, products only.
"""

import os
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bench.checkpoints import SHAPES, write_checkpoint
from bench.figures import Figure, Spread, in_turns, ratio, scaled


def measure(*, quick: bool) -> list[Figure]:
    """Time the towers, the peak, a torch batch of 8 and int8, in turns on one thread."""
    import torch

    torch.set_num_threads(1)
    figures: list[Figure] = []
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["DRIFTSCORE_CACHE"] = str(Path(folder) / "cache")
            figures += _of_shape(shape, Path(folder), turns=2 if quick else 9)
    return figures


def _of_shape(shape: str, folder: Path, *, turns: int) -> list[Figure]:
    import torch

    from bench import one_clip
    from driftscore import build_bank, compile_head, load_backbone
    from driftscore.backbones._clap_writer import export

    name = str(write_checkpoint(shape, folder / "model"))
    export(name)
    reference: Any = load_backbone(name, runtime="torch")
    runtimes = ["onnx", *(["openvino"] if find_spec("openvino") else [])]
    models: dict[str, Any] = {r: load_backbone(name, runtime=r) for r in runtimes}
    samples = (0.1 * np.random.default_rng(0).standard_normal(480_000)).astype(np.float32)
    mel = reference.features(samples)
    runs: dict[str, Any] = {"torch": lambda: reference.encode(mel)}
    runs |= {r: lambda model=model: model.encode(mel) for r, model in models.items()}
    eight = torch.from_numpy(np.stack([mel] * 8))[:, None]

    def batch() -> None:
        with torch.inference_mode():
            reference.towers.model.get_audio_features(input_features=eight)

    runs["torch, batch of 8"] = batch
    small = export(name, folder / "int8", int8=True)
    quantised: Any = load_backbone(small.home, runtime="onnx")
    runs["int8"] = lambda: quantised.encode(mel)
    peaks: list[float] = []
    runs["peak"] = lambda: peaks.append(_peak_gflops())
    seconds = in_turns(runs, turns)
    peak = Spread.of(peaks)
    gflop = tower_gflop(SHAPES[shape])
    figures = [
        Figure(
            "float32 matrix product peak, one thread", peak, "GFLOP/s",
            note=f"the {shape} tower's products are {gflop:.1f} GFLOP a window",
        )
    ]  # fmt: skip
    for runtime in ("torch", *runtimes):
        share = gflop / np.median(seconds[runtime]) / peak.median
        figures.append(
            Figure(
                f"{shape} tower, one window, {runtime}",
                scaled(seconds[runtime], 1e3),
                "ms",
                peer="torch" if runtime != "torch" else "",
                theirs=scaled(seconds["torch"], 1e3) if runtime != "torch" else None,
                ratio=ratio(seconds["torch"], seconds[runtime]) if runtime != "torch" else None,
                note=f"{share:.0%} of the peak, counting products only",
            )
        )
    each = [value / 8 for value in seconds["torch, batch of 8"]]
    figures.append(
        Figure(
            f"{shape} tower, batches of 8 in torch, each window", scaled(each, 1e3), "ms",
            peer="torch, one window a call", theirs=scaled(seconds["torch"], 1e3),
            ratio=ratio(seconds["torch"], each),
            note="a window alone is work enough for a core; batches would tie its last bits to "
            "its neighbours",
        )
    )  # fmt: skip
    figures.append(
        Figure(
            f"{shape} tower, int8 (asked for by name only)", scaled(seconds["int8"], 1e3), "ms",
            peer="onnx, float32", theirs=scaled(seconds["onnx"], 1e3),
            ratio=ratio(seconds["onnx"], seconds["int8"]),
            note=f"least cosine with float32: sounds {small.agreement['audio_cosine']:.4f}, texts "
            f"{small.agreement['text_cosine']:.4f}, on random weights; what it costs in labels "
            "must be measured on real ones",
        )
    )  # fmt: skip
    if shape == next(iter(SHAPES)):
        bank = build_bank(one_clip.labels(), models["onnx"], drifts=False, progress=False)
        head = compile_head(bank, "cosine")
        line = one_clip.figure(models["onnx"], head, one_clip.write_clip(folder), turns=turns)
        figures.append(_named(line, f"{shape} shape in onnxruntime"))
    return figures


def _named(line: Figure, model: str) -> Figure:
    from dataclasses import replace

    work = f"one 10 s clip, {model}, file to scores"
    return replace(line, work=work, details=dict(line.details) | {"model": model})


def _peak_gflops() -> float:
    """Return the best rate of a square float32 product, by numpy and by torch."""
    import torch

    best = 0.0
    for size in (512, 1024, 1536):
        a = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
        b = torch.from_numpy(a)
        for product in (lambda a=a: a @ a, lambda b=b: b @ b):
            start = time.perf_counter()
            product()
            best = max(best, 2 * size**3 / (time.perf_counter() - start) / 1e9)
    return best


def tower_gflop(config: dict[str, Any], *, image: int = 256, patch: int = 4) -> float:
    """Return the work of one window's matrix products, in GFLOP."""
    width, window, tokens = config["patch_embeds_hidden_size"], 64, (image // patch) ** 2
    total = 2.0 * tokens * patch**2 * width
    for stage, depth in enumerate(config["depths"]):
        dense = 2 * tokens * width * (3 + 1 + 4 + 4) * width  # joined, output and the two of mlp
        attention = 2 * 2 * tokens * window * width
        total += depth * (dense + attention)
        if stage + 1 < len(config["depths"]):
            tokens, width = tokens // 4, width * 2
            total += 2 * tokens * (2 * width) * width
    return total / 1e9
