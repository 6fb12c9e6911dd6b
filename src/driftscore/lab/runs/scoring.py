"""From the embeddings of a condition to its rows: heads, scores, metrics, intervals.

A rule is given what it needs: `noise` is 200 excerpts of the noise corpus, `pool` the clean clips
of the same dataset, `background` the background that was mixed into each clip. A variant is given
`background` as the environment of each clip in words, or as `pool` the noisy clips of the other
folds. Rules that use a calibration, and the variant `standardised`, have standardised scores. Where
a head applies to some clips only (one environment, one fold, one clip), it is compiled
for each such group.
"""

import json
import platform
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones import Backbone
from driftscore.bank import ClassBank
from driftscore.calibration import Calibration
from driftscore.errors import DriftscoreError, StoreError, UsageError
from driftscore.head import Head
from driftscore.lab import metrics
from driftscore.lab.conditions import COSINE, Cell, Condition, Row, Scoring, Stamp
from driftscore.lab.runs.banks import bank_for
from driftscore.lab.runs.drifts import common_share, direction_agreement, drift_cosines
from driftscore.lab.runs.embedding import (
    ConditionEmbeddings,
    anchors_name,
    find_anchors,
    load_embeddings,
)
from driftscore.lab.runs.scorings import needs_of, rule_of, supplied_setting, uses_calibration
from driftscore.lab.runs.store import Store
from driftscore.lab.runs.truth import Truth
from driftscore.lab.seeds import generator
from driftscore.rules import Needs, compile_rule
from driftscore.settings import DEFAULT_PRESET
from driftscore.textcache import TextCache
from driftscore.vectors import Matrix, Scores
from driftscore.version import __version__

Indices = NDArray[np.intp]
HeadGroup = tuple[Indices, Head]
"""Clips, and the head that applies to them."""


@dataclass(frozen=True, eq=False)
class ConditionData:
    """Everything that is needed to score a condition."""

    store: Store
    condition: Condition
    truth: Truth
    backbone: Backbone
    embeddings: ConditionEmbeddings

    @property
    def usable(self) -> Indices:
        """The numbers of the clips that could be embedded."""
        return np.flatnonzero(self.embeddings.usable)

    def bank(self, scoring: Scoring) -> ClassBank:
        """Return the bank that a scoring compiles."""
        return bank_for(self.truth.labels, self.backbone, scoring)

    @property
    def clean_embeddings(self) -> ConditionEmbeddings | None:
        """The embeddings of the same clips without noise, if they are stored."""
        clean, dim = self.condition.without_noise, self.backbone.dim
        return load_embeddings(self.store, clean, self.truth.ids, dim=dim)


def score_condition(data: ConditionData, scorings: Iterable[Scoring]) -> Iterator[Row]:
    """Yield the row of each scoring; one that is not possible is a row with its error."""
    usable = data.usable
    if not len(usable):
        first = next(iter(data.embeddings.failures.values()), "")
        for scoring in scorings:
            cell = Cell(data.condition, scoring)
            yield Row(cell, error=f"No clip could be used; the first: {first}", stamp=stamp(0.0))
        return
    cosine = scores_of(data, COSINE)
    failed = len(data.truth.ids) - len(usable)
    for scoring in scorings:
        started = time.monotonic()
        cell = Cell(data.condition, scoring)
        try:
            row = _measured(data, cell, scores_of(data, scoring), cosine)
        except StoreError:
            raise
        except DriftscoreError as error:
            yield Row(cell, failed=failed, error=str(error), stamp=stamp(0.0))
        else:
            yield replace(row, stamp=stamp(time.monotonic() - started))


def scores_of(data: ConditionData, scoring: Scoring) -> Scores:
    """Return the scores of the usable clips in order, clips x classes."""
    usable = data.usable
    scores = np.empty((len(usable), len(data.truth.labels)))
    position = {int(clip): index for index, clip in enumerate(usable)}
    for clips, head in _heads(data, scoring):
        scores[[position[int(clip)] for clip in clips]] = head.scores(data.embeddings.rows[clips])
    return scores


def drift_reports(
    data: ConditionData, scorings: Iterable[Scoring]
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield for each bank of drifts how it compares with the audio (or, clean, with itself)."""
    for scoring in dict.fromkeys(_bank_only(s) for s in scorings if s.direction):
        bank = data.bank(scoring)
        if data.condition.clean:
            mean, svd = (data.bank(replace(scoring, direction=d)) for d in ("mean", "svd"))
            yield (
                scoring.key,
                {
                    "agreement": direction_agreement(mean.drifts, svd.drifts).tolist(),
                    "common": common_share(bank.drifts),
                    "radii": [float(radius) for radius in bank.radii],
                },
            )
        elif (clean := data.clean_embeddings) is not None:
            both = data.embeddings.usable & clean.usable
            cosines = drift_cosines(
                clean.rows[both], data.embeddings.rows[both], data.truth.present[both], bank.drifts
            )
            found = [None if np.isnan(c) else float(c) for c in cosines]
            yield scoring.key, {"cosines": found}


def _bank_only(scoring: Scoring) -> Scoring:
    """Return the settings of a scoring's bank, without those of its rule."""
    return replace(scoring, rule="das", variant="", beta=None, anchors=None, anchors_data="")


def _heads(data: ConditionData, scoring: Scoring) -> Iterator[HeadGroup]:
    """Yield each head with the clips that it applies to."""
    needs, supplied = needs_of(scoring), supplied_setting(scoring)
    settings: dict[str, object] = {} if scoring.beta is None else {"beta": scoring.beta}
    if needs & Needs.NOISE:
        settings["noise"] = _anchor_rows(data, scoring)
    compiled = _Compiler(data, scoring, settings)
    if needs & Needs.BACKGROUND:
        yield from _heads_by_clip(data, scoring, compiled)
    elif supplied == "background":
        for place, clips in _grouped(data.embeddings.environments, data.usable):
            yield clips, compiled(background=place)
    elif supplied == "pool":
        folds = data.truth.folds
        for fold, clips in _grouped(folds, data.usable):
            others = [clip for clip in data.usable if folds[clip] != fold]
            yield clips, compiled(pool=data.embeddings.rows[others])
    elif needs & Needs.POOL:
        yield data.usable, compiled(pool=_clean_pool(data, scoring))
    else:
        yield data.usable, compiled()


def _heads_by_clip(
    data: ConditionData, scoring: Scoring, compiled: Callable[..., Head]
) -> Iterator[HeadGroup]:
    backgrounds = data.embeddings.backgrounds
    if backgrounds is None:
        raise UsageError(f"{scoring.name} needs a background, and clean clips have none")
    for clip in data.usable:
        yield np.array([clip]), compiled(background=backgrounds[clip : clip + 1])


@dataclass(frozen=True, eq=False)
class _Compiler:
    """Compiles the heads of a scoring, which differ by what they are supplied with."""

    data: ConditionData
    scoring: Scoring
    settings: dict[str, object]

    def __call__(self, **supplied: object) -> Head:
        rule, name = rule_of(self.scoring.rule), self.scoring.variant
        preset = rule.variant(name).preset if name else ""
        return compile_rule(
            rule,
            self.data.bank(self.scoring),
            self.settings | supplied,
            backbone=self.data.backbone,
            preset=preset or DEFAULT_PRESET,
            cache=TextCache(),
            calibration=self._calibration(),
            standardised=uses_calibration(self.scoring),
        )

    def _calibration(self) -> Calibration | None:
        """Return the calibration of the backbone, for a scoring that uses it."""
        file = self.data.backbone.calibration_file
        if file is None or not uses_calibration(self.scoring):
            return None
        return _loaded_calibration(str(file))


@lru_cache(maxsize=4)
def _loaded_calibration(file: str) -> Calibration:
    return Calibration.load(file)


def _grouped(names: Sequence[Hashable], usable: Indices) -> Iterator[tuple[Hashable, Indices]]:
    """Yield each name with its clips, names in order of first appearance."""
    for name in dict.fromkeys(names[clip] for clip in usable):
        yield name, np.array([clip for clip in usable if names[clip] == name])


def _anchor_rows(data: ConditionData, scoring: Scoring) -> Matrix:
    name = anchors_name(str(scoring.anchors), scoring.anchors_data, data.condition)
    rows = find_anchors(data.store, name, data.backbone.dim)
    if rows is None:
        raise UsageError(f"The noise {scoring.anchors} could not be embedded for {scoring.name}")
    return rows


def _clean_pool(data: ConditionData, scoring: Scoring) -> Matrix:
    clean = data.clean_embeddings
    if clean is None:
        raise UsageError(f"{scoring.name} draws from the clean clips, which are not embedded")
    return clean.rows[clean.usable]


def _measured(data: ConditionData, cell: Cell, scores: Scores, cosine: Scores) -> Row:
    """Return the row of a cell from its scores and those of cosine."""
    truth, usable, rng = data.truth, data.usable, generator("interval", cell.key)
    n, failed = len(usable), len(truth.ids) - len(usable)
    if truth.multi_label:
        present = truth.present[usable]
        mean = metrics.mean_average_precision(present, scores)
        data.store.put_arrays("scores", cell.key, {"scores": scores, "clips": usable})
        gain = metrics.precision_interval(present, scores, cosine, rng=rng)
        details: dict[str, float] = {"classes": mean.classes, "left_out": mean.left_out}
        return Row(cell, "mAP", mean.value, n, failed, gain, details)
    single = truth.single[usable]
    outcomes = np.full(len(truth.ids), -1, np.int16)
    outcomes[usable] = scores.argmax(axis=1)
    folds = [truth.folds[clip] for clip in usable]
    value = metrics.accuracy(single, scores)
    details = {}
    if len(set(folds)) > 1:
        by_fold = metrics.fold_mean_accuracy(single, scores, folds)
        details = {"fold_mean": by_fold, "folds": len(set(folds))}
    interval = metrics.accuracy_difference(single, scores, cosine, rng=rng)
    return Row(cell, "accuracy", value, n, failed, interval, details, outcomes)


def stamp(seconds: float) -> Stamp:
    """Return when and by which versions a row was made that took so many seconds."""
    return Stamp(seconds, datetime.now(UTC).isoformat(timespec="seconds"), _versions())


@lru_cache(maxsize=1)
def _versions() -> str:
    versions = {"driftscore": __version__, "numpy": np.__version__}
    return json.dumps(versions | {"python": platform.python_version()}, sort_keys=True)
