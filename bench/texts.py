"""The bank of 50 labels, 10,450 texts, beside transformers with one text at a time.

Ratios are taken on a sample of the bank's own texts, in turns, every library with its own
default threads; then the whole bank is built once, and once more from the cache.
"""

import os
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bench.checkpoints import LABELS, write_checkpoint
from bench.figures import Figure, Spread, in_turns, ratio, scaled

SHAPE = "clap-htsat-unfused"


def measure(*, quick: bool) -> list[Figure]:
    """Encode a sample of the bank's texts by each runtime and by transformers."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DRIFTSCORE_CACHE"] = str(Path(folder) / "cache")
        return _measure(Path(folder), sample=64 if quick else 512, turns=1 if quick else 3,
                        whole=not quick)  # fmt: skip


def _measure(folder: Path, *, sample: int, turns: int, whole: bool) -> list[Figure]:
    import torch
    import transformers

    from driftscore import Classifier, build_bank, load_backbone
    from driftscore.backbones._clap_writer import export
    from driftscore.textcache import TextCache

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    name = str(write_checkpoint(SHAPE, folder / "model"))
    export(name)
    texts = Classifier(LABELS).texts()
    some = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[:sample]]
    tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    model = transformers.ClapModel.from_pretrained(name).eval()

    def one_by_one() -> Any:
        rows = []
        with torch.inference_mode():
            for text in some:
                out = model.get_text_features(**tokenizer(text, return_tensors="pt"))
                rows.append(getattr(out, "pooler_output", out)[0].numpy())
        return np.stack(rows)

    runtimes = ["torch", "onnx", *(["openvino"] if find_spec("openvino") else [])]
    models: dict[str, Any] = {r: load_backbone(name, runtime=r) for r in runtimes}
    expected = one_by_one()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    gaps = {r: float(np.abs(m.embed_text(some) - expected).max()) for r, m in models.items()}
    runs: dict[str, Any] = {"peer": one_by_one}
    runs |= {r: lambda m=m: m.embed_text(some) for r, m in models.items()}
    seconds = in_turns(runs, turns, warm=False)
    medians = {r: float(np.median(seconds[r])) for r in runtimes}
    best = runtimes[-1]  # what `auto` takes: OpenVINO where it is installed
    figures = []
    for runtime in runtimes:
        times = ratio(seconds["peer"], seconds[runtime])
        figures.append(
            Figure(
                f"{sample} of the bank's {len(texts):,} texts, {runtime}",
                scaled(seconds[runtime], 1e3 / sample),
                "ms a text",
                peer="transformers, one text at a time",
                theirs=scaled(seconds["peer"], 1e3 / sample),
                ratio=times,
                bar=">= 3x" if runtime == best else "",
                met=times.median >= 3 if runtime == best else None,
                note=f"largest difference of an embedding: {gaps[runtime]:.0e}; "
                f"{len(texts):,} texts would take {medians[runtime] / sample * len(texts):.0f} s",
            )
        )
    if whole:
        figures += _whole_bank(models[best], best, len(texts), build_bank, TextCache)
    return figures


def _whole_bank(model: Any, runtime: str, texts: int, build: Any, cache: Any) -> list[Figure]:
    figures = []
    for which, bar in (("the first time", ""), ("the second time", "instant: < 1 s")):
        start = time.perf_counter()
        build(LABELS, model, cache=cache(), progress=False)
        took = time.perf_counter() - start
        figures.append(
            Figure(
                f"bank of {len(LABELS)} labels, {texts:,} texts, {which}, {runtime}",
                Spread(took, took, took, 1), "s", bar=bar, met=took < 1 if bar else None,
            )
        )  # fmt: skip
    return figures
