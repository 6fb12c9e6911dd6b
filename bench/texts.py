"""The bank of 50 labels (10,450 texts), beside transformers with one text at a time.

The ratios are measured on a sample of the bank's own texts, in turns, with the default threads of
each library. Then the complete bank is built once, and a second time from the cache.
"""

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from bench.checkpoints import LABELS, write_checkpoint
from bench.figures import Figure, Spread, in_turns, ratio, scaled
from driftscore import Backbone, Classifier, build_bank, load_backbone
from driftscore.backbones.clap.export import export
from driftscore.backbones.vectors import Matrix
from driftscore.text.cache import TextCache

SHAPE, BAR = "clap-htsat-unfused", 3


def measure(*, quick: bool) -> list[Figure]:
    """Encode a sample of the bank's texts with each runtime and with transformers."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DRIFTSCORE_CACHE"] = str(Path(folder) / "cache")
        name = str(write_checkpoint(SHAPE, Path(folder) / "model"))
        export(name)
        runtimes = ["torch", "onnx"]
        models = {runtime: load_backbone(name, runtime=runtime) for runtime in runtimes}
        sample, turns = (64, 1) if quick else (512, 3)
        figures = _sample_figures(name, models, sample=sample, turns=turns)
        best = runtimes[-1]  # what the runtime "auto" takes
        return figures if quick else figures + _bank_figures(models[best], best)


def _sample_figures(
    name: str, models: dict[str, Backbone], *, sample: int, turns: int
) -> list[Figure]:
    texts = Classifier(LABELS).texts()
    some = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[:sample]]
    peer = _one_by_one(name, some)
    expected = peer()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    gaps = {r: float(np.abs(m.embed_text(some) - expected).max()) for r, m in models.items()}
    runs: dict[str, Callable[[], object]] = {"peer": peer}
    for runtime, model in models.items():
        runs[runtime] = partial(model.embed_text, some)
    seconds = in_turns(runs, turns, warm=False)
    return [
        _figure(seconds["peer"], seconds[runtime], sample, len(texts), gaps[runtime], runtime,
                barred=runtime == list(models)[-1])
        for runtime in models
    ]  # fmt: skip


def _figure(
    theirs: list[float], ours: list[float], sample: int, texts: int, gap: float, runtime: str,
    *, barred: bool,
) -> Figure:  # fmt: skip
    times, total = ratio(theirs, ours), float(np.median(ours)) / sample * texts
    return Figure(
        f"{sample} of the bank's {texts:,} texts, {runtime}",
        scaled(ours, 1e3 / sample),
        "ms per text",
        peer="transformers, one text at a time",
        theirs=scaled(theirs, 1e3 / sample),
        ratio=times,
        bar=f">= {BAR}x" if barred else "",
        met=times.median >= BAR if barred else None,
        note=f"largest difference of an embedding: {gap:.0e}; "
        f"{texts:,} texts would take {total:.0f} s",
    )


def _one_by_one(name: str, texts: list[str]) -> Callable[[], Matrix]:
    """Return a function that encodes texts with transformers, one at a time."""
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    model = transformers.ClapModel.from_pretrained(name).eval()

    def encode() -> Matrix:
        rows = []
        with torch.inference_mode():
            for text in texts:
                out = model.get_text_features(**tokenizer(text, return_tensors="pt"))
                rows.append(getattr(out, "pooler_output", out)[0].numpy())
        return np.stack(rows)

    return encode


def _bank_figures(model: Backbone, runtime: str) -> list[Figure]:
    figures = []
    texts = len(Classifier(LABELS).texts())
    for which, bar in (("first build", ""), ("second build", "< 1 s")):
        start = time.perf_counter()
        build_bank(LABELS, model, cache=TextCache(), progress=False)
        took = time.perf_counter() - start
        figures.append(
            Figure(
                f"bank of {len(LABELS)} labels, {texts:,} texts, {which}, {runtime}",
                Spread(took, took, took, 1), "s", bar=bar, met=took < 1 if bar else None,
            )
        )  # fmt: skip
    return figures
