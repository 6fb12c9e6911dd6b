"""The cost of a fine hop: windows of 4 s every 0.5 s beside 10 s windows without overlap.

Four minutes of noise through the embedded model, which computes the frames of a recording once.
"""

from itertools import islice

import numpy as np

from bench.figures import Figure, in_turns, ratio, scaled
from driftscore import Audio, load_backbone
from driftscore.audio.recordings import windows
from driftscore.engines.window_stream import sliding_embeddings

THREADS = 1
SECONDS = 240


def measure(*, quick: bool) -> list[Figure]:
    """Embed one recording with a fine hop and without overlap, in turns."""
    model = load_backbone("mini")
    seconds = 60 if quick else SECONDS
    noise = 0.1 * np.random.default_rng(0).standard_normal(seconds * model.rate)
    audio = Audio(noise.astype(np.float32), model.rate)

    def fine() -> object:
        return list(sliding_embeddings(audio, model, window_s=4.0, hop_s=0.5))

    def coarse() -> object:
        parts = islice(windows(audio, rate=model.rate, seconds=model.seconds), 0, None, 2)
        return [model.encode(model.features(window.samples)) for window in parts]

    taken = in_turns({"fine": fine, "coarse": coarse}, 3 if quick else 15)
    found = ratio(taken["coarse"], taken["fine"])
    return [
        Figure(
            f"windows of 4 s every 0.5 s, {seconds} s of audio, mini",
            scaled(taken["fine"], 1e3),
            "ms",
            peer="windows of 10 s without overlap",
            theirs=scaled(taken["coarse"], 1e3),
            ratio=found,
            bar="at most 1.3 times the cost (>= 0.77x)",
            met=found.median >= 1 / 1.3,
        )
    ]
