"""One 10 s clip from the file to its scores, one thread: part of `make bench`.

A FLAC file at 44.1 kHz, 50 labels, the embedded model: decoding, resampling, log-mel, net and
scoring, each in turn; medians of many rounds.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

from driftscore import build_bank, compile_head, load_backbone
from driftscore.audio import read
from driftscore.backbones import embed_recording, mini_frontend

ROUNDS, LABELS = 41, 50


def main() -> None:
    """Measure and print."""
    model = load_backbone("mini")
    labels = [f"sound {number}" for number in range(LABELS)]
    head = compile_head(build_bank(labels, model, pack="generic5"), "das")
    noise = 0.1 * np.random.default_rng(0).standard_normal(441_000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.flac"
        soundfile.write(path, noise, 44_100)
        steps: list[list[float]] = []
        for _ in range(ROUNDS):
            marks = [time.perf_counter()]
            clip = read(path, rate=model.rate)
            marks.append(time.perf_counter())
            mini_frontend.log_mel(clip.samples)
            marks.append(time.perf_counter())
            embed_recording(clip, model)
            marks.append(time.perf_counter())
            head.scores(embed_recording(path, model))
            marks.append(time.perf_counter())
            steps.append(list(np.diff(marks) * 1e3))
    decode, mel, embed, whole = np.median(steps, axis=0)
    print(f"one 10 s clip (44.1 kHz flac, {LABELS} labels), one thread: {whole:.1f} ms in all")
    print(f"decode and resample {decode:.1f}, log-mel {mel:.1f}, net {embed - mel:.1f} ms")


if __name__ == "__main__":
    main()
