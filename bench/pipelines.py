"""Files on disk to labels, beside transformers' zero-shot pipeline with the same weights.

64 clips of 10 s at 48 kHz, 50 labels, random weights in the shapes of LAION's models, the default
threads of each library. The peer runs twice: with its defaults on files, and with batches of 8 on
arrays in memory. Ours always starts from files, with an empty text cache.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import soundfile
from numpy.typing import NDArray

from bench.checkpoints import LABELS, SHAPES, write_checkpoint
from bench.figures import Figure, NotHereError, Spread, in_turns, ratio, scaled
from driftscore import Audio, Backbone, load_backbone, pipeline
from driftscore.backbones.clap.export import export

RATE = 48_000
TEMPLATE = "This is a sound of {}."
BARS = {"clap-htsat-unfused": (10.0, 3.0), "larger_clap": (5.0, 1.8)}
PEERS = ("transformers pipeline, defaults", "transformers pipeline, batch_size 8, in memory")

Samples = NDArray[np.float32]
Answer = list[list[dict[str, Any]]]
"""What a pipeline returns: for each clip its labels with scores, best first."""


def measure(*, quick: bool) -> list[Figure]:
    """Run our pipeline and transformers' in turns, and compare their answers."""
    import transformers

    if shutil.which("ffmpeg") is None:
        raise NotHereError("the pipeline of transformers reads files with ffmpeg: install it")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    figures: list[Figure] = []
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["DRIFTSCORE_CACHE"] = str(Path(folder) / "cache")
            contest = _prepare(shape, Path(folder), clips=8 if quick else 64)
            figures += contest.figures(turns=1 if quick else 3)
    return figures


@dataclass
class _Contest:
    """Our pipelines and the peer's for one shape of model, with the same input."""

    shape: str
    theirs: Any
    models: dict[str, Backbone]
    """Ours by runtime; the last is the one that the runtime "auto" takes."""
    files: list[str]
    arrays: list[Samples]
    answers: dict[str, Answer] = field(default_factory=dict)

    def figures(self, *, turns: int) -> list[Figure]:
        """Time everything in turns, then compare the answers."""
        self.theirs(self.files[:1], candidate_labels=list(LABELS))
        seconds = in_turns(self._runs(), turns, warm=False)
        best = list(self.models)[-1]
        figures = [
            self._timed(peer, runtime, seconds, bar=bar if runtime == best else None)
            for peer, bar in zip(PEERS, BARS[self.shape], strict=True)
            for runtime in self.models
        ]
        return figures + [self._agreement(runtime) for runtime in self.models]

    def _runs(self) -> dict[str, Callable[[], None]]:
        labels = list(LABELS)

        def keep(key: str, answer: Callable[[], Answer]) -> Callable[[], None]:
            return lambda: self.answers.update({key: answer()})

        def peer(clips: list[Any], **options: int) -> Callable[[], Answer]:
            return lambda: self.theirs(clips, candidate_labels=labels, **options)

        runs = {
            PEERS[0]: keep(PEERS[0], peer(self.files)),
            PEERS[1]: keep(PEERS[1], peer(self.arrays, batch_size=8)),
        }
        for runtime, model in self.models.items():
            runs[runtime] = keep(runtime, partial(self._classify, model))
        return runs

    def _classify(self, model: Backbone) -> Answer:
        """Run a new pipeline without a cache, so that encoding the texts is part of the time."""
        ours = pipeline(model=model, rule="cosine", cache=False, progress=False)
        return cast(Answer, ours(self.files, LABELS, hypothesis_template=TEMPLATE))

    def _timed(
        self, peer: str, runtime: str, seconds: dict[str, list[float]], *, bar: float | None
    ) -> Figure:
        times, clips = ratio(seconds[peer], seconds[runtime]), len(self.files)
        return Figure(
            f"{clips} clips, {len(LABELS)} labels, {self.shape} shape, {runtime}",
            scaled(seconds[runtime], 1e3 / clips),
            "ms per clip",
            peer=peer,
            theirs=scaled(seconds[peer], 1e3 / clips),
            ratio=times,
            bar="" if bar is None else f">= {bar:g}x",
            met=None if bar is None else times.median >= bar,
        )

    def _agreement(self, runtime: str) -> Figure:
        """Compare our cosines with transformers' own, and the order of the labels of each clip."""
        model, some = self.models[runtime], self.arrays[:8]
        ours = model.embed_audio([Audio(samples, RATE) for samples in some]) @ (
            model.embed_text([TEMPLATE.format(label) for label in LABELS]).T
        )
        theirs = _peer_cosines(self.theirs, some)
        gap = float(np.abs(theirs - ours).max())
        same = [
            [one["label"] for one in a] == [one["label"] for one in b]
            for a, b in zip(self.answers[PEERS[0]], self.answers[runtime], strict=True)
        ]
        spread = float(np.ptp(theirs, axis=1).min())
        return Figure(
            f"largest difference in cosine, {self.shape} shape, {runtime}",
            Spread(gap, gap, gap, 8),
            "",
            peer="transformers",
            bar="<= 1e-4, identical ranking",
            met=gap <= 1e-4 and all(same),
            note=f"{sum(same)} of {len(same)} clips have all 50 labels in the same order; "
            f"the cosines of a clip span at least {spread:.2f}",
        )


def _prepare(shape: str, folder: Path, *, clips: int) -> _Contest:
    """Write a checkpoint, its export and the clips, load every model and warm it up."""
    import transformers

    name = str(write_checkpoint(shape, folder / "model"))
    export(name)
    files, arrays = _write_clips(folder, clips)
    theirs = transformers.pipeline("zero-shot-audio-classification", model=name)
    runtimes = ["onnx"]
    models = {runtime: load_backbone(name, runtime=runtime) for runtime in runtimes}
    for model in models.values():
        model.embed_audio([Audio(arrays[0], RATE)])
        model.embed_text(LABELS[:1])
    return _Contest(shape, theirs, models, files, arrays)


def _peer_cosines(theirs: Any, arrays: list[Samples]) -> NDArray[np.float32]:
    """Return transformers' cosine of each clip with each label."""
    import torch

    sentences = [TEMPLATE.format(label) for label in LABELS]
    tokens = theirs.tokenizer(sentences, return_tensors="pt", padding=True)
    rows = []
    with torch.inference_mode():
        out = theirs.model.get_text_features(**tokens)
        texts = getattr(out, "pooler_output", out).numpy()
        for samples in arrays:
            given = theirs.feature_extractor([samples], sampling_rate=RATE, return_tensors="pt")
            out = theirs.model.get_audio_features(**given)
            rows.append(getattr(out, "pooler_output", out)[0].numpy())
    texts = texts / np.linalg.norm(texts, axis=1, keepdims=True)
    sounds = np.stack(rows) / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines: NDArray[np.float32] = sounds @ texts.T
    return cosines


def _write_clips(folder: Path, number: int) -> tuple[list[str], list[Samples]]:
    """Write clips of noise and a tone as 16-bit wav; return the files and their samples."""
    rng = np.random.default_rng(1)
    time = np.arange(10 * RATE) / RATE
    files, arrays = [], []
    for index in range(number):
        noise = rng.standard_normal(len(time))
        tone = np.sin(2 * np.pi * (100 + 40 * index) * time) * (1 + np.sin(time * (1 + index % 7)))
        path = folder / f"{index}.wav"
        soundfile.write(path, 0.1 * (noise * rng.random() + tone), RATE)
        files.append(str(path))
        arrays.append(soundfile.read(path, dtype="float32")[0])
    return files, arrays
