"""Rows pooled over seeds: a value, its gain over cosine, and the interval of that gain.

A pooled result is one scoring in one condition whatever its seed. Accuracy is over all mixes; mAP
ranks all mixes together. Intervals are paired bootstraps that resample event clips, with all mixes
of a clip together. Values are percentages and gains percentage points, as in the paper.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import FormatError, StoreError
from driftscore.lab import metrics
from driftscore.lab.conditions import (
    COSINE,
    Condition,
    PooledCondition,
    Row,
    Scoring,
    read_scoring,
)
from driftscore.lab.metrics import Interval
from driftscore.lab.report.analysis import Alignment, class_gains, summarise
from driftscore.lab.runs.found import METRIC as EVENT_METRIC
from driftscore.lab.runs.records import read_json
from driftscore.lab.runs.scores import find_scores, fits
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.truth import Truth
from driftscore.lab.seeds import generator

Floats = NDArray[np.float64]
Pair = tuple[PooledCondition, Scoring, Scoring]
"""Two scorings to compare in a condition."""


@dataclass(frozen=True)
class PooledResult:
    """A scoring in a condition, pooled over seeds; percentages and points, NaN if undefined."""

    place: PooledCondition
    scoring: Scoring
    metric: str
    value: float
    gain: float
    low: float
    high: float
    mixes: int
    clips: int
    failed: int

    @property
    def dataset(self) -> str:
        """Name of the dataset."""
        return self.place.dataset

    @property
    def noise(self) -> str | None:
        """Name of the noise; None: clean."""
        return self.place.noise

    @property
    def mixing(self) -> str | None:
        """Name of the mixing; None: clean."""
        return self.place.mixing

    @property
    def snr_db(self) -> float | None:
        """SNR in dB; None: clean."""
        return self.place.snr_db

    @property
    def backbone(self) -> str:
        """Name of the model."""
        return self.place.backbone

    @property
    def clear(self) -> bool:
        """Whether the interval of the gain excludes zero."""
        return self.low > 0 or self.high < 0


class Results:
    """The rows of a store, of the newest version of each dataset, noise and model."""

    def __init__(self, store: Store, *, only: Collection[str] | None = None) -> None:
        self.store = store
        self._truths = _truths(store)
        rows = [row for row in store.rows() if only is None or row.cell.key in only]
        kept = newest_rows(row for row in rows if row.metric != EVENT_METRIC)
        self.errors = [row for row in kept if row.error]
        self.rows = [row for row in kept if not row.error and self._fits(row)]
        self._groups: dict[tuple[PooledCondition, Scoring], list[Row]] = defaultdict(list)
        for row in self.rows:
            self._groups[row.cell.condition.pooled, row.cell.scoring].append(row)

    def _fits(self, row: Row) -> bool:
        """Return whether a row can be used; one that cannot is noted as damage."""
        truth = self._truths.get(row.cell.condition.set_name)
        if truth is not None and fits(self.store, row, truth):
            return True
        self.store.damage[f"row {row.cell.key}"] = (
            "the clips of its dataset are not stored" if truth is None
            else "its outcomes or scores are not those of its clips"
        )  # fmt: skip
        return False

    @cached_property
    def all(self) -> list[PooledResult]:
        """Every pooled result, ordered by condition and scoring."""
        order = sorted(self._groups, key=lambda pair: (_order(pair[0]), pair[1].key))
        return [self._pooled(place, scoring) for place, scoring in order]

    def where(self, keep: Callable[[PooledResult], bool]) -> list[PooledResult]:
        """Return the results for which `keep` is true."""
        return [result for result in self.all if keep(result)]

    def compare(self, pairs: Iterable[Pair]) -> Interval | None:
        """Return the first scorings minus the second, pooled over single-label rows, in shares.

        None if no condition has both.
        """
        gains: list[Floats] = []
        owners: list[str] = []
        key: list[str] = []
        for place, first, second in pairs:
            for one, other in self._paired(place, first, second):
                gained, clips = self._gained(one, other)
                gains.append(gained)
                owners += [f"{place.dataset}/{clip}" for clip in clips]
                key += [one.cell.key, other.cell.key] if clips else []
        if not owners:
            return None
        return _grouped_interval(np.concatenate(gains), owners, str(key))

    def compare_precision(self, pairs: Iterable[Pair]) -> Interval | None:
        """Return the mean difference of mAP over multi-label conditions, in shares.

        Conditions are put side by side as further classes of the same mixes, so that one
        resampling of clips serves all of them. None if no mix is common to all conditions, or
        there are too few positives.
        """
        blocks = [self._precision_block(*pair) for pair in pairs]
        if not blocks or not (common := [k for k in blocks[0] if all(k in b for b in blocks)]):
            return None
        wide = np.concatenate([np.stack([b[key] for key in common]) for b in blocks], axis=2)
        rng = generator("pooled", str(common[:3]), wide.shape[2])
        owners = [clip for _, clip in common]
        return metrics.precision_interval(
            wide[:, 0].astype(np.bool_), wide[:, 1], wide[:, 2], groups=owners, rng=rng
        )

    def difference(self, pairs: Sequence[Pair]) -> Interval | None:
        """Return the pooled difference in accuracy, or in mAP where there is no accuracy."""
        return self.compare(pairs) or self.compare_precision(pairs)

    def band(self, place: PooledCondition, scoring: Scoring) -> tuple[float, float] | None:
        """Return the 95 % interval of an accuracy itself, in percent; None for mAP."""
        hits: list[Floats] = []
        owners: list[str] = []
        for row in self._groups.get((place, scoring), []):
            truth = self.truth(row)
            if row.outcomes is not None:
                kept = row.outcomes >= 0
                hits.append((row.outcomes == truth.single)[kept] * 1.0)
                owners += [clip for clip, k in zip(truth.ids, kept, strict=True) if k]
        if not owners:
            return None
        found = _grouped_interval(np.concatenate(hits), owners, str((tuple(place), scoring.key)))
        return 100 * found.low, 100 * found.high

    def class_gains(self, places: Iterable[PooledCondition], first: Scoring) -> dict[str, float]:
        """Return the gain of each class over cosine, pooled over conditions, in points."""
        sums: dict[str, list[float]] = defaultdict(list)
        for place in places:
            for one, other in self._paired(place, first, COSINE):
                truth = self.truth(one)
                if one.outcomes is None or other.outcomes is None:
                    continue
                gains = class_gains(truth.single, one.outcomes, other.outcomes, len(truth.labels))
                for label, gain in zip(truth.labels, gains, strict=True):
                    if not np.isnan(gain):
                        sums[label].append(float(gain))
        return {label: 100 * float(np.mean(found)) for label, found in sums.items()}

    def alignment(self, das: Scoring | None, keep: Callable[[Condition], bool]) -> Alignment | None:
        """Return how the text drifts of a bank and the audio drifts agree, over classes."""
        conditions = {c.key for row in self.rows if keep(c := row.cell.condition)}
        cosines: list[float | None] = []
        for condition, bank, content in self._drifts:
            if condition in conditions and das and _same_bank(bank, das):
                cosines += _numbers(content.get("cosines"))
        return summarise(cosines)

    @cached_property
    def _drifts(self) -> list[tuple[str, Scoring, dict[str, object]]]:
        """Each report on drifts with its condition and its bank."""
        found = []
        for (condition, scoring), content in self.store.all_json("drifts").items():
            try:
                found.append((condition, read_scoring(read_json(scoring)), content))
            except FormatError as error:
                self.store.damage[f"drifts {scoring}"] = str(error)
        return found

    def bank_reports(self) -> dict[str, tuple[list[float], float]]:
        """Return for each bank the agreement of mean and SVD per class, and the common share."""
        conditions = {row.cell.condition.key: row.cell.condition for row in self.rows}
        found: dict[str, tuple[list[float], float]] = {}
        for name, bank, content in self._drifts:
            agreement = [c for c in _numbers(content.get("agreement")) if c is not None]
            common = _numbers([content.get("common")])
            if name in conditions and agreement and common and common[0] is not None:
                c = conditions[name]
                title = f"{c.dataset}, {c.backbone}, {bank.pack}, {bank.reference}"
                found[title] = (agreement, common[0])
        return found

    def truth(self, row: Row) -> Truth:
        """Return the truth of a row's dataset."""
        return self._truths[row.cell.condition.set_name]

    def _paired(
        self, place: PooledCondition, first: Scoring, second: Scoring
    ) -> Iterator[tuple[Row, Row]]:
        """Yield the rows of two scorings that have the same seed."""
        others = {row.cell.condition: row for row in self._groups.get((place, second), [])}
        for row in self._groups.get((place, first), []):
            if (other := others.get(row.cell.condition)) is not None:
                yield row, other

    def _gained(self, one: Row, other: Row) -> tuple[Floats, list[str]]:
        """Return 1, 0 or -1 for each clip that both rows could use, with its id."""
        if one.outcomes is None or other.outcomes is None:
            return np.zeros(0), []
        truth = self.truth(one)
        kept = (one.outcomes >= 0) & (other.outcomes >= 0)
        gained = (one.outcomes == truth.single) * 1.0 - (other.outcomes == truth.single)
        return gained[kept], [clip for clip, k in zip(truth.ids, kept, strict=True) if k]

    def _precision_block(
        self, place: PooledCondition, first: Scoring, second: Scoring
    ) -> dict[tuple[int | None, str], Floats]:
        """Return truth and both scores of each mix of a multi-label condition: 3 x classes."""
        block: dict[tuple[int | None, str], Floats] = {}
        for one, other in self._paired(place, first, second):
            if self.truth(one).multi_label:
                present, ours, clips = self._stack(one, other)
                theirs = self._stack(other, one)[1]
                seed = one.cell.condition.seed
                for row, clip in enumerate(clips):
                    block[seed, clip] = np.stack([present[row], ours[row], theirs[row]])
        return block

    def _pooled(self, place: PooledCondition, scoring: Scoring) -> PooledResult:
        rows = self._groups[place, scoring]
        mixes = sum(row.n for row in rows)
        sizes = (mixes, max(row.n for row in rows), sum(row.failed for row in rows))
        if len(rows) == 1:
            value, gain = float(rows[0].value or 0), rows[0].gain
        elif self.truth(rows[0]).multi_label:
            value, gain = self._pooled_precision(place, scoring)
        else:
            value = float(sum((row.value or 0) * row.n for row in rows) / mixes)
            gain = self.compare([(place, scoring, COSINE)])
        found = gain or Interval(np.nan, np.nan, np.nan)
        gains = (100 * found.difference, 100 * found.low, 100 * found.high)
        return PooledResult(place, scoring, rows[0].metric, 100 * value, *gains, *sizes)

    def _pooled_precision(
        self, place: PooledCondition, scoring: Scoring
    ) -> tuple[float, Interval | None]:
        """Return the mAP of all mixes ranked together, and its gain over cosine."""
        stacked = [self._stack(row, None) for row in self._groups[place, scoring]]
        present = np.concatenate([p for p, _, _ in stacked])
        value = metrics.mean_average_precision(
            present, np.concatenate([scores for _, scores, _ in stacked])
        ).value
        pairs = list(self._paired(place, scoring, COSINE))
        both = [(self._stack(a, b), self._stack(b, a)) for a, b in pairs]
        if not both:
            return value, None
        truth = np.concatenate([mine[0] for mine, _ in both])
        ours = np.concatenate([mine[1] for mine, _ in both])
        theirs = np.concatenate([other[1] for _, other in both])
        owners = [clip for mine, _ in both for clip in mine[2]]
        rng = generator("pooled", pairs[0][0].cell.key)
        return value, metrics.precision_interval(truth, ours, theirs, groups=owners, rng=rng)

    def _stack(self, row: Row, other: Row | None) -> tuple[NDArray[np.bool_], Floats, list[str]]:
        """Return truth, scores and ids of the clips that `row` (and `other`) could use."""
        truth = self.truth(row)
        mine = find_scores(self.store, row, truth)
        theirs = find_scores(self.store, other, truth) if other else mine
        if mine is None or theirs is None:  # since they were checked
            raise StoreError("The scores of a multi-label row are missing; run its grid again")
        scores, clips = mine
        kept = np.isin(clips, theirs[1])
        used = clips[kept]
        return truth.present[used], scores[kept], [truth.ids[clip] for clip in used]


def _truths(store: Store) -> dict[str, Truth]:
    """Return the truth of each dataset by its name; a damaged one is left out."""
    found = {}
    for (name,), content in store.all_json("sets").items():
        try:
            found[name] = Truth.from_content(content)
        except FormatError as error:
            store.damage[f"sets {name}"] = str(error)
    return found


def _numbers(values: object) -> list[float | None]:
    """Return the finite numbers of a list of JSON, None for a class without one."""
    listed = values if isinstance(values, list) else []
    return [
        float(value) if isinstance(value, int | float) and abs(value) < 1e300 else None
        for value in listed
    ]


def _same_bank(bank: Scoring, das: Scoring) -> bool:
    names = ("pack", "pack_data", "direction", "reference")
    return all(getattr(bank, name) == getattr(das, name) for name in names)


def _grouped_interval(gains: Floats, owners: Sequence[str], key: str) -> Interval:
    """Return the paired interval of gains of -1, 0 and 1 by `metrics`.

    The two score columns represent a wrong and a right answer of each rule.
    """
    right = np.stack([gains < 0, gains >= 0], axis=1).astype(float)
    other = np.stack([gains > 0, gains <= 0], axis=1).astype(float)
    truth = np.ones(len(gains), np.int64)
    rng = generator("pooled", key)
    return metrics.accuracy_difference(truth, right, other, groups=owners, rng=rng)


Version = tuple[str, str, str, int, str, str, str]
"""A dataset, noise and model with their digests."""


def _version(condition: Condition) -> Version:
    c = condition
    return (c.dataset, c.data, c.backbone, c.limit, c.model, c.noise or "", c.noise_data)


def newest_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of the newest version of each dataset, noise and model."""
    found = list(rows)
    newest = _newest(found)
    return [row for row in found if _version(row.cell.condition) in newest]


def _newest(rows: Iterable[Row]) -> set[Version]:
    """Return for each dataset, noise and model name the version whose rows were made last."""
    last: dict[tuple[str, str, int, str], tuple[str, Version]] = {}
    for row in rows:
        c = row.cell.condition
        name = (c.dataset, c.backbone, c.limit, c.noise or "")
        entry = (row.stamp.made_at, _version(c))
        last[name] = max(last.get(name, entry), entry)
    return {version for _, version in last.values()}


def _order(place: PooledCondition) -> tuple[str, str, str, str, float, int]:
    quiet = float("inf") if place.snr_db is None else place.snr_db
    noise, mixing = place.noise or "", place.mixing or ""
    return (place.backbone, place.dataset, noise, mixing, -quiet, place.limit)
