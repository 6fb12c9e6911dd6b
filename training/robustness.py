"""Accuracy in real noise by cosine, DAS and the default: `python -m training.robustness mini mn04`.

Every clip of `../shared/audio/events` with every recording of `../shared/audio/noise` that does not
contain its class, additive mixing (power SNR over the active part of the clip), at 20, 10, 6 and
0 dB, and clean. Intervals are paired bootstraps over clips; all mixes of a clip stay together.
Prints the table of the model card.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from driftscore import Audio, Classifier, Embedder, Head, build_bank, compile_head
from driftscore.backbones.vectors import Matrix
from driftscore.lab.conditions import generator
from driftscore.lab.corpora.about import Clip
from driftscore.lab.corpora.folders import load
from driftscore.lab.corpora.noises.protocol import NoiseRecording
from driftscore.lab.metrics import accuracy_difference, hits
from driftscore.lab.mixing.mixings.additive import draw as draw_additive
from driftscore.lab.mixing.record import mix
from driftscore.lab.mixing.sounds import Excerpt, Sound
from driftscore.system.progress import progress_bar
from training.corpora import recorded, shared_events

SNRS_DB = (None, 20.0, 10.0, 6.0, 0.0)
RULES = ("cosine", "das", "default")
Pair = tuple[Clip, NoiseRecording | None]
Line = dict[str, str | float | None]


def noises() -> list[NoiseRecording]:
    """Return the recordings of `noise`: those with a clear licence."""
    found = recorded.recordings(recorded.default_home())
    return [recording for recording in found if recording.id.startswith("noise/")]


def mixed(pair: Pair, snr_db: float | None, rate: int) -> Audio:
    """Return a clip in a noise; the same part of the noise at every SNR."""
    clip, noise = pair
    event = Sound(str(clip.path), load(str(clip.path), rate))
    if noise is None or snr_db is None:
        return event.audio
    under = Sound(noise.file, load(noise.file, rate))
    start = int(generator("robustness", clip.id, noise.id).integers(len(under.audio.samples)))
    excerpt = Excerpt(under, start, len(event.audio.samples))
    return mix(draw_additive(event, excerpt, snr_db=snr_db), load).audio


def embedded(embedder: Embedder, pairs: list[Pair], snr_db: float | None) -> Matrix:
    """Return the embedding of each pair at one SNR."""
    rate = embedder.backbone.rate
    mixes: Iterator[Audio] = (mixed(pair, snr_db, rate) for pair in pairs)
    title = f"{embedder.backbone.name}, {'clean' if snr_db is None else f'{snr_db:g} dB'}"
    rows = []
    with progress_bar(title, len(pairs)) as advance:
        for found in embedder.embed(mixes):
            rows.append(found.embedding)
            advance(1)
    return np.stack(rows)


def measure(embedder: Embedder) -> Iterator[Line]:
    """Yield one line per SNR: the accuracies, and gains over cosine with intervals, in percent."""
    home = shared_events.default_home()
    labels, clips = shared_events.labels(home), shared_events.clips(home)
    bank = build_bank(labels, embedder.backbone, cache=embedder.text_cache)
    heads: dict[str, Head] = {rule: compile_head(bank, rule) for rule in ("cosine", "das")}
    heads["default"] = Classifier(labels, backbone=embedder).fit().head_
    clean: list[Pair] = [(clip, None) for clip in clips]
    noisy: list[Pair] = [(c, n) for c in clips for n in noises() if not n.contains(c.labels)]
    for snr_db in SNRS_DB:
        pairs = clean if snr_db is None else noisy
        rows = embedded(embedder, pairs, snr_db)
        truth = [labels.index(clip.labels[0]) for clip, _ in pairs]
        owners = [clip.id for clip, _ in pairs]
        scores = {rule: heads[rule].scores(rows) for rule in RULES}
        line: Line = {
            "backbone": embedder.backbone.name,
            "fingerprint": embedder.backbone.fingerprint,
            "snr_db": snr_db,
            "clips": len(clips),
            "mixes": len(pairs),
            **{rule: 100 * float(hits(truth, s).mean()) for rule, s in scores.items()},
        }
        for rule in ("das", "default"):
            rng = generator("robustness", embedder.backbone.name, snr_db)
            gain = accuracy_difference(
                truth, scores[rule], scores["cosine"], groups=owners, rng=rng
            )
            line |= {
                f"{rule}_gain": 100 * gain.difference,
                f"{rule}_low": 100 * gain.low,
                f"{rule}_high": 100 * gain.high,
            }
        yield line


def markdown(line: Line) -> str:
    """Return a line of the table."""
    snr = "clean" if line["snr_db"] is None else f"{line['snr_db']:.0f} dB"
    gains = [
        f"{line[f'{rule}_gain']:+.1f} ({line[f'{rule}_low']:+.1f} to {line[f'{rule}_high']:+.1f})"
        for rule in ("das", "default")
    ]
    shares = [f"{line[rule]:.1f}" for rule in RULES]
    cells = [str(line["backbone"]), snr, f"{line['mixes']:,}", *shares, *gains]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("backbones", nargs="*", default=["mini", "mn04"])
    parser.add_argument("--out", type=Path, help="also write the lines as JSON")
    options = parser.parse_args()
    print("| backbone | SNR | mixes | cosine | DAS .25 | default | DAS gains | default gains |")
    print("|" + " --- |" * 8)
    lines = []
    for name in options.backbones:
        with Embedder(name) as embedder:
            for line in measure(embedder):
                lines.append(line)
                print(markdown(line), flush=True)
    if options.out:
        options.out.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
