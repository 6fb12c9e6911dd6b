"""How values are written as text, and when a stream is flushed; shared by the formats."""

import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO

from driftscore.errors import UsageError
from driftscore.formats.protocol import OutputRow, OutputValue


def flat(row: OutputRow) -> OutputRow:
    """Return a row with the scores of all labels in columns of their own."""
    if "scores" not in row:
        return row
    spread: dict[str, OutputValue] = {}
    for key, value in row.items():
        if key == "scores" and isinstance(value, Mapping):
            spread |= {f"score:{label}": score for label, score in value.items()}
        else:
            spread[key] = value
    return spread


def plain(value: OutputValue) -> object:
    """Return a value as csv holds it: a number with six decimals, a list joined."""
    if isinstance(value, float):
        return f"{value:.6f}"
    return "; ".join(value) if isinstance(value, list) else value


def rounded(value: OutputValue | OutputRow) -> object:
    """Return a value as JSON holds it: floats as in csv, infinity (no runner-up) as null."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def after_row(out: IO[str]) -> Callable[[], None]:
    """Return what to call after each row: flush a pipe or a terminal, do nothing for a file."""
    try:
        flushed = not stat.S_ISREG(os.fstat(out.fileno()).st_mode)
    except OSError:  # a stream in memory
        flushed = False
    return out.flush if flushed else lambda: None


def spans(rows: Iterable[OutputRow], format: str) -> Iterator[OutputRow]:
    """Yield the rows that are spans of time; failed files are reported on stderr, not here."""
    for row in rows:
        if row.get("error"):
            continue
        if "start_s" not in row or "label" not in row:
            raise UsageError(
                f"--format {format} writes one label with its times per row: it cannot be used "
                "with --compare, --multi, stored embeddings or a list"
            )
        yield row
