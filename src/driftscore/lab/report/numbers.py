"""How tables write numbers: two digits, a sign for gains, empty for what is not defined."""

import math
from collections.abc import Iterable, Sequence

from driftscore.lab.metrics import Interval


def plain(value: float) -> str:
    """Return a percentage; empty if it is NaN."""
    return "" if math.isnan(value) else f"{value:.2f}"


def signed(value: float) -> str:
    """Return a gain with its sign; empty if it is NaN."""
    return "" if math.isnan(value) else _rounded(value, 2)


def interval(value: float, low: float, high: float, *, digits: int = 2) -> str:
    """Return a gain with its interval."""
    if math.isnan(value):
        return ""
    shown, least, most = (_rounded(number, digits) for number in (value, low, high))
    return f"{shown} [{least}, {most}]"


def points(found: Interval | None) -> str:
    """Return an interval of shares as percentage points."""
    if found is None:
        return ""
    return interval(100 * found.difference, 100 * found.low, 100 * found.high)


def summary(gains: Sequence[float]) -> list[str]:
    """Return the mean, the number of positive ones, the least and the largest of some gains."""
    known = [gain for gain in gains if not math.isnan(gain)]
    if not known:
        return ["", "", "", ""]
    positive = f"{sum(gain > 0 for gain in known)}/{len(known)}"
    return [signed(mean(known)), positive, signed(min(known)), signed(max(known))]


def mean(values: Iterable[float]) -> float:
    """Return the mean of the values that are not NaN; NaN if there is none."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def printed(value: object) -> str:
    """Return a figure of the paper as the paper prints it."""
    if isinstance(value, float):
        return f"{value:+.2f}" if value else "0.00"
    return str(value)


def numeric_order(text: str) -> tuple[float, str]:
    """Return a key that sorts numbers by value, before other texts."""
    unsigned = text.removeprefix("-").replace(".", "", 1)
    return (float(text), "") if unsigned.isdigit() else (math.inf, text)


def _rounded(value: float, digits: int) -> str:
    """Return a signed number; what rounds to zero has no minus."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"
