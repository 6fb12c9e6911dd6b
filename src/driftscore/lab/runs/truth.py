"""What is true of the clips of a dataset, and whether stored results fit it.

A clip has one class, or a set of classes. Rows about events have counts by minute and a curve.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from driftscore.backbones.vectors import Scores
from driftscore.errors import FormatError
from driftscore.lab.conditions import Row
from driftscore.lab.corpora.about import Clip
from driftscore.lab.runs.store import ArrayFiles

METRIC = "event F1"
"""The metric of rows about events; the report shows them in a section of their own."""

MinuteCounts = NDArray[np.int64]
"""Hits, missed events and false alarms of each minute, blocks x 3."""

CurveColumns = NDArray[np.float64]
"""Thresholds, precision, recall and false alarms per hour, 4 x points."""


@dataclass(frozen=True)
class Truth:
    """The labels of a dataset, and the classes of each of its clips."""

    labels: tuple[str, ...]
    ids: tuple[str, ...]
    folds: tuple[str | None, ...]
    classes: tuple[tuple[int, ...], ...]
    multi_label: bool

    @staticmethod
    def of(clips: Sequence[Clip], labels: Sequence[str]) -> "Truth":
        """Return the truth of the clips of a dataset."""
        number = {label: index for index, label in enumerate(labels)}
        return Truth(
            tuple(labels),
            tuple(clip.id for clip in clips),
            tuple(clip.fold for clip in clips),
            tuple(tuple(number[label] for label in clip.labels) for clip in clips),
            any(len(clip.labels) != 1 for clip in clips),  # then clips are ranked per class
        )

    @staticmethod
    def from_content(content: Mapping[str, object]) -> "Truth":
        """Return the truth that `content` describes; raise `FormatError` if it describes none."""
        try:
            truth = msgspec.convert(content, Truth)
        except ValueError as error:
            raise FormatError(str(error)) from error
        clips, labels = len(truth.ids), len(truth.labels)
        if not clips or not clips == len(truth.folds) == len(truth.classes):
            raise FormatError("the labels, clips and classes of a dataset do not fit together")
        for classes in truth.classes:
            if not all(0 <= number < labels for number in classes):
                raise FormatError("a clip of a dataset has a class that is not one of its labels")
            if not truth.multi_label and len(classes) != 1:
                raise FormatError("a clip of a dataset with one label per clip has several or none")
        return truth

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which classes each clip has: clips x classes."""
        matrix = np.zeros((len(self.ids), len(self.labels)), np.bool_)
        for row, classes in zip(matrix, self.classes, strict=True):
            row[list(classes)] = True
        return matrix

    @property
    def single(self) -> NDArray[np.int64]:
        """The one class of each clip."""
        return np.array([classes[0] for classes in self.classes], np.int64)


def find_scores(
    files: ArrayFiles, row: Row, truth: Truth
) -> tuple[Scores, NDArray[np.intp]] | None:
    """Return the scores of a row (clips x classes) and its clips; None if they are not stored."""
    arrays = files.get_arrays("scores", row.cell.key) or {}
    scores, clips = arrays.get("scores"), arrays.get("clips")
    if scores is None or scores.shape != (row.n, len(truth.labels)):
        return None
    if clips is None or clips.shape != (row.n,) or clips.max(initial=0) >= len(truth.ids):
        return None
    return scores.astype(np.float64), clips.astype(np.intp)


def find_detections(files: ArrayFiles, row: Row) -> tuple[MinuteCounts, CurveColumns] | None:
    """Return what is stored of a row about events; None if nothing is, or of other events."""
    arrays = files.get_arrays("scores", row.cell.key) or {}
    blocks, curve = arrays.get("blocks"), arrays.get("curve")
    if blocks is None or curve is None or blocks[:, :2].sum() != row.n or len(curve) != 4:
        return None
    return blocks.astype(np.int64), curve.astype(np.float64)


def fits(files: ArrayFiles, row: Row, truth: Truth) -> bool:
    """Return whether the outcomes, scores or detections of a row are there for all its clips."""
    if row.metric == METRIC:
        return find_detections(files, row) is not None
    if row.n + row.failed != len(truth.ids):
        return False
    if row.metric == "mAP":
        return find_scores(files, row, truth) is not None
    if row.outcomes is None or row.outcomes.shape != (len(truth.ids),):
        return False
    return bool((row.outcomes < len(truth.labels)).all())
