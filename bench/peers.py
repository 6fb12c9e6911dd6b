"""The embedded model beside other small audio taggers, in hours of audio per hour of one core.

Clips of 10 s at 44.1 kHz from FLAC files to an embedding or tag scores: each is decoded, resampled
to the model's rate and run on one thread, in turns. Time is the processor's, so other work on the
machine counts little. mn04, from which `mini` was distilled, gets its weights from
`$DRIFTSCORE_MN04` or `../shared/models/mn04`. YAMNet runs in LiteRT (`pip install ai-edge-litert`)
on windows of 0.975 s every 0.48 s, as its authors run it, and without overlap, with the TFLite file
that `$DRIFTSCORE_YAMNET` names; neither comes with driftscore, and without them it is left out.
"""

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from bench.figures import Figure, NotHereError, Spread, in_turns, ratio
from driftscore import load_backbone
from driftscore.audio.recordings import Samples, read

THREADS = 1
CLIPS, SECONDS, RATE = 12, 10, 44_100
UNIT = "hours per core hour"
YAMNET_RATE, YAMNET_FRAME, YAMNET_HOP = 16_000, 15_600, 7_680
_MN04, _YAMNET = "DRIFTSCORE_MN04", "DRIFTSCORE_YAMNET"
Run = Callable[[Path], object]


def measure(*, quick: bool) -> list[Figure]:
    """Time every model on the same clips."""
    clips, turns = (2, 2) if quick else (CLIPS, 15)
    models = {"mini": _backbone("mini"), "mn04": _backbone("mn04")}
    if file := os.environ.get(_YAMNET):
        models["YAMNet"] = yamnet(file, YAMNET_HOP)
        models["YAMNet, windows without overlap"] = yamnet(file, YAMNET_FRAME)
    with tempfile.TemporaryDirectory() as folder:
        paths = [_write_clip(Path(folder), seed) for seed in range(clips)]
        runs = {name: partial(_run_all, run, paths) for name, run in models.items()}
        seconds = in_turns(runs, turns, clock=time.process_time)
    return [_figure(seconds, name, clips) for name in models if name != "mini"]


def _run_all(run: Run, paths: list[Path]) -> None:
    for path in paths:
        run(path)


def yamnet(file: str, hop: int) -> Run:
    """Return a function that gives the mean scores of YAMNet's 521 classes for a sound file."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise NotHereError("YAMNet needs LiteRT: pip install ai-edge-litert") from error
    if not Path(file).is_file():
        raise NotHereError(f"There is no TFLite file of YAMNet at {file} (see {_YAMNET})")
    interpreter = Interpreter(file, num_threads=1)
    interpreter.allocate_tensors()
    given = interpreter.get_input_details()[0]["index"]
    scores = interpreter.get_output_details()[0]["index"]

    def run(path: Path) -> NDArray[np.float32]:
        rows = []
        for frame in yamnet_frames(read(path, rate=YAMNET_RATE).samples, hop):
            interpreter.set_tensor(given, frame[None])
            interpreter.invoke()
            rows.append(interpreter.get_tensor(scores)[0])
        mean: NDArray[np.float32] = np.mean(rows, axis=0)
        return mean

    return run


def yamnet_frames(samples: Samples, hop: int) -> list[Samples]:
    """Return the windows of a clip; the last one is filled up with zeros."""
    hops = max(0, -(-(len(samples) - YAMNET_FRAME) // hop))
    padded = np.zeros(hops * hop + YAMNET_FRAME, np.float32)
    padded[: len(samples)] = samples
    return [padded[start : start + YAMNET_FRAME] for start in range(0, hops * hop + 1, hop)]


def _backbone(name: str) -> Run:
    if name == "mn04" and not os.environ.get(_MN04):
        shared = Path(os.environ.get("DRIFTSCORE_SHARED") or Path(__file__).parents[2] / "shared")
        weights = shared / "models" / "mn04"
        if not weights.is_dir():
            raise NotHereError(f"The weights of mn04 were not found; name their file in {_MN04}")
        os.environ[_MN04] = str(weights)
    model = load_backbone(name)
    return lambda path: model.embed_audio([read(path)])


def _write_clip(folder: Path, seed: int) -> Path:
    """Write 10 s of noise whose level rises and falls."""
    path = folder / f"{seed}.flac"
    noise = 0.1 * np.random.default_rng(seed).standard_normal(SECONDS * RATE)
    soundfile.write(path, noise * np.sin(np.linspace(0, np.pi * (seed + 1), len(noise))), RATE)
    return path


def _figure(seconds: dict[str, list[float]], peer: str, clips: int) -> Figure:
    audio_s = clips * SECONDS
    ours, theirs = (
        Spread.of([audio_s / value for value in seconds[name]]) for name in ("mini", peer)
    )
    return Figure(
        f"{clips} clips of {SECONDS} s through mini, from file to embedding",
        ours,
        UNIT,
        peer=peer,
        theirs=theirs,
        ratio=ratio(seconds[peer], seconds["mini"]),
    )
