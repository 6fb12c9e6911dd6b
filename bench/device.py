"""A CLAP on the device that torch sees, beside transformers on the same device.

Random weights in the shape of clap-htsat-unfused, 64 clips of 10 s at 48 kHz, 50 labels, from files
to labels; the peer has the same batches. On a machine with a GPU this is the check of everything
that could not be run where driftscore is developed: the rows must agree with those of the CPU.
Without a GPU both run on the CPU in batches.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.checkpoints import LABELS, write_checkpoint
from bench.clips import write_noise
from bench.figures import Figure, Spread, in_turns, ratio, scaled
from driftscore import load_backbone, pipeline
from driftscore.audio.recordings import windows
from driftscore.backbones.devices import torch_device

BATCH, MOST = 16, 1e-3


def measure(*, quick: bool) -> list[Figure]:
    """Compare the rows of the device with those of the CPU, then the time with the peer's."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    device, count = torch_device("auto"), 4 if quick else 64
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ["DRIFTSCORE_CACHE"] = str(home / "cache")
        model = write_checkpoint("clap-htsat-unfused", home / "clap")
        files = [
            str(write_noise(home / f"{number}.wav", 10, rate=48_000, seed=number))
            for number in range(count)
        ]
        own = load_backbone(model, runtime="torch", device=device, batch_size=BATCH)
        alone = load_backbone(model, runtime="torch", device="cpu")
        features = [alone.features(next(iter(windows(file, rate=alone.rate, seconds=10))).samples)
                    for file in files[:BATCH]]  # fmt: skip
        rows, expected = own.encode_batch(features), alone.encode_batch(features)
        gap = float(1 - (rows * expected).sum(axis=1).min())
        order = [np.argsort(-some @ alone.embed_text(list(LABELS)).T) for some in (rows, expected)]
        same = int((order[0] == order[1]).all(axis=1).sum())
        ours = pipeline(model=own, candidate_labels=list(LABELS), rule="cosine")
        theirs: Any = transformers.pipeline(
            "zero-shot-audio-classification", model=str(model), device=device, batch_size=BATCH
        )
        seconds = in_turns(
            {
                "ours": lambda: ours(files),
                "theirs": lambda: theirs(files, candidate_labels=list(LABELS)),
            },
            1 if quick else 5,
        )
    return [
        Figure(
            f"largest distance (1 - cosine) of rows in batches of {BATCH} on {device} from rows "
            "one by one on the CPU",
            Spread.of([gap]), "", bar=f"<= {MOST:g}", met=gap <= MOST,
            note=f"{same} of {len(rows)} clips have all {len(LABELS)} labels in the same order",
        ),
        Figure(
            f"{count} clips, {len(LABELS)} labels, torch on {device}, batches of {BATCH}",
            scaled(seconds["ours"], 1e3 / count), "ms per clip",
            peer=f"transformers pipeline, device {device}, batch_size {BATCH}",
            theirs=scaled(seconds["theirs"], 1e3 / count),
            ratio=ratio(seconds["theirs"], seconds["ours"]),
        ),
    ]  # fmt: skip
