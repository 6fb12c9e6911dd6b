"""What is true of the clips of a dataset: one class per clip, or a set of classes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftscore.errors import FormatError
from driftscore.lab.corpora.about import Clip
from driftscore.schema import Check, count, flag, items, table, text


def _name(value: object, key: str) -> None:
    """Accept any text: names of files that are not UTF-8 have surrogates."""
    if not isinstance(value, str):
        text(value, key)


def _fold(value: object, key: str) -> None:
    if value is not None:
        _name(value, key)


_MANY = 10_000_000
_CONTENT: Check = table(
    {
        "labels": items(_name, fewest=1),
        "ids": items(_name, fewest=1, most=_MANY),
        "folds": items(_fold, fewest=1, most=_MANY),
        "classes": items(items(count), fewest=1, most=_MANY),
        "multi_label": flag,
    },
    open_=True,
)


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
        """Return the truth that `content` describes; raise `FormatError` if it describes none."""
        _CONTENT(content, "")
        fields: dict[str, Any] = dict(content)  # checked: as JSON has it
        labels, ids, folds = (tuple(fields[name]) for name in ("labels", "ids", "folds"))
        classes = tuple(tuple(some) for some in fields["classes"])
        found = Truth(labels, ids, folds, classes, bool(fields["multi_label"]))
        in_range = all(number < len(labels) for some in classes for number in some)
        if not in_range or not len(ids) == len(folds) == len(classes):
            raise FormatError("the labels, clips and classes of a dataset do not fit together")
        if not found.multi_label and any(len(some) != 1 for some in classes):
            raise FormatError("a clip of a dataset with one label per clip has several, or none")
        return found

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
