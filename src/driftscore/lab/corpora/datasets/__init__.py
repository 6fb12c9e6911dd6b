"""Datasets of labelled clips, one per file, in their official folder layout.

`protocol.py` says what a dataset's file defines. A dataset can also be an entry point of the group
`driftscore.datasets`, or "module:attribute".
"""

from driftscore import registry
from driftscore.lab.corpora.datasets.protocol import Dataset, describe_dataset

KIND = registry.Kind("dataset", __name__, "clips")

__all__ = ["Dataset", "dataset_names", "find_dataset"]


def dataset_names() -> tuple[str, ...]:
    """Return the names of all datasets."""
    return registry.names(KIND)


def find_dataset(name: str) -> Dataset:
    """Return a dataset by its name; an unknown name is an error that offers the nearest."""
    return describe_dataset(name, registry.find(KIND, name))
