"""What DAS gains in real noise: `python -m training.robustness mini mn04`.

Every clip of `../shared/audio/events` with every recording of `../shared/audio/noise` that
does not hold its class, additive mixing (power SNR over the clip's active part), at 20, 10,
6 and 0 dB, and clean. Intervals are paired bootstraps over clips: a clip's mixes stay
together. Prints the table of the model card.
"""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from driftscore import build_bank, compile_head, load_backbone
from driftscore.backbones import Backbone, embed_recording
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.datasets import shared_events
from driftscore.lab.corpora.loading import load
from driftscore.lab.corpora.noises import recorded
from driftscore.lab.corpora.noises.protocol import NoiseRecording
from driftscore.lab.metrics import accuracy_difference, hits
from driftscore.lab.mixing.mixings.additive import draw as draw_additive
from driftscore.lab.mixing.record import mix
from driftscore.lab.mixing.sounds import Excerpt, Sound
from driftscore.lab.seeds import generator
from driftscore.progress import progress_bar
from driftscore.textcache import TextCache
from driftscore.vectors import Vector

SNRS_DB = (None, 20.0, 10.0, 6.0, 0.0)
Pair = tuple[Clip, NoiseRecording | None]


def noises() -> list[NoiseRecording]:
    """Return the recordings of `noise`: those with a clear licence."""
    found = recorded.recordings(recorded.default_home())
    return [recording for recording in found if recording.id.startswith("noise/")]


def embed(pair: Pair, snr_db: float | None, model: Backbone) -> Vector:
    """Return the embedding of a clip in a noise."""
    clip, noise = pair
    event = Sound(str(clip.path), load(str(clip.path), model.rate))
    if noise is None or snr_db is None:
        return embed_recording(event.audio, model)
    under = Sound(noise.file, load(noise.file, model.rate))
    start = int(generator("robustness", clip.id, noise.id).integers(len(under.audio.samples)))
    excerpt = Excerpt(under, start, len(event.audio.samples))
    record = draw_additive(event, excerpt, snr_db=snr_db)
    return embed_recording(mix(record, load).audio, model)


def measure(model: Backbone) -> list[dict[str, Any]]:
    """Return a row for each SNR: both accuracies, the gain and its interval, in percent."""
    home = shared_events.default_home()
    labels, clips = shared_events.labels(home), shared_events.clips(home)
    bank = build_bank(labels, model, cache=TextCache())
    heads = {rule: compile_head(bank, rule) for rule in ("cosine", "das")}
    clean: list[Pair] = [(clip, None) for clip in clips]
    noisy: list[Pair] = [(c, n) for c in clips for n in noises() if not n.contains(c.labels)]
    rows = []
    total = len(clean) + len(noisy) * (len(SNRS_DB) - 1)
    with progress_bar(model.name, total) as advance, ThreadPoolExecutor(2) as pool:

        def one(pair: Pair, snr_db: float | None) -> Vector:
            row = embed(pair, snr_db, model)
            advance(1)
            return row

        for snr_db in SNRS_DB:
            pairs = clean if snr_db is None else noisy
            z = np.stack(list(pool.map(one, pairs, [snr_db] * len(pairs))))
            truth = [labels.index(clip.labels[0]) for clip, _ in pairs]
            scores = {rule: head.scores(z) for rule, head in heads.items()}
            gain = accuracy_difference(
                truth,
                scores["das"],
                scores["cosine"],
                groups=[clip.id for clip, _ in pairs],
                rng=generator("robustness", model.name, snr_db),
            )
            rows.append(
                {
                    "backbone": model.name,
                    "fingerprint": model.fingerprint,
                    "snr_db": snr_db,
                    "clips": len(clips),
                    "mixes": len(pairs),
                    **{rule: 100 * float(hits(truth, s).mean()) for rule, s in scores.items()},
                    "gain": 100 * gain.difference,
                    "low": 100 * gain.low,
                    "high": 100 * gain.high,
                }
            )
    return rows


def line(row: dict[str, Any]) -> str:
    """Return a row as a line of Markdown."""
    snr = "clean" if row["snr_db"] is None else f"{row['snr_db']:.0f} dB"
    gain = f"{row['gain']:+.1f} ({row['low']:+.1f} to {row['high']:+.1f})"
    shares = f"{row['cosine']:.1f} | {row['das']:.1f}"
    return f"| {row['backbone']} | {snr} | {row['mixes']} | {shares} | {gain} |"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("backbones", nargs="*", default=["mini", "mn04"])
    parser.add_argument("--out", type=Path, help="also write the rows as JSON")
    options = parser.parse_args()
    print("| backbone | SNR | mixes | cosine | DAS .25 | DAS gains (95 % interval) |")
    print("| --- | --- | --- | --- | --- | --- |")
    rows = []
    for name in options.backbones:
        for row in measure(load_backbone(name)):
            rows.append(row)
            print(line(row), flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
