"""False alarms per hour -> the score that a label must reach, without labelled audio.

What a label scores on other sounds is known from the calibration. Its spread

    u = min(90 % quantile - median, 1.5 (median - 10 % quantile)) / 1.2816

is the standard deviation of a normal distribution with such a tail. The label's own sounds are
among those of the calibration: of a common one, as a bird, they are the upper tenth, and the upper
half alone would make u twice as large, and the label deaf. So the lower half limits it. A threshold
is a multiple of u above the background. How often other sounds reach a multiple was measured once
(`RATES`, `python -m training.false_alarms`), for 53 words in six hours of soundscapes with two
sounds per minute.

Words differ in how far sounds can rise above the others: the highest 0.3 % of the sounds of the
calibration are at 4 u for "street music" and at 10 u for "cow". A word whose `reach` is below the
typical one gets a lower threshold, by `REACH_WEIGHT` of the difference, so that a word that nothing
scores high for is not given up; the reach also says how well a word can be expected to work
(`promise`). A word
that often comes near its threshold in a recording gets a higher one from then on (`restlessness`).

In a quiet recording of the place each label has its own rate (`quiet_multiples`); in a recording
that may hold the labels themselves only the many low peaks are counted (`own_multiples`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones.vectors import Scores
from driftscore.errors import UsageError

DEFAULT_FALSE_ALARMS = 1.0
"""False alarms per hour and label, in a place with two other sounds per minute."""
RATES = (
    (2.0, 5.41), (2.5, 3.0), (3.0, 1.67), (3.5, 0.855), (4.0, 0.447), (4.5, 0.224), (5.0, 0.118),
    (5.5, 0.0526),
)  # fmt: skip
"""Multiples of the spread, and how often per hour other sounds reach them for one label."""
MAX_SKEW = 1.5
"""How much wider the upper half of other sounds may be than the lower one; chosen on the families
"choose" of `training.corpora.event_families`, where 1.2 to 1.8 are alike."""
MIN_LEARNT, TYPICAL_TAIL, MAX_TAIL_SHIFT = 3, 4.0, 1.0
"""A label with so many examples is not like a label in words, for which the rates were measured.
One in a hundred sounds of the calibration reaches `TYPICAL_TAIL` for the median of the labels in
words of the measurement: the multiple of a learnt label moves by the difference, up to a limit."""
TOP_SHARE, TYPICAL_REACH, REACH_WEIGHT, MAX_REACH_SHIFT = 1 / 320, 6.3, 0.2, 1.0
"""The share of sounds that a reach is the mean of, the reach of the median word, and how far a
threshold moves with it; chosen on the families "choose" of `training.corpora.event_families`."""
LOW_RATE = 7.58
"""How often per hour other sounds reach the lowest multiple of `RATES` for one label, if its
threshold does not move."""
RESTLESS_H, FORGET_H, MAX_RESTLESS = 0.5, 3.0, 2.5
"""A label whose low peaks were more frequent than measured gets a higher threshold, by as much as
the measurement says, up to a limit: how many hours the measurement counts, after how many hours a
peak counts a third, and the limit."""
GOOD = "good"
PROMISES = ((6.5, GOOD), (5.0, "fair"), (-np.inf, "poor"))
"""What is expected of words that reach so far; docs/detection.md has the share of the events of
each kind of word that was found."""
LOWEST = RATES[0][0]
"""The multiple at which peaks are counted to compare a place with the measurement."""
FITS = 2.326
"""A clip fits a label from this multiple on: one in a hundred other sounds does."""
_NORMAL_90 = 1.2815515655446004  # 90 % quantile of the standard normal distribution
_MAX_BELOW = 1.5  # a quiet recording lowers a multiple by no more: it lacks other sounds
_POINTS = np.array([(multiple, np.log(rate)) for multiple, rate in RATES])
# Far points at both ends continue the slope of the nearest part of the measurement.
_MULTIPLES, _LOG_RATES = np.vstack([
    _POINTS[0] + 1e3 * (_POINTS[0] - _POINTS[2]),
    _POINTS,
    _POINTS[-1] + 1e3 * (_POINTS[-1] - _POINTS[-3]),
]).T  # fmt: skip

_SLOPE = -float(np.polyfit(_POINTS[:, 0], _POINTS[:, 1], 1)[0])  # of log rates, per multiple


def spread_of(scores: Scores, max_skew: float = MAX_SKEW) -> Scores:
    """Return the spread of each column of n x C scores."""
    low, median, high = np.quantile(scores, (0.1, 0.5, 0.9), axis=0)
    size: Scores = np.minimum(high - median, max_skew * (median - low)) / _NORMAL_90
    return np.maximum(size, 1e-9)


def tail_shift(scores: Scores) -> Scores:
    """Return what is added to the multiple of learnt labels, by n x C scores of other sounds."""
    tails = (np.quantile(scores, 0.99, axis=0) - np.median(scores, axis=0)) / spread_of(scores)
    shift: Scores = np.clip(tails - TYPICAL_TAIL, -MAX_TAIL_SHIFT, MAX_TAIL_SHIFT)
    return shift


def reach(scores: Scores) -> Scores:
    """Return how far the highest of n x C scores are above the median, in spreads."""
    count = max(1, round(TOP_SHARE * len(scores)))
    highest = np.partition(scores, -count, axis=0)[-count:].mean(axis=0)
    reached: Scores = (highest - np.median(scores, axis=0)) / spread_of(scores)
    return reached


def reach_shift(reached: Scores) -> Scores:
    """Return what is added to the multiple of labels in words, given their reach: 0 or less.

    A far reach raises nothing: the sounds that reach far may be the label's own.
    """
    shift: Scores = REACH_WEIGHT * (reached - TYPICAL_REACH)
    return np.clip(shift, -MAX_REACH_SHIFT, 0.0)


def promise(reached: float) -> str:
    """Return how well a word with this reach can be expected to work: good, fair or poor."""
    return next(word for least, word in PROMISES if reached >= least)


def restlessness(peaks: Scores, hours: float) -> Scores:
    """Return what is added to the multiples of labels with so many low peaks in the last hours."""
    past_h = FORGET_H * (1 - np.exp(-hours / FORGET_H))
    rates: Scores = (peaks + RESTLESS_H * LOW_RATE) / (past_h + RESTLESS_H)
    raised: Scores = np.clip(np.log(rates / LOW_RATE) / _SLOPE, 0.0, MAX_RESTLESS)
    return raised


def fitting_labels(
    scores: Scores, prior: Scores, spreads: Scores, opposed: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which labels fit a clip at all, from its scores of the labels and negative words.

    A label fits if it scores as only one in a hundred other sounds does, and higher than every
    negative word that competes with it: `opposed`, (labels, negatives).
    """
    multiples, count = (scores - prior) / spreads, len(opposed)
    others = np.where(opposed, multiples[count:], -np.inf)
    best = others.max(axis=1, initial=-np.inf)
    fits: NDArray[np.bool_] = (multiples[:count] >= FITS) & (multiples[:count] >= best)
    return fits


def multiple_for(false_alarms: float) -> float:
    """Return the multiple of the spread that other sounds reach this often per hour."""
    if not (np.isfinite(false_alarms) and false_alarms > 0):
        raise UsageError(
            f"False alarms per hour must be a positive number, got {false_alarms:g}; "
            "use 0.1 for few, 2 for many"
        )
    return float(np.interp(-np.log(false_alarms), -_LOG_RATES, _MULTIPLES))


def rate_of(multiple: float) -> float:
    """Return how often per hour other sounds reach a multiple of the spread."""
    return float(np.exp(np.interp(multiple, _MULTIPLES, _LOG_RATES)))


def quiet_multiples(
    peaks: Sequence[Sequence[float]], hours: float, false_alarms: Sequence[float]
) -> Scores:
    """Return the multiple for each label, given its peaks in a recording without the labels.

    With enough hours it is the peak that is reached as often as allowed; with fewer, the highest
    peak is extended by the slope of the measurement.
    """
    multiples = []
    for own, budget in zip(peaks, false_alarms, strict=True):
        allowed = budget * hours
        ranked = sorted(own, reverse=True)
        highest = max([LOWEST, *own])
        if allowed >= 1:
            reached = ranked[int(allowed) - 1] if len(ranked) >= int(allowed) else LOWEST
        else:
            reached = multiple_for(rate_of(highest) * allowed)
        multiples.append(max(reached, multiple_for(budget) - _MAX_BELOW))
    return np.array(multiples)


def own_multiples(
    peaks: Sequence[Sequence[float]], hours: float, false_alarms: Sequence[float]
) -> Scores:
    """Return the multiple for each label, given its peaks in the recording itself.

    A label whose low peaks are more frequent than in the measurement gets a higher multiple.
    """
    low = np.array([max(0.5, sum(peak >= LOWEST for peak in own)) for own in peaks])
    shifts = np.log(low / hours / LOW_RATE) / _SLOPE if hours > 0 else np.zeros(len(peaks))
    usual = np.array([multiple_for(budget) for budget in false_alarms])
    multiples: Scores = usual + np.clip(shifts, -_MAX_BELOW, 2 * _MAX_BELOW)
    return multiples
