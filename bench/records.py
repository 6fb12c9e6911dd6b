"""The form of bench.json: parts by name, each with its figures or the reason that it has none.

`Figure` and `Spread` (figures.py) are what a part returns; these are the same as plain JSON.
"""

from collections.abc import Mapping
from typing import Any, TypedDict


class SpreadRecord(TypedDict):
    """A median with its middle half."""

    median: float
    low: float
    high: float
    turns: int


class FigureRecord(TypedDict):
    """One measured line of the page."""

    work: str
    ours: SpreadRecord
    unit: str
    peer: str
    theirs: SpreadRecord | None
    ratio: SpreadRecord | None
    bar: str
    met: bool | None
    note: str
    details: Mapping[str, Any]


class Measured(TypedDict):
    """What measuring a part gave: its figures, or the error that prevented them."""

    figures: list[FigureRecord]
    error: str
    failed: bool
    """Whether the error is a fault of ours, and not something that is not installed here."""


class PartRecord(TypedDict):
    """A part's figures with everything that produced them."""

    title: str
    about: str
    command: str
    date: str
    commit: str
    quick: bool
    threads: int | None
    seconds: float
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    figures: list[FigureRecord]
    error: str


Results = Mapping[str, PartRecord]
