"""From a condition's embeddings to its rows: heads, scores, metrics, intervals.

A rule is given what it asks for: `noise` is 200 clips of the corpus, `pool` the clean clips
of the same dataset (`:noisy`: the noisy clips of the other folds), `background` the very
background of each clip. Where a head is good for some clips only (one place, one fold, one
clip), it is compiled for each such group. Truth is one class a clip, or a set of them.
"""

import json
import platform
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore import __version__
from driftscore.backbones import Backbone
from driftscore.bank import ClassBank, VanishingDriftWarning, build_bank
from driftscore.errors import DriftscoreError, StoreError, UsageError
from driftscore.head import Head
from driftscore.lab import metrics
from driftscore.lab.analysis import common_share, direction_agreement, drift_cosines
from driftscore.lab.corpora import Clip
from driftscore.lab.grid import Cell, Condition, Scoring, clean_condition, needs_of
from driftscore.lab.listening import Heard, anchors_name, load_heard
from driftscore.lab.seeds import generator
from driftscore.lab.store import Row, Store
from driftscore.lab.validation import is_multi_label
from driftscore.presets import DEFAULT, rule_settings
from driftscore.rules import compile_head
from driftscore.textcache import TextCache
from driftscore.vectors import Matrix, Scores

Indices = NDArray[np.intp]
_NOISY_PRESET = "acevedo2025"
COSINE = Scoring("cosine")
_KEPT_BANKS = 24
_banks: dict[tuple[object, ...], ClassBank] = {}


@dataclass(frozen=True, eq=False)
class Truth:
    """A dataset's labels and what is true of each of its clips."""

    labels: tuple[str, ...]
    ids: tuple[str, ...]
    folds: tuple[str | None, ...]
    classes: tuple[tuple[int, ...], ...]
    multi_label: bool

    @staticmethod
    def of(clips: Sequence[Clip], labels: Sequence[str]) -> "Truth":
        """Return the truth of a dataset's clips."""
        number = {label: index for index, label in enumerate(labels)}
        return Truth(
            tuple(labels),
            tuple(clip.id for clip in clips),
            tuple(clip.fold for clip in clips),
            tuple(tuple(number[label] for label in clip.labels) for clip in clips),
            is_multi_label(clips),
        )

    @staticmethod
    def read(content: dict[str, Any]) -> "Truth":
        """Return the truth that `content` keeps as JSON."""
        classes = tuple(tuple(c) for c in content["classes"])
        labels, ids, folds = (tuple(content[name]) for name in ("labels", "ids", "folds"))
        return Truth(labels, ids, folds, classes, content["multi_label"])

    @property
    def content(self) -> dict[str, Any]:
        """The truth as JSON keeps it."""
        return {
            "labels": self.labels,
            "ids": self.ids,
            "folds": self.folds,
            "classes": self.classes,
            "multi_label": self.multi_label,
        }

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which class each clip has: clips x classes."""
        matrix = np.zeros((len(self.ids), len(self.labels)), np.bool_)
        for row, classes in zip(matrix, self.classes, strict=True):
            row[list(classes)] = True
        return matrix

    @property
    def single(self) -> NDArray[np.int64]:
        """The one class of each clip."""
        return np.array([classes[0] for classes in self.classes], np.int64)


@dataclass(frozen=True, eq=False)
class Bench:
    """What scoring a condition needs at hand."""

    store: Store
    condition: Condition
    truth: Truth
    backbone: Backbone
    heard: Heard

    @staticmethod
    def of(
        store: Store, condition: Condition, truth: Truth, backbone: Backbone, *, backgrounds: bool
    ) -> "Bench":
        """Lay out a condition; its embeddings must be there."""
        heard = load_heard(store, condition, truth.ids, backgrounds=backgrounds)
        if heard is None:
            raise UsageError(f"{condition.title}: embeddings are missing; run the grid again")
        return Bench(store, condition, truth, backbone, heard)


def score_condition(bench: Bench, scorings: Iterable[Scoring]) -> Iterator[Row]:
    """Yield the row of each scoring; one that cannot be had is a row that says why."""
    usable = np.flatnonzero(bench.heard.usable)
    if not len(usable):
        first = next(iter(bench.heard.failures.values()), "")
        for scoring in scorings:
            cell = Cell(bench.condition, scoring)
            yield _stamped(cell, error=f"No clip could be used; the first: {first}")
        return
    cosine = scores_of(bench, COSINE)
    for scoring in scorings:
        started = time.monotonic()
        cell = Cell(bench.condition, scoring)
        try:
            scores = scores_of(bench, scoring)
            row = _measured(bench, cell, scores, cosine, usable)
        except StoreError:
            raise
        except DriftscoreError as error:
            yield _stamped(cell, failed=len(bench.truth.ids) - len(usable), error=str(error))
        else:
            yield _stamped(cell, **row, seconds=time.monotonic() - started)


def scores_of(bench: Bench, scoring: Scoring) -> Scores:
    """Return the scores of the usable clips, in order, clips x classes."""
    usable = np.flatnonzero(bench.heard.usable)
    scores = np.empty((len(usable), len(bench.truth.labels)))
    place = {int(clip): position for position, clip in enumerate(usable)}
    for clips, head in _heads(bench, scoring, usable):
        scores[[place[int(clip)] for clip in clips]] = head.scores(bench.heard.rows[clips])
    return scores


def drift_reports(bench: Bench, scorings: Iterable[Scoring]) -> Iterator[tuple[str, Any]]:
    """Yield, for each bank of drifts, how it stands to the audio (or, clean, to itself)."""
    for scoring in dict.fromkeys(_bank_only(s) for s in scorings if s.direction):
        bank = bank_of(bench, scoring)
        if bench.condition.clean:
            svd, mean = (bank_of(bench, _bank_only(scoring, d)) for d in ("svd", "mean"))
            yield (
                scoring.key,
                {
                    "agreement": direction_agreement(mean.drifts, svd.drifts).tolist(),
                    "common": common_share(bank.drifts),
                    "radii": [float(radius) for radius in bank.radii],
                },
            )
        elif (clean := _clean_heard(bench)) is not None:
            both = bench.heard.usable & clean.usable
            cosines = drift_cosines(
                clean.rows[both], bench.heard.rows[both], bench.truth.present[both], bank.drifts
            )
            found = [None if np.isnan(c) else float(c) for c in cosines]
            yield scoring.key, {"cosines": found}


def bank_of(bench: Bench, scoring: Scoring) -> ClassBank:
    """Return the bank that a scoring compiles: built once a process, its texts encoded once."""
    settings = (scoring.pack, scoring.direction, scoring.reference)
    key = (bench.truth.labels, bench.backbone.fingerprint, *settings)
    if key not in _banks:
        if len(_banks) >= _KEPT_BANKS:
            _banks.clear()
        _banks[key] = _bank(bench.truth.labels, bench.backbone, *settings)
    return _banks[key]


def _bank_only(scoring: Scoring, direction: str | None = None) -> Scoring:
    """Return the scoring's bank with all else left out."""
    return Scoring(
        "das",
        pack=scoring.pack,
        pack_data=scoring.pack_data,
        direction=direction or scoring.direction,
        reference=scoring.reference,
    )


def _bank(
    labels: tuple[str, ...],
    backbone: Backbone,
    pack: str | None,
    direction: str | None,
    reference: str | None,
) -> ClassBank:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VanishingDriftWarning)  # a class without a bonus is legal
        return build_bank(
            labels,
            backbone,
            pack=pack,
            direction=direction,
            reference=reference,
            cache=TextCache(),
            progress=False,
        )


def _heads(bench: Bench, scoring: Scoring, usable: Indices) -> Iterator[tuple[Indices, Head]]:
    """Yield each head with the clips that it is for."""
    needs = needs_of(scoring.rule)
    common: dict[str, Any] = {} if scoring.beta is None else {"beta": scoring.beta}
    if "noise" in needs:
        common["noise"] = _anchor_rows(bench, scoring)
    if "background" in needs:
        if bench.heard.backgrounds is None:
            raise UsageError(f"{scoring.name} needs a background, and clean clips have none")
        for clip in usable:
            background = bench.heard.backgrounds[clip : clip + 1]
            yield np.array([clip]), _head(bench, scoring, common | {"background": background})
    elif scoring.variant == "matched":
        for place, clips in _grouped(bench.heard.environments, usable):
            yield clips, _head(bench, scoring, common | {"background": place})
    elif scoring.variant == "noisy":
        nearest = rule_settings(_NOISY_PRESET, scoring.rule)
        for fold, clips in _grouped(bench.truth.folds, usable):
            others = [clip for clip in usable if bench.truth.folds[clip] != fold]
            pool = bench.heard.rows[others]
            yield clips, _head(bench, scoring, common | nearest | {"pool": pool})
    else:
        if "pool" in needs:
            common["pool"] = _clean_pool(bench, scoring)
        yield usable, _head(bench, scoring, common)


def _head(bench: Bench, scoring: Scoring, settings: dict[str, Any]) -> Head:
    return compile_head(
        bank_of(bench, scoring),
        scoring.rule,
        backbone=bench.backbone,
        preset=DEFAULT,
        cache=TextCache(),
        **settings,
    )


def _grouped(names: Sequence[str | None], usable: Indices) -> Iterator[tuple[Any, Indices]]:
    """Yield each name with its clips, names in order of first appearance."""
    for name in dict.fromkeys(names[clip] for clip in usable):
        yield name, np.array([clip for clip in usable if names[clip] == name])


def _anchor_rows(bench: Bench, scoring: Scoring) -> Matrix:
    name = anchors_name(str(scoring.anchors), scoring.anchors_data, bench.condition)
    arrays = bench.store.get_arrays("embeddings", name)
    if arrays is None:
        raise UsageError(f"The noise {scoring.anchors} could not be embedded for {scoring.name}")
    rows: Matrix = arrays["rows"]
    return rows


def _clean_heard(bench: Bench) -> Heard | None:
    return load_heard(bench.store, clean_twin(bench.condition), bench.truth.ids)


def clean_twin(condition: Condition) -> Condition:
    """Return the clean condition of the same clips and model."""
    c = condition
    return clean_condition(c.dataset, c.data, c.limit, c.backbone, c.model)


def _clean_pool(bench: Bench, scoring: Scoring) -> Matrix:
    heard = _clean_heard(bench)
    if heard is None:
        raise UsageError(f"{scoring.name} draws from the clean clips, which are not embedded")
    return heard.rows[heard.usable]


def _measured(
    bench: Bench, cell: Cell, scores: Scores, cosine: Scores, usable: Indices
) -> dict[str, Any]:
    """Return what a row says of its scores."""
    truth, rng = bench.truth, generator("interval", cell.key)
    found: dict[str, Any] = {"n": len(usable), "failed": len(truth.ids) - len(usable)}
    if truth.multi_label:
        present = truth.present[usable]
        mean = metrics.mean_average_precision(present, scores)
        found |= {"metric": "mAP", "value": mean.value}
        found["details"] = {"classes": mean.classes, "left_out": mean.left_out}
        bench.store.put_arrays("scores", cell.key, {"scores": scores, "clips": usable})
        interval = _or_none(metrics.precision_difference, present, scores, cosine, rng)
    else:
        single = truth.single[usable]
        outcomes = np.full(len(truth.ids), -1, np.int16)
        outcomes[usable] = scores.argmax(axis=1)
        folds = [truth.folds[clip] for clip in usable]
        found |= {"metric": "accuracy", "value": metrics.accuracy(single, scores)}
        found["outcomes"] = outcomes
        if len(set(folds)) > 1:
            by_fold = metrics.fold_mean_accuracy(single, scores, folds)
            found["details"] = {"fold_mean": by_fold, "folds": len(set(folds))}
        interval = _or_none(metrics.accuracy_difference, single, scores, cosine, rng)
    if interval is not None:
        found |= {"difference": interval.difference, "low": interval.low, "high": interval.high}
    return found


def _or_none(measure: Any, truth: Any, scores: Scores, other: Scores, rng: Any) -> Any:
    """Return an interval, or None where there are too few positives for one."""
    try:
        return measure(truth, scores, other, rng=rng)
    except UsageError:
        return None


def _stamped(cell: Cell, **values: Any) -> Row:
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    return Row(cell, made_at=made_at, versions=_versions(), **values)


@lru_cache(maxsize=1)
def _versions() -> str:
    versions = {"driftscore": __version__, "numpy": np.__version__}
    return json.dumps(versions | {"python": platform.python_version()}, sort_keys=True)
