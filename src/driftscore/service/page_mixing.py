"""A part of a recording, in noise at a chosen SNR, and where each rule stops to recognise it.

The SNR is that of `noise.add_at_snr`: the power of the part over the power of the noise. A sweep
embeds the part at falling SNRs and scores each by every rule. A rule *recognises* the right label
*down to* x dB if it ranks it first at x and at every higher SNR that was tried.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from driftscore.audio.noise import SYNTHETIC, add_at_snr, synthetic
from driftscore.audio.recordings import Audio, Samples
from driftscore.backbones.vectors import Matrix, Scores
from driftscore.errors import UsageError, unknown
from driftscore.scoring.head import Head

MIN_SNR_DB, MAX_SNR_DB = -20.0, 20.0
SNRS_DB = tuple(float(snr) for snr in range(20, -21, -1))
"""The SNRs of a sweep, falling."""
_SEED = 13
_STEP_S = 0.5  # between the starts of parts that are compared

Embed = Callable[[Sequence[Audio]], Matrix]
"""Recordings -> one embedding per row."""


def part(audio: Audio, start_s: float, seconds: float) -> Audio:
    """Return the part of a recording that begins at `start_s`, moved back at its end."""
    length = round(seconds * audio.rate)
    latest = max(0, len(audio.samples) - length)
    start = min(max(0, round(start_s * audio.rate)), latest)
    return Audio(audio.samples[start : start + length], audio.rate)


def loudest_start_s(audio: Audio, seconds: float) -> float:
    """Return where the part with the most energy begins, in steps of half a second."""
    step, length = round(_STEP_S * audio.rate), round(seconds * audio.rate)
    if len(audio.samples) <= length:
        return 0.0
    energy = np.concatenate([[0.0], np.cumsum(np.square(audio.samples, dtype=np.float64))])
    starts = np.arange(0, len(audio.samples) - length + 1, step)
    return float(starts[(energy[starts + length] - energy[starts]).argmax()] / audio.rate)


@lru_cache(maxsize=2 * len(SYNTHETIC))
def shipped_noise(name: str, length: int, rate: int) -> Samples:
    """Return a synthetic noise; the same name and length always give the same samples."""
    if name not in SYNTHETIC:
        raise unknown("noise", name, SYNTHETIC)
    samples = synthetic(name, length, rate, np.random.default_rng(_SEED))
    samples.setflags(write=False)
    return samples


def in_noise(audio: Audio, noise: Samples, snr_db: float | None) -> Audio:
    """Return a recording with noise at this SNR; None leaves it. A short noise is repeated."""
    if snr_db is None:
        return audio
    if not MIN_SNR_DB <= snr_db <= MAX_SNR_DB:
        raise UsageError(
            f"The SNR must lie between {MIN_SNR_DB:g} and {MAX_SNR_DB:g} dB, got {snr_db:g}"
        )
    repeated = np.resize(noise, len(audio.samples))
    return Audio(add_at_snr(audio.samples, repeated, snr_db), audio.rate)


class Sweep(NamedTuple):
    """Scores of a part of a recording by rule: without noise (first row) and at falling SNRs."""

    scores: Mapping[str, Scores]
    right: str
    """The label that counts as right."""
    down_to_db: Mapping[str, float | None]
    """By rule, the lowest SNR down to which the right label comes first; None if at none."""


def sweep(
    audio: Audio, noise: Samples, heads: Mapping[str, Head], embed: Embed, *, right: str = ""
) -> Sweep:
    """Score a part of a recording at falling SNRs.

    Without `right` that is the label which the last of the rules gives without noise.
    """
    rows = embed([in_noise(audio, noise, snr) for snr in (None, *SNRS_DB)])
    scores = {rule: head.scores(rows) for rule, head in heads.items()}
    labels = next(iter(heads.values())).labels
    right = right or labels[int(list(scores.values())[-1][0].argmax())]
    wins = {rule: table[1:].argmax(axis=1) == labels.index(right) for rule, table in scores.items()}
    return Sweep(scores, right, {rule: down_to(SNRS_DB, won) for rule, won in wins.items()})


def down_to(snrs_db: Sequence[float], right: Iterable[bool]) -> float | None:
    """Return the last of the falling SNRs before the first wrong one; None if there is none."""
    passed = [snr for snr, _ in takewhile(lambda pair: pair[1], zip(snrs_db, right, strict=True))]
    return passed[-1] if passed else None
