"""Polyphonic sound detection score (PSDS) of Bilen et al. 2020, as psds_eval 0.5 computes it.

An *operating point* is everything that was found with one threshold. In it, for events of a label:

    a found event is relevant    if true events of its label cover at least `dtc` of it
    a true event is detected     if relevant found events cover at least `gtc` of it
    an irrelevant found event    is a false positive, and a cross-trigger of every other label whose
                                 true events cover at least `cttc` of it

The effective false positive rate of a label is its false positives per hour plus `alpha_ct` times
the mean over other labels of its cross-triggers per hour of their events. The curve of a label is
its share of detected events against this rate: at every rate the best operating point so far. The
score is the area, up to `most_per_hour` and divided by it, under the mean of the curves minus
`alpha_st` times their standard deviation.

The defaults are those of scenario 2 of DCASE 2021 to 2023: which label is right matters more than
when exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import UndefinedMetricError, UsageError
from driftscore.events.tracking import Event
from driftscore.lab.detection import HOUR_S

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PsdsSettings:
    """The criteria and weights; shares in [0, 1], `most_per_hour` in false positives per hour."""

    dtc: float = 0.1
    gtc: float = 0.1
    cttc: float = 0.3
    alpha_ct: float = 0.5
    alpha_st: float = 1.0
    most_per_hour: float = 100.0

    def __post_init__(self) -> None:
        shares = (self.dtc, self.gtc, self.cttc, self.alpha_ct)
        if not (all(0 <= share <= 1 for share in shares) and self.alpha_st >= 0):
            raise UsageError(f"Criteria are shares from 0 to 1 and alpha_st is at least 0: {self}")
        if not self.most_per_hour > 0:
            raise UsageError(f"most_per_hour must be positive, got {self.most_per_hour!r}")


def psds(
    truth: Sequence[Event],
    operating_points: Sequence[Sequence[Event]],
    settings: PsdsSettings = PsdsSettings(),
    *,
    seconds: float,
) -> float:
    """Return the score of what was found at several operating points, from 0 to 1.

    Labels without a true event are left out: they have no share of detected events.
    """
    labels = sorted({event.label for event in truth})
    if not labels:
        raise UndefinedMetricError("PSDS is not defined: there is no true event")
    for events in (truth, *operating_points):
        last: dict[str, float] = {}
        for event in sorted(events, key=lambda e: (e.label, e.start_s)):
            if not event.end_s > event.start_s >= last.get(event.label, -np.inf):
                raise UsageError(
                    f"Events of one label must not overlap or be empty: {event.label!r} from "
                    f"{event.start_s:g} to {event.end_s:g} s"
                )
            last[event.label] = event.end_s
    rates = [_rates(truth, point, labels, settings, seconds) for point in operating_points]
    nothing = np.zeros(len(labels))
    detected = np.stack([nothing, *(rate[0] for rate in rates)])  # points x labels
    false = np.stack([nothing, *(rate[1] for rate in rates)])
    at = np.unique(false)
    curves = np.empty((len(labels), len(at)))  # the highest share at a rate of at most each of `at`
    for curve, rates_of, shares in zip(curves, false.T, detected.T, strict=True):
        order = np.argsort(rates_of, kind="stable")
        best = np.maximum.accumulate(shares[order])
        curve[:] = best[np.searchsorted(rates_of[order], at, side="right") - 1]
    height = np.maximum(curves.mean(axis=0) - settings.alpha_st * curves.std(axis=0), 0.0)
    inside = at < settings.most_per_hour
    widths = np.diff(np.r_[at[inside], settings.most_per_hour])
    return float((widths * height[inside]).sum() / settings.most_per_hour)


def by_threshold(events: Sequence[Event], *, points: int = 50) -> list[tuple[Event, ...]]:
    """Return operating points: what remains at so many thresholds between the scores."""
    scores = np.unique([event.score for event in events])
    if len(scores) > points:
        scores = scores[np.linspace(0, len(scores) - 1, points).round().astype(int)]
    return [tuple(e for e in events if e.score >= threshold) for threshold in scores]


def _rates(
    truth: Sequence[Event],
    point: Sequence[Event],
    labels: Sequence[str],
    settings: PsdsSettings,
    seconds: float,
) -> tuple[Floats, Floats]:
    """Return each label's share of detected events, and its effective false positives per hour."""
    events = [event for event in point if event.label in labels]
    start, end = (np.array([getattr(e, n) for e in truth]) for n in ("start_s", "end_s"))
    begins, ends = (np.array([getattr(e, n) for e in events]) for n in ("start_s", "end_s"))
    shared = np.minimum(end[:, None], ends) - np.maximum(start[:, None], begins)
    shared = np.maximum(shared, 0.0)  # seconds that each true event has in common with each found
    lengths, of_truth = ends - begins, end - start
    true_label = np.array([labels.index(e.label) for e in truth])
    label = np.array([labels.index(e.label) for e in events], np.int64)
    covered = np.stack([shared[true_label == n].sum(axis=0) for n in range(len(labels))])
    covered = covered / np.maximum(lengths, 1e-300)  # labels x found: share under true events
    own = covered[label, np.arange(len(events))]
    relevant = (own > 0) & (own >= settings.dtc)
    same = true_label[:, None] == label
    reached = (shared * (same & relevant)).sum(axis=1) / of_truth
    hit = (reached > 0) & (reached >= settings.gtc)
    detected = np.array([hit[true_label == n].mean() for n in range(len(labels))])
    wrong = ~relevant
    false = np.bincount(label[wrong], minlength=len(labels)) * HOUR_S / seconds
    triggers = np.zeros((len(labels), len(labels)))  # of the found label, by the true one
    for other in range(len(labels)):
        crossed = wrong & (label != other) & (covered[other] > 0)
        crossed &= covered[other] >= settings.cttc
        duration = of_truth[true_label == other].sum()
        triggers[:, other] = np.bincount(label[crossed], minlength=len(labels)) * HOUR_S / duration
    others = max(1, len(labels) - 1)
    return detected, false + settings.alpha_ct * triggers.sum(axis=1) / others
