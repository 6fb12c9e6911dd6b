"""A part of a recording in noise at a chosen SNR, and where each rule stops to recognise it.

The SNR is that of `noise.add_at_snr`: the power of the part over the power of the noise. A sweep
embeds the part at falling SNRs and scores each by every rule. A rule *recognises* the right label
*down to* x dB if it ranks it first at x and at every higher SNR that was tried.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from driftscore.audio import Audio, Samples
from driftscore.errors import unknown
from driftscore.head import Head
from driftscore.noise import SYNTHETIC, add_at_snr, synthetic
from driftscore.vectors import Matrix, Scores

LOWEST_DB, HIGHEST_DB = -20.0, 20.0
SNRS_DB = tuple(float(snr) for snr in range(20, -21, -2))
"""The SNRs of a sweep, falling."""
_SEED = 13

Embed = Callable[[Sequence[Audio]], Matrix]
"""Recordings -> one embedding per row."""


@lru_cache(maxsize=2 * len(SYNTHETIC))
def shipped_noise(name: str, length: int, rate: int) -> Samples:
    """Return a synthetic noise; the same name and length always give the same samples."""
    if name not in SYNTHETIC:
        raise unknown("noise", name, SYNTHETIC)
    samples = synthetic(name, length, rate, np.random.default_rng(_SEED))
    samples.setflags(write=False)
    return samples


def fitted(noise: Samples, length: int) -> Samples:
    """Return the beginning of a noise; one that is too short is repeated."""
    repeated: Samples = np.resize(noise, length)
    return repeated


def in_noise(audio: Audio, noise: Samples, snr_db: float | None) -> Audio:
    """Return a recording with noise at this SNR; None leaves it as it is."""
    if snr_db is None:
        return audio
    return Audio(add_at_snr(audio.samples, fitted(noise, len(audio.samples)), snr_db), audio.rate)


@dataclass(frozen=True, eq=False)
class Sweep:
    """Scores of a part of a recording without noise (first row) and at falling SNRs."""

    snrs_db: tuple[float | None, ...]
    rows: Matrix
    """One embedding per SNR; the first one is without noise."""
    scores: Mapping[str, Scores]
    """By rule: SNRs x labels."""
    right: str
    """The label that counts as right."""
    down_to_db: Mapping[str, float | None]
    """By rule: the lowest SNR down to which the right label comes first; None if not even at the
    highest one."""


def sweep(
    audio: Audio, noise: Samples, heads: Mapping[str, Head], embed: Embed, *, right: str = ""
) -> Sweep:
    """Score a part of a recording at falling SNRs.

    Without `right` that is the label which the last of the rules gives without noise. The border of
    each rule is then found to 1 dB.
    """
    snrs: list[float | None] = [None, *SNRS_DB]
    rows = embed([in_noise(audio, noise, snr) for snr in snrs])
    scores = {rule: head.scores(rows) for rule, head in heads.items()}
    labels = next(iter(heads.values())).labels
    if not right:
        right = labels[int(list(scores.values())[-1][0].argmax())]
    place = labels.index(right)
    first = {rule: table[1:].argmax(axis=1) == place for rule, table in scores.items()}
    borders = {rule: down_to(SNRS_DB, flags.tolist()) for rule, flags in first.items()}
    between = sorted({b - 1 for b in borders.values() if b is not None and b > LOWEST_DB})
    if between:
        finer = embed([in_noise(audio, noise, snr) for snr in between])
        for rule, head in heads.items():
            won = dict(zip(between, head.scores(finer).argmax(axis=1) == place, strict=True))
            border = borders[rule]
            if border is not None and won.get(border - 1, False):
                borders[rule] = border - 1
    return Sweep(tuple(snrs), rows, scores, right, borders)


def down_to(snrs_db: Sequence[float], right: Sequence[bool]) -> float | None:
    """Return the last of the falling SNRs before the first wrong one; None if there is none."""
    lowest = None
    for snr, is_right in zip(snrs_db, right, strict=True):
        if not is_right:
            break
        lowest = snr
    return lowest
