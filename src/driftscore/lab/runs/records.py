"""Rows as records of the database, and records back as rows, checked.

A record may come from a damaged file, another version or another program. One whose values are not
those of a row is a `FormatError`; it counts as missing, and its cell is computed again.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from driftscore.errors import FormatError
from driftscore.lab.conditions import Row, Stamp, read_cell
from driftscore.lab.metrics import Interval

SqlValue = str | int | float | bytes | None
"""What SQLite holds."""

SHARES = ("accuracy", "mAP")
"""Metrics of clips, from 0 to 1."""


def record_of(row: Row) -> tuple[SqlValue, ...]:
    """Return a row as a record of the table `rows`."""
    outcomes = None if row.outcomes is None else row.outcomes.astype("<i2").tobytes()
    gain = (None,) * 3 if row.gain is None else (row.gain.difference, row.gain.low, row.gain.high)
    return (
        row.cell.key, row.cell.condition.key, row.metric, row.value, row.n, row.failed, *gain,
        json.dumps(dict(row.details), sort_keys=True), outcomes, row.error, row.stamp.seconds,
        row.stamp.made_at, row.stamp.versions,
    )  # fmt: skip


def read_record(record: Sequence[object]) -> Row:
    """Return the row of a record; raise `FormatError` if it is not one."""
    values = _Values(iter(record))
    cell = read_cell(values.text("key"))
    if values.text("condition") != cell.condition.key:
        raise FormatError("its condition is not that of its key")
    metric, value = values.text("metric"), values.number("value")
    n, failed = values.count("n"), values.count("failed")
    gain = values.gain()
    details, outcomes = _details(values.text("details")), values.outcomes()
    error = values.text("error")
    is_share = value is not None and (metric not in SHARES or 0 <= value <= 1)
    if not error and (not metric or not is_share or n == 0):
        raise FormatError(f"{metric or 'a metric'} of {value} over {n} clips is not a result")
    stamp = Stamp(values.number("seconds") or 0.0, values.text("made_at"), values.text("versions"))
    return Row(cell, metric, value, n, failed, gain, details, outcomes, error, stamp)


def read_json(text: object) -> dict[str, object]:
    """Return a JSON object; raise `FormatError` for anything else."""
    try:
        content = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"it is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise FormatError("it is not a JSON object")
    return content


class _Values:
    """The values of a record, taken in order and checked."""

    def __init__(self, values: Iterator[object]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        value = next(self._values)
        if not isinstance(value, str):
            raise FormatError(f"its {name} is not a text")
        return value

    def count(self, name: str) -> int:
        value = next(self._values)
        if not isinstance(value, int) or value < 0:
            raise FormatError(f"its {name} is {value!r:.40}, not a count")
        return value

    def number(self, name: str) -> float | None:
        value = next(self._values)
        if value is None:
            return None
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise FormatError(f"its {name} is {value!r:.40}, not a number")
        return float(value)

    def gain(self) -> Interval | None:
        """Return the difference to cosine; all three numbers, or none."""
        difference, low, high = (self.number(name) for name in ("difference", "low", "high"))
        if difference is None and low is None and high is None:
            return None
        if difference is None or low is None or high is None:
            raise FormatError("its gain is incomplete")
        return Interval(difference, low, high)

    def outcomes(self) -> np.ndarray[tuple[int], np.dtype[np.int16]] | None:
        value = next(self._values)
        if value is None:
            return None
        if not isinstance(value, bytes) or len(value) % 2:
            raise FormatError("its outcomes are not numbers of classes")
        return np.frombuffer(value, "<i2").astype(np.int16)


def _details(text: str) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for name, value in read_json(text).items():
        if not isinstance(value, int | float):
            raise FormatError(f"its detail {name!r:.40} is not a number")
        found[name] = value
    return found
