"""Rows pooled over seeds: a value, its gain over cosine, and how sure we are of it.

A result is one scoring in one condition whatever its seed. Accuracy is over all mixes; mAP
ranks all mixes together. Intervals are paired bootstraps that resample event clips, with all
mixes of a clip together. Values are percentages and gains percentage points, as in the paper.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import UsageError
from driftscore.lab import metrics
from driftscore.lab.analysis import Alignment, class_gains, summarise
from driftscore.lab.grid import Condition, Scoring
from driftscore.lab.metrics import Interval
from driftscore.lab.scoring import COSINE, Truth
from driftscore.lab.seeds import generator
from driftscore.lab.store import Row, Store, set_name

Place = tuple[str, int, str | None, str | None, float | None, str]
"""dataset, limit, noise, mixing, SNR in dB (None: clean), backbone: a condition without seed."""


@dataclass(frozen=True)
class Result:
    """A scoring in a condition, pooled over seeds; percentages and points."""

    place: Place
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
        return self.place[0]

    @property
    def noise(self) -> str | None:
        """Name of the noise; None: clean."""
        return self.place[2]

    @property
    def mixing(self) -> str | None:
        """Name of the mixing; None: clean."""
        return self.place[3]

    @property
    def snr_db(self) -> float | None:
        """SNR in dB; None: clean."""
        return self.place[4]

    @property
    def backbone(self) -> str:
        """Name of the model."""
        return self.place[5]

    @property
    def clear(self) -> bool:
        """Whether the interval of the gain leaves zero out."""
        return self.low > 0 or self.high < 0


class Results:
    """What a store holds, of the newest model of each name, read when asked for."""

    def __init__(self, store: Store, *, only: Collection[str] | None = None) -> None:
        self.store = store
        rows = [row for row in store.rows() if only is None or row.cell.key in only]
        newest = _newest(rows)
        kept = [row for row in rows if _version(row.cell.condition) in newest]
        self.errors = [row for row in kept if row.error]
        self.rows = [row for row in kept if not row.error]
        self._groups: dict[tuple[Place, Scoring], list[Row]] = defaultdict(list)
        for row in self.rows:
            self._groups[place_of(row.cell.condition), row.cell.scoring].append(row)
        self._truths = {name[0]: Truth.read(c) for name, c in store.all_json("sets").items()}

    @cached_property
    def all(self) -> list[Result]:
        """Every result, ordered by place and scoring."""
        order = sorted(self._groups, key=lambda pair: (_order(pair[0]), pair[1].key))
        return [self._pooled(place, scoring) for place, scoring in order]

    def where(self, keep: Callable[[Result], bool]) -> list[Result]:
        """Return the results that `keep` keeps."""
        return [result for result in self.all if keep(result)]

    def compare(self, pairs: Iterable[tuple[Place, Scoring, Scoring]]) -> Interval | None:
        """Return the first scorings minus the second, pooled over single-label places, in shares.

        None where no place has both.
        """
        gains: list[NDArray[np.float64]] = []
        owners: list[str] = []
        key: list[str] = []
        for place, first, second in pairs:
            rows = (self._groups.get((place, scoring), []) for scoring in (first, second))
            for one, other in _paired(*rows):
                gained, clips = self._gained(one, other)
                gains.append(gained)
                owners += [f"{place[0]}/{clip}" for clip in clips]
                key += [one.cell.key, other.cell.key] if clips else []
        if not owners:
            return None
        return _grouped_interval(np.concatenate(gains), owners, str(key))

    def compare_precision(self, pairs: Iterable[tuple[Place, Scoring, Scoring]]) -> Interval | None:
        """Return the mean difference of mAP over multi-label places, in shares.

        Places stand side by side as further classes of the same mixes, so one resampling of
        clips serves them all. None where no mix is common to all places.
        """
        blocks = []
        for place, first, second in pairs:
            rows = (self._groups.get((place, scoring), []) for scoring in (first, second))
            block: dict[tuple[int | None, str], NDArray[np.float64]] = {}
            for one, other in _paired(*rows):
                if self.truth(one).multi_label:
                    present, ours, clips = self._stack(one, other)
                    theirs = self._stack(other, one)[1]
                    seed = one.cell.condition.seed
                    for row, clip in enumerate(clips):
                        block[seed, clip] = np.stack([present[row], ours[row], theirs[row]])
            blocks.append(block)
        if not blocks or not (common := [k for k in blocks[0] if all(k in b for b in blocks)]):
            return None
        wide = np.concatenate([np.stack([b[key] for key in common]) for b in blocks], axis=2)
        rng = generator("pooled", str(common[:3]), wide.shape[2])
        owners = [clip for _, clip in common]
        try:
            return metrics.precision_difference(
                wide[:, 0].astype(np.bool_), wide[:, 1], wide[:, 2], groups=owners, rng=rng
            )
        except UsageError:
            return None

    def band(self, place: Place, scoring: Scoring) -> tuple[float, float] | None:
        """Return the 95 % interval of an accuracy itself, in percent; None for mAP."""
        hits: list[NDArray[np.float64]] = []
        owners: list[str] = []
        for row in self._groups.get((place, scoring), []):
            truth = self.truth(row)
            if row.outcomes is not None:
                kept = row.outcomes >= 0
                hits.append((row.outcomes == truth.single)[kept] * 1.0)
                owners += [clip for clip, k in zip(truth.ids, kept, strict=True) if k]
        if not owners:
            return None
        found = _grouped_interval(np.concatenate(hits), owners, str((place, scoring.key)))
        return 100 * found.low, 100 * found.high

    def _gained(self, one: Row, other: Row) -> tuple[NDArray[np.float64], list[str]]:
        """Return 1, 0 or -1 for each clip that both rows could use, with its id."""
        if one.outcomes is None or other.outcomes is None:
            return np.zeros(0), []
        truth = self.truth(one)
        kept = (one.outcomes >= 0) & (other.outcomes >= 0)
        gained = (one.outcomes == truth.single) * 1.0 - (other.outcomes == truth.single)
        return gained[kept], [clip for clip, k in zip(truth.ids, kept, strict=True) if k]

    def class_gains(self, places: Iterable[Place], first: Scoring) -> dict[str, float]:
        """Return each class's gain over cosine pooled over places of one dataset, in points."""
        sums: dict[str, list[float]] = defaultdict(list)
        for place in places:
            pair = (self._groups.get((place, s), []) for s in (first, COSINE))
            for one, other in _paired(*pair):
                truth = self.truth(one)
                if one.outcomes is None or other.outcomes is None:
                    continue
                gains = class_gains(truth.single, one.outcomes, other.outcomes, len(truth.labels))
                for label, gain in zip(truth.labels, gains, strict=True):
                    if not np.isnan(gain):
                        sums[label].append(float(gain))
        return {label: 100 * float(np.mean(found)) for label, found in sums.items()}

    def alignment(self, das: Scoring | None, keep: Callable[[Condition], bool]) -> Alignment | None:
        """Return how the text drifts of DAS's bank and the audio drifts agree, class by class."""
        conditions = {c.key for row in self.rows if keep(c := row.cell.condition)}
        cosines: list[float | None] = []
        for (condition, scoring), content in self._drifts.items():
            if condition in conditions and das and _same_bank(json.loads(scoring), das):
                cosines += content.get("cosines", [])
        return summarise(cosines)

    @cached_property
    def _drifts(self) -> dict[tuple[str, ...], Any]:
        return self.store.all_json("drifts")

    def bank_reports(self) -> dict[str, tuple[list[float], float]]:
        """Return, for each bank, its classes' agreement of mean and SVD and its common share."""
        conditions = {row.cell.condition.key: row.cell.condition for row in self.rows}
        found = {}
        for (name, scoring), content in self._drifts.items():
            if name in conditions and "agreement" in content:
                c, bank = conditions[name], json.loads(scoring)
                words = f"{c.dataset}, {c.backbone}, {bank['pack']}, {bank['reference']}"
                found[words] = (content["agreement"], content["common"])
        return found

    def truth(self, row: Row) -> Truth:
        """Return the truth of a row's dataset."""
        return self._truths[set_name(row.cell.condition)]

    def _pooled(self, place: Place, scoring: Scoring) -> Result:
        rows = self._groups[place, scoring]
        others = self._groups.get((place, COSINE), [])
        failed = sum(row.failed for row in rows)
        clips = max(row.n for row in rows)
        mixes = sum(row.n for row in rows)
        numbers = (mixes, clips, failed)
        if len(rows) == 1:
            row = rows[0]
            value = 100 * float(row.value or 0)
            gain, low, high = (
                np.nan if v is None else 100 * v for v in (row.difference, row.low, row.high)
            )
            return Result(place, scoring, row.metric, value, gain, low, high, *numbers)
        if self.truth(rows[0]).multi_label:
            value, interval = self._precision(rows, list(_paired(rows, others)))
        else:
            value = float(sum((row.value or 0) * row.n for row in rows) / mixes)
            interval = self.compare([(place, scoring, COSINE)])
        if interval is None:
            interval = Interval(np.nan, np.nan, np.nan, 0)
        gains = (100 * interval.difference, 100 * interval.low, 100 * interval.high)
        return Result(place, scoring, rows[0].metric, 100 * value, *gains, *numbers)

    def _precision(
        self, rows: Sequence[Row], pairs: Sequence[tuple[Row, Row]]
    ) -> tuple[float, Interval | None]:
        stacked = [self._stack(row, None) for row in rows]
        present = np.concatenate([p for p, _, _ in stacked])
        value = metrics.mean_average_precision(
            present, np.concatenate([scores for _, scores, _ in stacked])
        ).value
        both = [(self._stack(a, b), self._stack(b, a)) for a, b in pairs]
        if not both:
            return value, None
        truth = np.concatenate([mine[0] for mine, _ in both])
        ours = np.concatenate([mine[1] for mine, _ in both])
        theirs = np.concatenate([other[1] for _, other in both])
        owners = [clip for mine, _ in both for clip in mine[2]]
        rng = generator("pooled", pairs[0][0].cell.key)
        try:
            return value, metrics.precision_difference(truth, ours, theirs, groups=owners, rng=rng)
        except UsageError:
            return value, None

    def _stack(
        self, row: Row, other: Row | None
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64], list[str]]:
        """Return truth, scores and ids of the clips that `row` (and `other`) could use."""
        mine = self.store.get_arrays("scores", row.cell.key)
        theirs = self.store.get_arrays("scores", other.cell.key) if other else mine
        if mine is None or theirs is None:
            raise UsageError("The scores of a multi-label row are gone; run its grid with --retry")
        kept = np.isin(mine["clips"], theirs["clips"])
        clips = mine["clips"][kept]
        truth = self.truth(row)
        return truth.present[clips], mine["scores"][kept], [truth.ids[clip] for clip in clips]


def _same_bank(scoring: dict[str, Any], das: Scoring) -> bool:
    names = ("pack", "pack_data", "direction", "reference")
    return all(scoring[name] == getattr(das, name) for name in names)


def place_of(condition: Condition) -> Place:
    """Return a condition without its seed and digests."""
    c = condition
    return (c.dataset, c.limit, c.noise, c.mixing, c.snr_db, c.backbone)


def _paired(first: Iterable[Row], second: Iterable[Row]) -> Iterable[tuple[Row, Row]]:
    """Pair rows of one seed."""
    by_condition = {row.cell.condition: row for row in second}
    for row in first:
        if (other := by_condition.get(row.cell.condition)) is not None:
            yield row, other


def _grouped_interval(gains: NDArray[np.float64], owners: Sequence[str], key: str) -> Interval:
    """Return the paired interval of gains of -1, 0 and 1 by `metrics`, clip by clip.

    The two score columns stand for a wrong and a right answer of each rule.
    """
    right = np.stack([gains < 0, gains >= 0], axis=1).astype(float)
    other = np.stack([gains > 0, gains <= 0], axis=1).astype(float)
    truth = np.ones(len(gains), np.int64)
    rng = generator("pooled", key)
    return metrics.accuracy_difference(truth, right, other, groups=owners, rng=rng)


def _version(condition: Condition) -> tuple[str, str, str, int, str, str, str]:
    c = condition
    return (c.dataset, c.data, c.backbone, c.limit, c.model, c.noise or "", c.noise_data)


def _newest(rows: Iterable[Row]) -> set[tuple[str, str, str, int, str, str, str]]:
    """Return, of each dataset, noise and model name, the version whose rows were made last."""
    last: dict[tuple[str, str, int, str], tuple[str, tuple[str, str, str, int, str, str, str]]] = {}
    for row in rows:
        c = row.cell.condition
        name = (c.dataset, c.backbone, c.limit, c.noise or "")
        entry = (row.made_at, _version(c))
        last[name] = max(last.get(name, entry), entry)
    return {version for _, version in last.values()}


def _order(place: Place) -> tuple[str, str, str, str, float, int]:
    dataset, limit, noise, mixing, snr_db, backbone = place
    quiet = float("inf") if snr_db is None else snr_db
    return (backbone, dataset, noise or "", mixing or "", -quiet, limit)
