"""From the embeddings of a condition to its rows: banks, heads, scores, metrics, intervals.

A rule is given what it needs: `noise` is 200 excerpts of the noise corpus, `pool` the clean clips
of the same dataset, `background` the background that was mixed into each clip. A variant is given
`background` as the environment of each clip in words, or as `pool` the noisy clips of the other
folds. Examples are clean clips of another dataset, given to `Classifier.fit`. Scores are those by
which labels are compared; the variant `standardised` standardises them.
Where a head applies to some clips only (one environment, one fold, one clip), it is compiled for
each such group.

The banks of an ablation share most of their noisy prompts, whose embeddings the text cache does not
keep; here they stay in memory (encoding those of 50 labels by `mini` takes 20 s).
"""

import json
import platform
import time
import warnings
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from driftscore.backbones import Backbone
from driftscore.backbones.vectors import VANISHING, Matrix, Scores, Vector
from driftscore.classifier import Classifier
from driftscore.errors import DriftscoreError, StoreError, UsageError
from driftscore.lab import metrics
from driftscore.lab.conditions import COSINE, Cell, Condition, Row, Scoring, generator
from driftscore.lab.runs.embedding import (
    ConditionEmbeddings,
    anchors_name,
    find_anchors,
    load_embeddings,
)
from driftscore.lab.runs.scorings import (
    needs_of,
    prompts_of,
    rule_of,
    settings_of,
    supplied_setting,
    uses_calibration,
)
from driftscore.lab.runs.store import ArrayFiles
from driftscore.lab.runs.truth import Truth
from driftscore.scoring.bank import ClassBank, VanishingDriftWarning, encode_bank
from driftscore.scoring.calibration import Calibration
from driftscore.scoring.head import Head
from driftscore.scoring.rules import NOISY_PROMPTS, Needs, compile_head
from driftscore.system.progress import Advance
from driftscore.text.cache import TextCache, TextEncoder
from driftscore.text.presets import DEFAULT_PRESET
from driftscore.text.prompts import compose, words
from driftscore.version import __version__

MAX_TEXTS = 100_000  # some 200 MB

Indices = NDArray[np.intp]

MAX_HEADS = 200

_texts: dict[tuple[str, str], Vector] = {}  # by model and text
_learnt: dict[tuple[str, str, str], Head] = {}  # by model, dataset and scoring


@dataclass(frozen=True, eq=False)
class ConditionData:
    """Everything that is needed to score a condition."""

    files: ArrayFiles
    condition: Condition
    truth: Truth
    backbone: Backbone
    embeddings: ConditionEmbeddings
    examples: tuple[Truth, ConditionEmbeddings] | None = None
    """The clean clips that examples are drawn from."""

    @property
    def usable(self) -> Indices:
        """The numbers of the clips that could be embedded."""
        return np.flatnonzero(self.embeddings.usable)

    def bank(self, scoring: Scoring) -> ClassBank:
        """Return the bank of a scoring: with noisy prompts only if its rule needs them."""
        noisy = bool(needs_of(scoring) & NOISY_PROMPTS)
        texts = compose(self.truth.labels, prompts_of(scoring), noisy=noisy)
        with warnings.catch_warnings():
            # A class whose drift vanishes gets no bonus, which is visible in the report.
            warnings.simplefilter("ignore", VanishingDriftWarning)
            encoder = _RememberingEncoder(self.backbone, cache=TextCache(), progress=False)
            return encode_bank(texts, encoder)

    @property
    def clean_embeddings(self) -> ConditionEmbeddings | None:
        """The embeddings of the same clips without noise, if they are stored."""
        return load_embeddings(self.files, self.condition.without_noise, self.truth.ids)


@lru_cache(maxsize=2)
def load_calibration(file: str) -> Calibration:
    """Return a calibration, whose statistics are computed once per process."""
    return Calibration.load(file)


class _RememberingEncoder(TextEncoder):
    """A text encoder that keeps what it encodes for the next bank of the same model."""

    def encode(self, texts: Sequence[str], advance: Advance) -> dict[str, Vector]:
        """Return the embeddings of distinct texts by text."""
        if len(_texts) > MAX_TEXTS:
            _texts.clear()
        new = [text for text in texts if (self.model, text) not in _texts]
        for text, row in super().encode(new, advance).items():
            _texts[self.model, text] = row
        return {text: _texts[self.model, text] for text in texts}


def score_condition(data: ConditionData, scorings: Iterable[Scoring]) -> Iterator[Row]:
    """Yield the row of each scoring; one that is not possible is a row with its error."""
    usable = data.usable
    if not len(usable):
        first = next(iter(data.embeddings.failures.values()), "")
        for scoring in scorings:
            cell = Cell(data.condition, scoring)
            yield stamped(Row(cell, error=f"No clip could be used; the first: {first}"), 0.0)
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
            yield stamped(Row(cell, failed=failed, error=str(error)), 0.0)
        else:
            yield stamped(row, time.monotonic() - started)


def scores_of(data: ConditionData, scoring: Scoring) -> Scores:
    """Return the scores of the usable clips in order, clips x classes."""
    scores = np.empty((len(data.truth.ids), len(data.truth.labels)))
    for clips, head in _heads(data, scoring):
        scores[clips] = head.scores(data.embeddings.rows[clips])
    return scores[data.usable]


def drift_reports(
    data: ConditionData, scorings: Iterable[Scoring]
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield for each bank of drifts how it compares with the audio (or, clean, with itself).

    `agreement` is the cosine of each class's mean and SVD drift. `common` is |mean_c d_c|^2, the
    part of the unit drifts d_c that all classes share, which changes no argmax (1: all the same,
    1 / C: practically unrelated).
    """
    banks = [  # the settings of a scoring's bank, without those of its rule
        replace(scoring, rule="das", variant="", beta=None, anchors=None, anchors_data="")
        for scoring in scorings
        if scoring.direction
    ]
    for scoring in dict.fromkeys(banks):
        bank = data.bank(scoring)
        if data.condition.clean:
            mean, svd = (data.bank(replace(scoring, direction=d)) for d in ("mean", "svd"))
            agreement = (mean.drifts.astype(np.float64) * svd.drifts).sum(axis=1)
            centre = bank.drifts.astype(np.float64).mean(axis=0)
            common, radii = float(centre @ centre), bank.radii.tolist()
            report = {"agreement": agreement.tolist(), "common": common, "radii": radii}
            yield scoring.key, report
        elif (clean := data.clean_embeddings) is not None:
            both = data.embeddings.usable & clean.usable
            cosines = drift_cosines(
                clean.rows[both], data.embeddings.rows[both], data.truth.present[both], bank.drifts
            )
            yield scoring.key, {"cosines": [None if np.isnan(c) else float(c) for c in cosines]}


def drift_cosines(
    clean: Matrix, noisy: Matrix, present: NDArray[np.bool_], drifts: Matrix
) -> NDArray[np.float64]:
    """Return for each class the cosine of audio and text drift; NaN if either has no direction.

    `clean` and `noisy` are embeddings of the same clips; `present` is which classes each has. The
    audio drift of a class is the mean of its noisy clips minus that of the same clips, clean.
    """
    moved = noisy.astype(np.float64) - clean
    cosines = np.full(len(drifts), np.nan)
    for number, (members, drift) in enumerate(zip(present.T, drifts, strict=True)):
        if members.any():
            audio = moved[members].mean(axis=0)
            lengths = np.linalg.norm(audio) * np.linalg.norm(drift)
            if lengths > VANISHING:
                cosines[number] = audio @ drift / lengths
    return cosines


def _heads(data: ConditionData, scoring: Scoring) -> Iterator[tuple[Indices, Head]]:
    """Yield clips, and the head that applies to them."""
    if scoring.examples:
        key = (data.condition.model, data.condition.set_name, scoring.key)
        if key not in _learnt:  # the same head at every SNR
            if len(_learnt) > MAX_HEADS:
                _learnt.clear()
            _learnt[key] = _learnt_head(data, scoring)
        yield data.usable, _learnt[key]
        return
    needs, supplied = needs_of(scoring), supplied_setting(scoring)
    settings = settings_of(scoring)
    if needs & Needs.NOISE:
        name = anchors_name(str(scoring.anchors), scoring.anchors_data, data.condition)
        settings["noise"] = find_anchors(data.files, name)
        if settings["noise"] is None:
            raise UsageError(
                f"The noise {scoring.anchors} could not be embedded for {scoring.name}"
            )
    file, standardised = data.backbone.calibration_file, supplied == "calibration"
    calibration = None
    if file is not None and uses_calibration(scoring):
        calibration = load_calibration(file)
    bank = data.bank(scoring)

    def compiled(**supplied: object) -> Head:
        rule, variant = rule_of(scoring.rule), scoring.variant
        return compile_head(
            bank,
            rule,
            settings | supplied,
            backbone=data.backbone,
            preset=(rule.variant(variant).preset if variant else "") or DEFAULT_PRESET,
            cache=TextCache(),
            calibration=calibration,
            standardised=standardised,
        )

    if needs & Needs.BACKGROUND:
        backgrounds = data.embeddings.backgrounds
        if backgrounds is None:
            raise UsageError(f"{scoring.name} needs a background, and clean clips have none")
        for clip in data.usable:
            yield np.array([clip]), compiled(background=backgrounds[clip : clip + 1])
    elif supplied == "background":
        for environment, clips in _grouped(data.embeddings.environments, data.usable):
            yield clips, compiled(background=environment)
    elif supplied == "pool":
        folds = data.truth.folds
        for fold, clips in _grouped(folds, data.usable):
            others = [clip for clip in data.usable if folds[clip] != fold]
            yield clips, compiled(pool=data.embeddings.rows[others])
    elif needs & Needs.POOL:
        clean = data.clean_embeddings
        if clean is None:
            raise UsageError(f"{scoring.name} draws from the clean clips, which are not embedded")
        yield data.usable, compiled(pool=clean.rows[clean.usable])
    else:
        yield data.usable, compiled()


def _learnt_head(data: ConditionData, scoring: Scoring) -> Head:
    """Return the head of words and one draw of examples: that of a `Classifier` fitted to them."""
    if data.examples is None:
        raise UsageError(f"{scoring.examples_from} is not embedded, which has the examples")
    truth, embeddings = data.examples
    file = data.backbone.calibration_file
    labels = [words(label) for label in data.truth.labels]
    drawn, y = list[int](), list[str]()
    for label in labels:
        clips = [
            clip
            for clip in np.flatnonzero(embeddings.usable)
            if [words(truth.labels[number]) for number in truth.classes[clip]] == [label]
        ]
        rng = generator("examples", scoring.examples_from, label, scoring.draw)
        chosen = rng.permutation(clips)[: scoring.examples].tolist()
        drawn += chosen
        y += [label] * len(chosen)
    classifier = Classifier(
        labels,
        backbone=data.backbone,
        rule=scoring.rule,
        settings=settings_of(scoring),
        prompts=prompts_of(scoring),
        calibration=file if file is None else load_calibration(file),
        progress=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about single words and examples: of all, rows tell
        return classifier.fit(embeddings.rows[drawn], y).head_


def _grouped(names: Sequence[Hashable], usable: Indices) -> Iterator[tuple[Hashable, Indices]]:
    """Yield each name with its clips, names in order of first appearance."""
    for name in dict.fromkeys(names[clip] for clip in usable):
        yield name, np.array([clip for clip in usable if names[clip] == name])


def _measured(data: ConditionData, cell: Cell, scores: Scores, cosine: Scores) -> Row:
    """Return the row of a cell from its scores and those of cosine."""
    truth, usable, rng = data.truth, data.usable, generator("interval", cell.key)
    n, failed = len(usable), len(truth.ids) - len(usable)
    if truth.multi_label:
        present = truth.present[usable]
        mean = metrics.mean_average_precision(present, scores)
        data.files.put_arrays("scores", cell.key, {"scores": scores, "clips": usable})
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


def stamped(row: Row, seconds: float) -> Row:
    """Return a row that took so many seconds, with the time and the versions of now."""
    versions = {
        "driftscore": __version__, "numpy": np.__version__, "python": platform.python_version()
    }  # fmt: skip
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    return replace(
        row, seconds=seconds, made_at=made_at, versions=json.dumps(versions, sort_keys=True)
    )
