"""Rows pooled over seeds and draws: a value, its gain over cosine, and the interval of that gain.

A pooled result is one scoring in one condition whatever its seed. Accuracy is over all mixes; mAP
ranks all mixes together. Intervals are paired bootstraps that resample event clips, with all mixes
of a clip together. Values are percentages and gains percentage points, as in the paper.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from driftscore.errors import FormatError, StoreError
from driftscore.lab import metrics
from driftscore.lab.conditions import COSINE, PooledCondition, Row, Scoring, generator, read_key
from driftscore.lab.metrics import Interval
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.truth import METRIC as EVENT_METRIC
from driftscore.lab.runs.truth import Truth, find_scores, fits
from driftscore.system.lazy import lazy_property

Floats = NDArray[np.float64]
Scene = tuple[str, str]
"""A dataset and a model."""

PAPER_BETA = 0.25
Pair = tuple[PooledCondition, Scoring, Scoring]
"""Two scorings to compare in a condition."""

RankedClips = tuple[list[str], NDArray[np.bool_], Floats, Floats]
"""The ids of clips, their truth and two rules' scores (clips x classes)."""


@dataclass(frozen=True)
class PooledResult:
    """A scoring in a condition, pooled over seeds; percentages and points, NaN if undefined."""

    condition: PooledCondition
    scoring: Scoring
    metric: str
    value: float
    gain: Interval
    mixes: int
    clips: int
    failed: int

    @property
    def scene(self) -> Scene:
        """The dataset and the model."""
        return self.condition.dataset, self.condition.backbone

    @property
    def noisy(self) -> bool:
        """Whether noise is mixed in."""
        return self.condition.snr_db is not None


@dataclass(frozen=True)
class Alignment:
    """Mean cosine of text and audio drift over classes, and the share that is positive."""

    mean: float
    positive: float
    classes: int


class _Drifts(msgspec.Struct):
    """What is stored about the drifts of a bank; a class without a value has None."""

    cosines: list[float | None] = []
    agreement: list[float | None] = []
    common: float | None = None


class Results:
    """The rows of a store, of the newest version of each dataset, noise and model."""

    def __init__(self, store: Store, *, only: Collection[str] | None = None) -> None:
        self.store = store
        self._truths: dict[str, Truth] = {}
        for (name,), content in store.all_json("sets").items():
            try:
                self._truths[name] = Truth.from_content(content)
            except FormatError as error:
                store.damage[f"sets {name}"] = str(error)
        rows = newest_rows(
            row
            for row in store.rows()
            if row.metric != EVENT_METRIC and (only is None or row.cell.key in only)
        )
        self.errors = [row for row in rows if row.error]
        self.rows: list[Row] = []
        self._groups: dict[tuple[PooledCondition, Scoring], list[Row]] = defaultdict(list)
        for row in [row for row in rows if not row.error]:
            truth = self._truths.get(row.cell.condition.set_name)
            if truth is not None and fits(store, row, truth):
                self.rows.append(row)
                scoring = replace(row.cell.scoring, draw=0)
                self._groups[row.cell.condition.pooled, scoring].append(row)
            else:
                problem = "its outcomes or scores are not those of its clips"
                store.damage[f"row {row.cell.key}"] = problem

    @lazy_property
    def all(self) -> list[PooledResult]:
        """Every pooled result, ordered by condition and scoring."""

        def order(pair: tuple[PooledCondition, Scoring]) -> tuple[object, ...]:
            c, scoring = pair
            snr_db = float("inf") if c.snr_db is None else c.snr_db
            names = (c.backbone, c.dataset, c.noise or "", c.mixing or "")
            return (*names, -snr_db, c.limit, scoring.key)

        pooled = []
        for condition, scoring in sorted(self._groups, key=order):
            rows = self._groups[condition, scoring]
            mixes = sum(row.n for row in rows)
            sizes = (mixes, max(row.n for row in rows), sum(row.failed for row in rows))
            if len(rows) == 1:
                value, gain = float(rows[0].value or 0), in_points(rows[0].gain)
            elif not self.truth(rows[0]).multi_label:
                value = float(sum((row.value or 0) * row.n for row in rows) / mixes)
                gain = self.compare([(condition, scoring, COSINE)]) or in_points(None)
            else:  # all mixes ranked together
                _, present, scores, _ = _joined(self._ranked(row, row) for row in rows)
                value, shares = metrics.mean_average_precision(present, scores).value, None
                if pairs := list(self._paired(condition, scoring, COSINE)):
                    owners, truth, ours, theirs = _joined(self._ranked(*pair) for pair in pairs)
                    rng = generator("pooled", pairs[0][0].cell.key)
                    shares = metrics.precision_interval(truth, ours, theirs, groups=owners, rng=rng)
                gain = in_points(shares)
            metric = rows[0].metric
            pooled.append(PooledResult(condition, scoring, metric, 100 * value, gain, *sizes))
        return pooled

    def das(self, **changes: object) -> Scoring | None:
        """Return the scoring that is the paper's DAS (or differs by `changes`), if measured."""
        settings = {"beta": PAPER_BETA, "direction": "mean", "reference": "prompt", **changes}
        measured = {r.cell.scoring for r in self.rows if r.cell.scoring.rule == "das"}
        fits = [s for s in measured if all(getattr(s, k) == v for k, v in settings.items())]
        return min(fits, key=lambda s: (s.pack != "das52", s.pack or "", s.key), default=None)

    @property
    def betas(self) -> list[float]:
        """The betas of DAS that were measured with the paper's other settings."""
        measured = {r.cell.scoring.beta for r in self.rows if r.cell.scoring.rule == "das"}
        return sorted(beta for beta in measured if beta is not None and self.das(beta=beta))

    def in_noise(self, scene: Scene, scoring: Scoring | None) -> list[PooledResult]:
        """Return the results of a scoring with noise, on a dataset and model."""
        return [r for r in self.all if r.scene == scene and r.noisy and r.scoring == scoring]

    @property
    def scenes(self) -> list[Scene]:
        """Each dataset and model that has rows."""
        return list(dict.fromkeys(r.scene for r in self.all))

    def compare(self, pairs: Iterable[Pair]) -> Interval | None:
        """Return the first scorings minus the second, pooled over single-label rows, in points.

        None if no condition has both.
        """
        gains: list[Floats] = []
        owners: list[str] = []
        key: list[str] = []
        for pair in pairs:
            for one, other, used, gained in self._gained(*pair):
                ids = self.truth(one).ids
                gains.append(gained)
                owners += [f"{one.cell.condition.dataset}/{ids[clip]}" for clip in used]
                key += [one.cell.key, other.cell.key] if len(used) else []
        return _grouped_interval(np.concatenate(gains), owners, str(key)) if owners else None

    def compare_precision(self, pairs: Iterable[Pair]) -> Interval | None:
        """Return the mean difference of mAP over multi-label conditions, in points.

        Conditions are put side by side as further classes of the same mixes, so that one
        resampling of clips serves all of them. None if no mix is common to all conditions, or
        there are too few positives.
        """
        blocks: list[dict[tuple[int | None, str], Floats]] = []
        for pair in pairs:  # truth and both scores of each mix: 3 x classes
            block = {}
            for one, other in self._paired(*pair):
                if self.truth(one).multi_label:
                    for clip, *columns in zip(*self._ranked(one, other), strict=True):
                        block[one.cell.condition.seed, clip] = np.stack(columns)
            blocks.append(block)
        if not blocks or not (common := [k for k in blocks[0] if all(k in b for b in blocks)]):
            return None
        wide = np.concatenate([np.stack([b[key] for key in common]) for b in blocks], axis=2)
        rng = generator("pooled", str(common[:3]), wide.shape[2])
        owners = [clip for _, clip in common]
        present, ours, theirs = wide[:, 0].astype(np.bool_), wide[:, 1], wide[:, 2]
        return in_points(metrics.precision_interval(present, ours, theirs, groups=owners, rng=rng))

    def difference(self, pairs: Sequence[Pair]) -> Interval | None:
        """Return the pooled difference in accuracy, or in mAP where there is no accuracy."""
        return self.compare(pairs) or self.compare_precision(pairs)

    def band(self, condition: PooledCondition, scoring: Scoring) -> tuple[float, float] | None:
        """Return the 95 % interval of an accuracy itself, in percent; None for mAP."""
        hits: list[Floats] = []
        owners: list[str] = []
        for row in self._groups.get((condition, scoring), []):
            truth = self.truth(row)
            if row.outcomes is not None:
                used = row.outcomes >= 0
                hits.append((row.outcomes == truth.single)[used] * 1.0)
                owners += [truth.ids[i] for i in np.flatnonzero(used)]
        if not owners:
            return None
        key = str((tuple(condition), scoring.key))
        interval = _grouped_interval(np.concatenate(hits), owners, key)
        return interval.low, interval.high

    @lazy_property
    def class_gains(self) -> dict[Scene, dict[str, float]]:
        """The gain of each class by DAS over cosine in noise, by dataset and model, in points."""
        das, by_scene = self.das(), dict[Scene, dict[str, float]]()
        for scene in self.scenes if das else []:
            gains: dict[str, list[float]] = defaultdict(list)
            for result in self.in_noise(scene, das):
                for one, _, used, gained in self._gained(result.condition, result.scoring, COSINE):
                    truth = self.truth(one)
                    classes = truth.single[used]
                    for number in np.unique(classes):
                        gain = float(gained[classes == number].mean())
                        gains[truth.labels[number]].append(gain)
            if gains:
                by_scene[scene] = {n: 100 * float(np.mean(values)) for n, values in gains.items()}
        return by_scene

    def alignment(self, das: Scoring | None, **values: object) -> Alignment | None:
        """Return how the text drifts of a bank and the audio drifts agree, over classes.

        `values` are those of the noisy conditions to look at (`dataset`, `snr_db`, ...).
        """
        if das is None:
            return None
        conditions = {
            c.key
            for row in self.rows
            if not (c := row.cell.condition).clean
            and all(getattr(c, name) == value for name, value in values.items())
        }
        names = ("pack", "pack_data", "direction", "reference")
        cosines = np.array([
            cosine
            for condition, bank, drifts in self._drifts
            if condition in conditions and all(getattr(bank, n) == getattr(das, n) for n in names)
            for cosine in drifts.cosines
            if cosine is not None
        ])  # fmt: skip
        if not len(cosines):
            return None
        return Alignment(float(cosines.mean()), float((cosines > 0).mean()), len(cosines))

    @lazy_property
    def _drifts(self) -> list[tuple[str, Scoring, _Drifts]]:
        """Each report on drifts with its condition and its bank."""
        reports = []
        for (condition, scoring), content in self.store.all_json("drifts").items():
            try:
                drifts = msgspec.convert(content, _Drifts)
                reports.append((condition, read_key(Scoring, scoring), drifts))
            except (FormatError, ValueError) as error:
                self.store.damage[f"drifts {scoring}"] = str(error)
        return reports

    def bank_reports(self) -> dict[str, tuple[list[float], float]]:
        """Return for each bank the agreement of mean and SVD per class, and the common share."""
        conditions = {row.cell.condition.key: row.cell.condition for row in self.rows}
        reports: dict[str, tuple[list[float], float]] = {}
        for key, bank, drifts in self._drifts:
            agreement = [cosine for cosine in drifts.agreement if cosine is not None]
            if key in conditions and agreement and drifts.common is not None:
                c = conditions[key]
                title = f"{c.dataset}, {c.backbone}, {bank.pack}, {bank.reference}"
                reports[title] = (agreement, drifts.common)
        return reports

    def truth(self, row: Row) -> Truth:
        """Return the truth of a row's dataset."""
        return self._truths[row.cell.condition.set_name]

    def _paired(
        self, condition: PooledCondition, first: Scoring, second: Scoring
    ) -> Iterator[tuple[Row, Row]]:
        """Yield the rows of two scorings that have the same seed."""
        others = {row.cell.condition: row for row in self._groups.get((condition, second), [])}
        for row in self._groups.get((condition, first), []):
            if (other := others.get(row.cell.condition)) is not None:
                yield row, other

    def _gained(
        self, condition: PooledCondition, first: Scoring, second: Scoring
    ) -> Iterator[tuple[Row, Row, NDArray[np.intp], Floats]]:
        """Yield rows of one class per clip, the clips that both could use, and the gain of each."""
        for one, other in self._paired(condition, first, second):
            if one.outcomes is not None and other.outcomes is not None:
                single = self.truth(one).single
                used = np.flatnonzero((one.outcomes >= 0) & (other.outcomes >= 0))
                gained = (one.outcomes == single) * 1.0 - (other.outcomes == single)
                yield one, other, used, gained[used]

    def _ranked(self, one: Row, other: Row) -> RankedClips:
        """Return the ids, the truth and both scores of the clips that both rows could use."""
        truth = self.truth(one)
        mine, theirs = (find_scores(self.store, row, truth) for row in (one, other))
        if mine is None or theirs is None:  # since they were checked
            raise StoreError("The scores of a multi-label row are missing; run its grid again")
        used, first, second = np.intersect1d(mine[1], theirs[1], return_indices=True)
        ids = [truth.ids[clip] for clip in used]
        return ids, truth.present[used], mine[0][first], theirs[0][second]


def _joined(parts: Iterable[RankedClips]) -> RankedClips:
    ids, *arrays = zip(*parts, strict=True)
    present, first, second = map(np.concatenate, arrays)
    return [clip for part in ids for clip in part], present, first, second


def _grouped_interval(gains: Floats, owners: Sequence[str], key: str) -> Interval:
    """Return the paired interval of gains of -1, 0 and 1 by `metrics`.

    The two score columns represent a wrong and a right answer of each rule.
    """
    right = np.stack([gains < 0, gains >= 0], axis=1).astype(float)
    other = np.stack([gains > 0, gains <= 0], axis=1).astype(float)
    truth = np.ones(len(gains), np.int64)
    rng = generator("pooled", key)
    return in_points(metrics.accuracy_difference(truth, right, other, groups=owners, rng=rng))


def in_points(gain: Interval | None) -> Interval:
    """Return an interval of shares as percentage points; NaN without one."""
    if gain is None:
        return Interval(np.nan, np.nan, np.nan)
    return Interval(100 * gain.difference, 100 * gain.low, 100 * gain.high)


def newest_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of the newest version of each dataset, noise and model.

    For each of their names that is the version (their digests) whose rows were made last.
    """
    versions = []
    for row in rows:
        c = row.cell.condition
        name, digests = (c.dataset, c.backbone, c.limit, c.noise), (c.data, c.model, c.noise_data)
        versions.append((row.made_at, digests, name, row))
    newest = {name: digests for _, digests, name, _ in sorted(versions, key=lambda v: v[:2])}
    return [row for _, digests, name, row in versions if newest[name] == digests]


def mean(values: Iterable[float]) -> float:
    """Return the mean of the values that are not NaN; NaN if there is none."""
    defined = [value for value in values if not math.isnan(value)]
    return sum(defined) / len(defined) if defined else math.nan
