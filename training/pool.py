"""Make mixtures with the teacher's answers ahead of training: `python -m training.pool`.

A shard holds 512 mixtures of one length: the student's log-mel (512, 64, frames), the teacher's
logits (512, 527) and embeddings (512, 384), all float16, in `training/work/pool/`. A shard's
number is its seed, so that any set of processes makes the same pool in any order. Shards that
exist are not made again.
"""

import argparse
import os
import time

import numpy as np
import numpy.typing as npt

from driftscore.backbones import mini_frontend
from driftscore.files import replacing
from training.collect import RATE, WORK, read_audio, read_segments
from training.mixtures import Recipe, Samples, mix
from training.teacher import tagger

POOL = WORK / "pool"
SHARD = 512
LENGTHS = (2.5, 5.0, 2.5, 5.0, 2.5, 5.0, 5.0, 10.0)
"""Seconds of a shard's mixtures, by its number modulo eight."""


def recipe_of(number: int) -> Recipe:
    """Return how shard `number` is mixed.

    The later ones are more varied: by then the student knew the mixtures of recordings that it
    had heard (cosine .78) much better than new recordings (.72).
    """
    if number < 105:
        return Recipe()
    return Recipe(faster_or_slower=0.65, speed_range=0.5, equalised=0.5, alone=0.4)


class Bank:
    """The segments to draw from, with how often to draw each."""

    def __init__(self) -> None:
        self._audio = read_audio()
        weights: npt.NDArray[np.float64] = np.load(WORK / "teacher.npz")["weights"]
        self._segments = read_segments()[: len(weights)]
        self._cumulated = np.cumsum(weights)

    def draw(self, rng: np.random.Generator) -> Samples:
        """Return one segment as float samples."""
        place = np.searchsorted(self._cumulated, rng.random() * self._cumulated[-1])
        segment = self._segments[min(int(place), len(self._segments) - 1)]
        piece = self._audio[segment.start : segment.start + segment.length]
        return piece.astype(np.float32) / 32_767


def make_shard(number: int, bank: Bank) -> None:
    """Write shard `number`."""
    target = POOL / f"{number:05d}.npz"
    if target.exists():
        return
    rng = np.random.default_rng([20_261_115, number])
    length = int(LENGTHS[number % len(LENGTHS)] * RATE)
    mels, logits, embeddings = [], [], []
    for _ in range(SHARD):
        samples = mix(bank.draw, length, recipe_of(number), rng)
        tags, embedding = tagger().logits_and_embedding(samples)
        mels.append(mini_frontend.log_mel(samples).astype(np.float16))
        logits.append(tags.astype(np.float16))
        embeddings.append(embedding.astype(np.float16))
    with replacing(target) as partial:
        np.savez(partial, mel=mels, logits=logits, embedding=embeddings)


def main() -> None:
    """Make shards `--first`, `--first + --step`, ... until `--until` or the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--until", type=int, default=160)
    parser.add_argument("--minutes", type=float, default=1e9)
    settings = parser.parse_args()
    POOL.mkdir(parents=True, exist_ok=True)
    bank, began = Bank(), time.monotonic()
    for number in range(settings.first, settings.until, settings.step):
        if time.monotonic() - began > settings.minutes * 60:
            break
        make_shard(number, bank)
    print(f"process {os.getpid()}: shards below {settings.until} done", flush=True)


if __name__ == "__main__":
    main()
