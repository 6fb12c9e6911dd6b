"""What is true of the clips of a dataset: one class per clip, or a set of classes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.lab.corpora.about import Clip


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
            is_multi_label(clips),
        )

    @staticmethod
    def from_content(content: Mapping[str, object]) -> "Truth":
        """Return the truth that `content` describes."""
        fields: dict[str, Any] = dict(content)  # as JSON has it: checked when it was written
        labels, ids, folds = (tuple(fields[name]) for name in ("labels", "ids", "folds"))
        classes = tuple(tuple(some) for some in fields["classes"])
        return Truth(labels, ids, folds, classes, bool(fields["multi_label"]))

    @property
    def content(self) -> dict[str, object]:
        """The truth as a value for JSON."""
        return asdict(self)

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


def is_multi_label(clips: Sequence[Clip]) -> bool:
    """Return whether any clip has several labels, or none: then clips are ranked per class."""
    return any(len(clip.labels) != 1 for clip in clips)
