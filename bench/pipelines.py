"""Files on disk to labels, beside transformers' zero-shot pipeline on the same weights.

64 clips of 10 s at 48 kHz, 50 labels, random weights of LAION's shapes, every library with
its own default threads. The peer runs twice: with its defaults on files, and with batches of
8 on arrays in memory. Ours starts from files each time, with an empty text cache.
"""

import os
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from bench.checkpoints import LABELS, SHAPES, write_checkpoint
from bench.figures import Figure, Spread, in_turns, ratio, scaled

TEMPLATE = "This is a sound of {}."
BARS = {"clap-htsat-unfused": (10.0, 3.0), "larger_clap": (5.0, 1.8)}
PEERS = ("transformers pipeline, defaults", "transformers pipeline, batch_size 8, in memory")


def measure(*, quick: bool) -> list[Figure]:
    """Run ours and transformers' pipelines in turns, and compare their answers."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    figures: list[Figure] = []
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["DRIFTSCORE_CACHE"] = str(Path(folder) / "cache")
            figures += _of_shape(shape, Path(folder), clips=8 if quick else 64,
                                 turns=1 if quick else 3)  # fmt: skip
    return figures


def _of_shape(shape: str, folder: Path, *, clips: int, turns: int) -> list[Figure]:
    import transformers

    from driftscore import load_backbone, pipeline
    from driftscore.backbones._clap_writer import export

    name = str(write_checkpoint(shape, folder / "model"))
    export(name)
    files, arrays = _write_clips(folder, clips)
    theirs = transformers.pipeline("zero-shot-audio-classification", model=name)
    runtimes = ["onnx", *(["openvino"] if find_spec("openvino") else [])]
    models = {runtime: load_backbone(name, runtime=runtime) for runtime in runtimes}
    answers: dict[str, Any] = {}

    def ask(model: Any) -> Any:
        """Ask a pipeline that has never seen the labels: text is encoded within the run."""
        ours = pipeline(model=model, rule="cosine", cache=False, progress=False)
        return ours(files, LABELS, hypothesis_template=TEMPLATE)

    def kept(key: str, answer: Any) -> None:
        answers[key] = answer

    runs: dict[str, Any] = {
        PEERS[0]: lambda: kept(PEERS[0], theirs(files, candidate_labels=list(LABELS))),
        PEERS[1]: lambda: kept(
            PEERS[1], theirs(list(arrays), candidate_labels=list(LABELS), batch_size=8)
        ),
    }
    for runtime, model in models.items():
        model.embed_audio([_audio(arrays[0])])
        model.embed_text(LABELS[:1])
        runs[runtime] = lambda model=model, runtime=runtime: kept(runtime, ask(model))
    theirs(files[:1], candidate_labels=list(LABELS))
    seconds = in_turns(runs, turns, warm=False)
    best = runtimes[-1]  # what `auto` takes: OpenVINO where it is installed
    figures = [
        _figure(shape, peer, bar, seconds, runtime, clips, barred=runtime == best)
        for peer, bar in zip(PEERS, BARS[shape], strict=True)
        for runtime in runtimes
    ]
    return [*figures, *(_agreement(shape, theirs, models[r], arrays, answers, r) for r in runtimes)]


def _figure(
    shape: str, peer: str, bar: float, seconds: Mapping[str, list[float]], runtime: str,
    clips: int, *, barred: bool,
) -> Figure:  # fmt: skip
    times = ratio(seconds[peer], seconds[runtime])
    return Figure(
        f"{clips} clips, {len(LABELS)} labels, {shape} shape, {runtime}",
        scaled(seconds[runtime], 1e3 / clips),
        "ms a clip",
        peer=peer,
        theirs=scaled(seconds[peer], 1e3 / clips),
        ratio=times,
        bar=f">= {bar:g}x" if barred else "",
        met=times.median >= bar if barred else None,
    )


def _agreement(
    shape: str, theirs: Any, model: Any, arrays: list[Any], answers: Mapping[str, Any], runtime: str
) -> Figure:
    """Compare cosines with transformers' own, and the order of the labels on every clip."""
    import torch

    peer_rows, ours = [], model.embed_text([TEMPLATE.format(label) for label in LABELS])
    tokens = theirs.tokenizer(
        [TEMPLATE.format(label) for label in LABELS], return_tensors="pt", padding=True
    )
    with torch.inference_mode():
        out = theirs.model.get_text_features(**tokens)
        texts = getattr(out, "pooler_output", out).numpy()
        for samples in arrays[:8]:
            given = theirs.feature_extractor([samples], sampling_rate=48_000, return_tensors="pt")
            out = theirs.model.get_audio_features(**given)
            peer_rows.append(getattr(out, "pooler_output", out)[0].numpy())
    texts = texts / np.linalg.norm(texts, axis=1, keepdims=True)
    sounds = np.stack(peer_rows) / np.linalg.norm(peer_rows, axis=1, keepdims=True)
    heard = model.embed_audio([_audio(samples) for samples in arrays[:8]])
    gap = float(np.abs(sounds @ texts.T - heard @ ours.T).max())
    same = [
        [one["label"] for one in a] == [one["label"] for one in b]
        for a, b in zip(answers[PEERS[0]], answers[runtime], strict=True)
    ]
    spread = float(np.ptp(sounds @ texts.T, axis=1).min())
    return Figure(
        f"largest difference in cosine, {shape} shape, {runtime}",
        Spread(gap, gap, gap, 8),
        "",
        peer="transformers",
        bar="<= 1e-4, identical ranking",
        met=gap <= 1e-4 and all(same),
        note=f"{sum(same)} of {len(same)} clips have all 50 labels in the same order; "
        f"a clip's cosines lie over at least {spread:.2f}",
    )


def _audio(samples: Any) -> Any:
    from driftscore import Audio

    return Audio(samples, 48_000)


def _write_clips(folder: Path, number: int) -> tuple[list[str], list[Any]]:
    """Write clips of noise with a moving colour, as 16 bit wav; return them as read back."""
    rng = np.random.default_rng(1)
    files, arrays = [], []
    for index in range(number):
        noise = rng.standard_normal(480_000)
        time = np.arange(480_000) / 48_000
        tone = np.sin(2 * np.pi * (100 + 40 * index) * time) * (1 + np.sin(time * (1 + index % 7)))
        path = folder / f"{index}.wav"
        soundfile.write(path, 0.1 * (noise * rng.random() + tone), 48_000)
        files.append(str(path))
        arrays.append(soundfile.read(path, dtype="float32")[0])
    return files, arrays
